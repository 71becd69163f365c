"""Make config/schema.yaml and the tables of keys in config/README.md from the sections: `make schema`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

import msgspec
import yaml

from servebench import ROOT
from servebench.configuration.sections import Configuration

_HEAD = """\
# What a configuration may say, for editors and for servebench; config/README.md has the same as tables.
# Made by `make schema` from scripts/servebench/configuration/sections.py; checks across keys: faults.py beside it.
"""
_BEGIN, _END = "<!-- keys: made by `make schema` -->\n\n", "\n<!-- end of keys -->\n"
Node = Mapping[str, Any]


@cache
def schema() -> dict[str, Any]:
    """Make the JSON Schema (2020-12) of a configuration."""
    made = msgspec.json.schema(Configuration)
    definitions = {name: _untitled(node) for name, node in sorted(made["$defs"].items())}
    root = definitions.pop(Configuration.__name__)
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **root, "$defs": definitions}


def _untitled(node: Node) -> dict[str, Any]:
    """Strip a definition of its class's name, its docstring and an empty list of required keys."""
    return {key: value for key, value in node.items() if key not in ("title", "description") and value != []}


def as_yaml() -> str:
    """Return the text of config/schema.yaml."""
    return _HEAD + yaml.safe_dump(schema(), sort_keys=False, width=118, allow_unicode=True)


def documented(readme: str) -> str:
    """Return the text of config/README.md with the tables of keys as the sections have them."""
    before, rest = readme.split(_BEGIN)
    _, after = rest.split(_END)
    return f"{before}{_BEGIN}{tables()}{_END}{after}"


def tables() -> str:
    """Return one Markdown table for the keys that hold one value, and one for each section."""
    keys, plain, sections = schema()["properties"], [], ""
    seen: set[str] = set()
    for key, node in keys.items():
        rows = list(_inner(key, node, seen))
        if rows:
            sections += f"\n### `{key}`\n\n{node['description']}\n\n{_table(rows)}"
        if not rows or "anyOf" in node:
            plain.append(_row(key, node, required=key in schema()["required"]))
    return _table(plain) + sections


def _table(rows: list[str]) -> str:
    return "\n".join(["| key | value | unless given | meaning |", "|---|---|---|---|", *rows]) + "\n"


def _inner(path: str, node: Node, seen: set[str]) -> Iterator[str]:
    """Yield the table rows of a section's keys, once for each section (`seen` holds those done)."""
    if "anyOf" in node:
        for alternative in node["anyOf"]:
            if _described(alternative):
                yield from _inner(path, alternative, seen)
        return
    if "$ref" not in node:
        path, node = f"{path}.<{path.rpartition('.')[2].rstrip('s')}>", node.get("additionalProperties") or {}
    name = node.get("$ref", "").rpartition("/")[2]
    if name in seen | {""}:
        return
    seen.add(name)
    section = schema()["$defs"][name]
    for key, inner in section["properties"].items():
        yield _row(f"{path}.{key}", inner, required=key in section.get("required", ()))
        yield from _inner(f"{path}.{key}", inner, seen)


def _described(node: Node) -> bool:
    """Return whether a node is a section whose keys have meanings; a text in languages has none."""
    section = schema()["$defs"].get(node.get("$ref", "").rpartition("/")[2], {})
    return all("description" in inner for inner in section.get("properties", {"": {}}).values())


def _row(path: str, node: Node, *, required: bool) -> str:
    default = node.get("default", "")
    shown = "(required)" if required else default and f"`{default}`"
    return f"| `{path}` | {_values(node)} | {shown} | {node['description']} |"


def _values(node: Node) -> str:
    """Describe the values of a key in words."""
    if "enum" in node:
        return ", ".join(f"`{choice}`" for choice in node["enum"])
    if "anyOf" in node:
        return " or ".join(map(_values, node["anyOf"]))
    kind = node.get("type", "object")
    if kind == "array":
        return f"list ({_values(node['items'])})"
    signs = {"minimum": "≥", "exclusiveMinimum": ">", "maximum": "≤"}
    bounds = " and ".join(f"{sign} {node[bound]}" for bound, sign in signs.items() if bound in node)
    return f"{'mapping' if kind == 'object' else kind} {bounds}".strip()


def write() -> None:
    """Write both files, for `make schema`."""
    readme = ROOT / "config" / "README.md"
    (ROOT / "config" / "schema.yaml").write_text(as_yaml(), encoding="utf-8")
    readme.write_text(documented(readme.read_text(encoding="utf-8")), encoding="utf-8")
