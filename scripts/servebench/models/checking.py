"""Check a file's SHA-256 and size, remembered beside the file so that it is hashed only once."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import msgspec

STAMP = ".servebench.json"  # in a file's directory, or in the snapshot itself


class _Stamp(msgspec.Struct):
    sha256: Annotated[str, msgspec.Meta(pattern=r"\A[0-9a-f]{64}\Z")]
    seen: list[tuple[str, int, int]]
    origin: dict[str, Any] = {}


_decode = msgspec.json.Decoder(dict[str, _Stamp]).decode


class Mismatch(ValueError):
    """Report that a file is not the wanted one; the text gives the expected and the actual size or SHA-256."""


@dataclass(frozen=True)
class Wanted:
    """Hold the SHA-256 and the size that a model must have; None where not known beforehand."""

    sha256: str | None = None
    size_bytes: int | None = None


def accept(path: Path, wanted: Wanted) -> None:
    """Check a file or a snapshot's directory against `wanted`; raises `Mismatch`. Remembers the hash."""
    size_bytes = size(path)
    if wanted.size_bytes is not None and size_bytes != wanted.size_bytes:
        raise Mismatch(
            f"{path.name} has {size_bytes:,} bytes, expected {wanted.size_bytes:,}; "
            "it is cut or another file and was not used"
        )
    known = _remembered_sha256(path)
    sha256 = known or _sha256(path)
    if wanted.sha256 is not None and sha256 != wanted.sha256:
        raise Mismatch(
            f"{path.name} has sha256 {sha256}, expected {wanted.sha256}; it is another file and was not used"
        )
    origin = noted(path) if known else {}
    _remember(path, {"sha256": sha256, "seen": _seen(path), "origin": origin})


def note(path: Path, **origin: Any) -> None:
    """Remember how an accepted file was obtained, until the file is altered."""
    _remember(path, {**_stamps(path)[_label(path)], "origin": origin})


def noted(path: Path) -> dict[str, Any]:
    """Return what `note` remembered of a file; {} without a note."""
    return dict(_stamps(path).get(_label(path), {}).get("origin", {}))


def _remember(path: Path, stamp: dict[str, Any]) -> None:
    stamps = {} if path.is_dir() else _stamps(path)  # a snapshot's stands for those of its files
    stamps[_label(path)] = stamp
    file = _stamp_path(path)
    part = file.with_name(f"{file.name}.part")
    part.write_text(json.dumps(stamps, indent=1), encoding="utf-8")
    part.replace(file)


def remembered(path: Path) -> tuple[str, int]:
    """Return (sha256, size in bytes) of an accepted file."""
    return _remembered_sha256(path) or _sha256(path), size(path)


def recorded(place: Path) -> Path | None:
    """Return the file or snapshot that was accepted in the directory `place`, if it still exists."""
    for label in _stamps_at(place / STAMP):
        if (place / label).exists():
            return place if label == "." else place / label
    return None


def size(path: Path) -> int:
    """Compute the size in bytes of a file, or of all files of a snapshot."""
    return sum(entry.stat().st_size for entry in files(path))


def files(path: Path) -> list[Path]:
    """List a file itself; of a snapshot's directory, all files that are not hidden, in order."""
    if not path.is_dir():
        return [path]
    return sorted(
        entry
        for entry in path.rglob("*")
        if entry.is_file() and not any(p.startswith(".") for p in entry.relative_to(path).parts)
    )


def _sha256(path: Path) -> str:
    """Compute a file's SHA-256; for a snapshot, that of its sorted lines `<sha256>  <path>`, as sha256sum prints."""
    if not path.is_dir():
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    lines = [
        f"{_remembered_sha256(file) or _sha256(file)}  {file.relative_to(path).as_posix()}\n" for file in files(path)
    ]
    return hashlib.sha256("".join(lines).encode()).hexdigest()


def digest(path: Path) -> str:
    """Compute the SHA-256 of a file or a snapshot as `remembered` has it, from its bytes alone."""
    if not path.is_dir():
        return _sha256(path)
    lines = [f"{_sha256(file)}  {file.relative_to(path).as_posix()}\n" for file in files(path)]
    return hashlib.sha256("".join(lines).encode()).hexdigest()


def _seen(path: Path) -> list[list[Any]]:
    """Return size and modification time of each file; a file whose pair changed is hashed again."""
    return [[f.name, f.stat().st_size, f.stat().st_mtime_ns] for f in files(path)]


def _remembered_sha256(path: Path) -> str | None:
    stamp = _stamps(path).get(_label(path))
    return str(stamp["sha256"]) if stamp and [*map(list, stamp["seen"])] == _seen(path) else None


def _stamps(path: Path) -> dict[str, Any]:
    return _stamps_at(_stamp_path(path))


def _stamps_at(file: Path) -> dict[str, Any]:
    """Read the stamps in a file; {} without the file, or when it is damaged: the model is then hashed again."""
    try:
        return {label: msgspec.to_builtins(stamp) for label, stamp in _decode(file.read_bytes()).items()}
    except (OSError, msgspec.DecodeError, RecursionError):
        return {}


def _stamp_path(path: Path) -> Path:
    return (path if path.is_dir() else path.parent) / STAMP


def _label(path: Path) -> str:
    return "." if path.is_dir() else path.name
