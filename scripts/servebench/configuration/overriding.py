"""Read what `--config` changes: KEY=VALUE, as Snakemake parses it, with the types that YAML gives its values."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from copy import deepcopy
from typing import Any

import jsonschema
import yaml

from servebench.configuration.faults import Validator
from servebench.configuration.origin import holds
from servebench.configuration.reading import ConfigError
from servebench.configuration.schema import schema

Path = tuple[str | int, ...]


def overrides(given: Sequence[str]) -> dict[str, Any]:
    """Parse the command line's KEY=VALUE as snakemake --config does."""
    from snakemake.cli import parse_config  # takes half a second to import

    try:
        return dict(parse_config(list(given)))
    except ValueError as error:
        raise ConfigError(f"--config: {shlex.join(given)}: {error}") from error


def typed(config: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the configuration with numbers where the command line's `given` has them inside a list or mapping.

    Snakemake takes all of `workload={max_tokens: 9}` for text. A value that the schema wants as text stays text.
    """
    found = deepcopy(dict(config))
    texts = {
        path: text
        for path, text in _texts(given, ())
        if len(path) > 1 and holds(found, path) and not isinstance(_value(text), str)
    }
    for path, text in texts.items():
        _at(found, path[:-1])[path[-1]] = _value(text)
    checked = Validator(schema())
    for error in _all(list(checked.iter_errors(found))):
        path = tuple(error.absolute_path)
        if path in texts and checked.evolve(schema=error.schema).is_valid(texts[path]):
            _at(found, path[:-1])[path[-1]] = texts[path]
    return found


def _all(errors: Iterable[jsonschema.ValidationError]) -> Iterator[jsonschema.ValidationError]:
    """Yield errors, and those of every alternative that they rule out."""
    for error in errors:
        yield error
        yield from _all(error.context or ())


def _texts(value: Any, path: Path) -> Iterator[tuple[Path, str]]:
    inner: Any = value.items() if isinstance(value, Mapping) else enumerate(value) if isinstance(value, list) else ()
    for key, held in inner:
        if isinstance(held, str):
            yield (*path, key), held
        else:
            yield from _texts(held, (*path, key))


def _at(value: Any, path: Path) -> Any:
    for part in path:
        value = value[part]
    return value


def _value(text: str) -> Any:
    """Return the number, truth value or null that YAML reads, or the text."""
    try:
        found = yaml.safe_load(text)
    except yaml.YAMLError:
        return text
    return found if found is None or isinstance(found, bool | int | float) else text
