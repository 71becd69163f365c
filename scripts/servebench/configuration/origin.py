"""Find the file or command-line option that set a key."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from servebench import ROOT
from servebench.configuration.reading import ConfigError, read


def in_checkout(file: str | Path) -> str | None:
    """Return a file's path inside the checkout, or None for a file outside."""
    path = Path(file).parent.resolve() / Path(file).name
    return path.relative_to(ROOT).as_posix() if path.is_relative_to(ROOT) else None


class Origin:
    """Find the origin of each key of the merged configuration, for errors: the command line or a file."""

    def __init__(self, files: Sequence[str | Path], overrides: Mapping[str, Any]) -> None:
        self.files = [str(file) for file in files] or ["config"]
        self.overrides = overrides
        self._contents: dict[str, Any] = {}
        self._names: dict[str, str] = {}
        self.unreadable: list[
            str
        ] = []  # why files that Snakemake has merged are not to be read, such as keys given twice
        for file in files:
            if Path(file).exists():  # else the name of a configuration that was made in memory
                try:
                    self._contents[str(file)] = read(file)
                except ConfigError as error:
                    self.unreadable.append(str(error))

    def layers(self) -> list[tuple[str, Mapping[str, Any]]]:
        """Return the name and the content of each file that could be read, then of the command line."""
        given = [("--config", self.overrides)] if self.overrides else []
        return [*((self._name(file), content) for file, content in self._contents.items()), *given]

    def of(self, path: Sequence[str | int]) -> str:
        """Return --config if the command line sets `path`, else the last file that sets it.

        For a missing key return the last file.
        """
        if path and holds(self.overrides, path):
            return "--config"
        for file in reversed(self.files):
            if holds(self._contents.get(file), path):
                return file
        return self.files[-1]

    def fault(self, path: Sequence[str | int], text: str) -> str:
        """Return `file: dotted.key: text`."""
        where = ".".join(str(part) for part in path)
        name = self._name(self.of(path))
        return f"{name}: {where}: {text}" if where else f"{name}: {text}"

    def _name(self, file: str) -> str:
        """Return a file's path inside the checkout, or as it was given."""
        if file not in self._names:
            self._names[file] = in_checkout(file) or file
        return self._names[file]


def holds(value: Any, path: Sequence[str | int]) -> bool:
    try:
        for part in path:
            value = value[part]
    except (KeyError, IndexError, TypeError):
        return False
    return True
