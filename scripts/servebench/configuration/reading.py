"""Read a configuration file strictly: no key twice, no endless or exploding references, no endless file."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from servebench.faults import Fault

MOST_BYTES = 4 * 2**20
MOST_VALUES = 200_000  # once every reference (*name) is written out
# libyaml's is ten times faster and refuses deep nesting itself.
_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class ConfigError(Fault):
    """A configuration cannot be run; the message has one line per fault: file: key: value: remedy."""


def read(file: str | Path) -> dict[str, Any]:
    """Return the mapping in a YAML file. Raises ConfigError."""
    try:
        path = Path(file)
        if path.exists() and not path.is_file():
            raise ConfigError(f"{file}: is not a file; name a file under config/")
        with path.open("rb") as opened:
            content = opened.read(MOST_BYTES + 1)
        if len(content) > MOST_BYTES:
            raise ConfigError(f"{file}: has more than {MOST_BYTES // 2**20} MiB; keep long texts in files of their own")
        loader = _LOADER(content.decode("utf-8"))
        node = loader.get_single_node()
        if faults := list(_faults(file, node)):
            raise ConfigError("\n".join(faults))
        found = loader.construct_document(node) if node else None
    except OSError as error:
        raise ConfigError(f"{file}: cannot be read: {error.strerror}; name a file under config/") from error
    except yaml.MarkedYAMLError as error:
        line = "" if error.problem_mark is None else f"{error.problem_mark.line + 1}:"
        told = f"is not valid YAML: {error.problem}; check this line and its indentation"
        raise ConfigError(f"{file}:{line} {told}") from error
    except (yaml.YAMLError, ValueError) as error:
        raise ConfigError(f"{file}: is not valid YAML: {str(error).splitlines()[0]}") from error
    except RecursionError:
        raise ConfigError(f"{file}: is nested too deep; write it flatter") from None
    if not isinstance(found, dict | None):
        raise ConfigError(f"{file}: {found!r:.60} is not a mapping of keys to values; see config/README.md")
    return found or {}


def _faults(file: str | Path, node: yaml.Node | None) -> Iterator[str]:
    """Find keys that are given twice, and references that lead in a circle or to too many values."""
    sizes: dict[int, int] = {}
    open_: set[int] = set()

    def size(node: yaml.Node) -> Iterator[str]:
        if id(node) in sizes:
            return
        open_.add(id(node))
        total, seen = 1, dict[str, int]()
        children: list[yaml.Node] = list(node.value) if isinstance(node, yaml.SequenceNode) else []
        if isinstance(node, yaml.MappingNode):
            for key, value in node.value:
                children += [key, value]
                if isinstance(key, yaml.ScalarNode) and key.tag != "tag:yaml.org,2002:merge":
                    line = key.start_mark.line + 1
                    if key.value in seen:
                        first = f"is given in line {seen[key.value]}, too; keep one of the two"
                        yield f"{file}:{line}: {key.value:.60}: {first}"
                    seen[key.value] = line
        for child in children:
            if id(child) in open_:
                line = child.start_mark.line + 1
                yield f"{file}:{line}: refers to itself (*); write the value out"
                continue
            yield from size(child)
            total += sizes[id(child)]
        open_.discard(id(node))
        sizes[id(node)] = total

    if node is None:
        return
    yield from size(node)
    if sizes[id(node)] > MOST_VALUES:
        yield f"{file}: has {sizes[id(node)]:,} values once its references (*) are written out; at most {MOST_VALUES:,}"
