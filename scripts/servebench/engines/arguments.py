"""Read a setting's own arguments: what they give is not given again, and what they ask for is what is compared."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass


def unless(given: Sequence[str], names: tuple[str, ...], *with_value: str) -> list[str]:
    """Return [names[0], value…], or [] when `given` has one of the names."""
    return [] if any(_name(word) in names for word in given) else [names[0], *with_value]


def value(given: Sequence[str], names: tuple[str, ...]) -> str | None:
    """Return the value of the last of `names` in `given` (`--name value` or `--name=value`)."""
    return _last(given, names)[1]


def _last(given: Sequence[str], names: tuple[str, ...]) -> tuple[str, str | None]:
    """Return the last of `names` in `given` as it is written, and its value."""
    found: tuple[str, str | None] = "", None
    for place, word in enumerate(given):
        if _name(word) in names:
            name, equals, text = word.partition("=")
            found = name, text if equals else (given[place + 1] if place + 1 < len(given) else None)
    return found


def _name(word: str) -> str:
    """Return the flag of `--name` or `--name=value`. llama-server and vLLM take --ctx_size for --ctx-size."""
    name = word.partition("=")[0]
    return name.replace("_", "-") if name.startswith("--") else name


def integer(given: Sequence[str], names: tuple[str, ...]) -> int | None:
    """Return the last value of `names` in `given` as a number."""
    text = value(given, names)
    return None if text is None else int(text)


def last(given: Sequence[str], on: tuple[str, ...], off: tuple[str, ...]) -> bool | None:
    """Return which of two opposite flags comes last; None when neither is given."""
    switches = [word in on for word in given if word in on + off]
    return switches[-1] if switches else None


@dataclass(frozen=True)
class Option:
    """Name the flags and environment variables by which an engine takes a number that a setting has a key for."""

    flags: tuple[str, ...] = ()
    env: tuple[str, ...] = ()
    all_slots: bool = False  # the engine's number is that of all slots together

    def otherwise(self, args: Sequence[str], env: Mapping[str, str], wanted: int) -> tuple[str, str] | None:
        """Return the flag or variable that asks for another number than `wanted`, and its value."""
        for name, text in (_last(args, self.flags), *((name, env.get(name)) for name in self.env)):
            if text is not None and text.strip() != str(wanted):
                return name, text
        return None
