"""Fetch each model file once into the user's cache, check it by its SHA-256, and never use a wrong or cut one.

A model is one file (`<cache>/models/<sha256>/<name>`), a snapshot of a Hugging Face repository
(`<cache>/models/hf/<owner>--<repository>@<revision>/`) or a blob in an Ollama store (`<cache>/models/ollama/`).
`fetch` returns a manifest, plain JSON, from which `path` finds the model again.
"""

from __future__ import annotations

import shlex
import shutil
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from servebench.machine.infrastructure import InfrastructureError, locked
from servebench.models import facts, file, hf, https, mirrors, ollama, pypi, scratch
from servebench.models.checking import Mismatch, Wanted, accept, digest, note, noted, recorded, remembered, size
from servebench.models.kv_cache import UNREADABLE
from servebench.plan import Model

Progress = Callable[[str], None]
# By source scheme: the function that fetches `<scheme>://…` into a directory and returns the model's path.
SCHEMES: Mapping[str, Callable[[str, Path, Progress], Path]] = {
    "file": file.fetch,
    "https": https.fetch,
    "pypi": pypi.fetch,
    "hf": hf.fetch,
    "ollama": ollama.fetch,
}


def fetch(
    model: Model,
    models: Mapping[str, Model],
    *,
    cache_root: Path,
    mirror: str | None = None,
    progress: Progress = lambda line: None,
) -> dict[str, Any]:
    """Bring `model` into the cache, unless it is there, and return its manifest.

    The manifest: key, name, source or requantize, sha256 (of the file, or of a snapshot's list of files), size_bytes,
    path (relative to the cache root), kind (file|snapshot), quantization, note, facts (`facts.of`), fetch_s (seconds of
    its download, checks against its source included; None unless one download fetched all of it), unverified
    (why a mirror's file cannot be known to be the source's, else None).
    Raises `InfrastructureError` when the model cannot be fetched or differs from its `sha256` or `size_bytes`.
    """
    found = _bring(model, models, cache_root, mirror, progress)
    (sha256, size_bytes), origin = remembered(found), noted(found)
    return {
        "key": model.key,
        "name": model.name,
        **({"requantize": model.requantize} if model.requantize else {"source": model.source}),
        "sha256": sha256,
        "size_bytes": size_bytes,
        "path": str(found.relative_to(cache_root)),
        "kind": "snapshot" if found.is_dir() else "file",
        "quantization": model.quantization,
        "note": model.note,
        "facts": _facts(model, found),
        "fetch_s": origin.get("fetch_s"),
        "unverified": origin.get("unverified"),
    }


def kept(model: Model, cache_root: Path) -> Path | None:
    """Return where the cache has the model, unchecked; None when the cache lacks it."""
    place = _place(model, cache_root)
    return ollama.find(model.source or "", place) if _in_ollama(model) else recorded(place)


def _facts(model: Model, found: Path) -> dict[str, Any]:
    try:
        return facts.of(found)
    except UNREADABLE as error:
        told = f"is not a whole model ({type(error).__name__}: {error}); name another source"
        raise InfrastructureError(f"models.{model.key}: {found} {told}") from error


def path(manifest: Mapping[str, Any], cache_root: Path) -> Path:
    """Find the manifest's model; raises `InfrastructureError` when it is gone or its size has changed."""
    found: Path = cache_root / manifest["path"]
    if not found.exists():
        raise InfrastructureError(f"models.{manifest['key']}: {found} is gone from the cache; fetch it again")
    size_bytes = size(found)
    if size_bytes != manifest["size_bytes"]:
        raise InfrastructureError(
            f"models.{manifest['key']}: {found} has {size_bytes:,} bytes, expected {manifest['size_bytes']:,}; "
            "delete it and fetch it again"
        )
    return found


def altered(manifest: Mapping[str, Any], cache_root: Path) -> str | None:
    """Say what is wrong with the manifest's model, read to the last byte; None when it is what was fetched."""
    found: Path = cache_root / manifest["path"]
    if not found.exists():
        return f"{found} is gone; the next run fetches it again"
    sha256 = digest(found)
    if sha256 == manifest["sha256"]:
        return None
    remove = f"rm -r {shlex.quote(str(found.parent if found.is_file() else found))}"
    return (
        f"{found} has sha256 {sha256}, not {manifest['sha256']}, though its size and time may be the same: {remove},"
        " and discard what was measured with it since"
    )


def ensure(
    manifest: Mapping[str, Any],
    model: Model,
    models: Mapping[str, Model],
    *,
    cache_root: Path,
    mirror: str | None = None,
    node_local: Path | None = None,
    progress: Progress = lambda line: None,
) -> Path:
    """Return `path` of the manifest's model, fetched again when the cache has lost it since.

    With `node_local` (`scratch.root`) the path is that of a checked copy in that folder; a blob in an Ollama store,
    where Ollama looks for it, stays in the store.
    Raises `InfrastructureError` when the model fetched now differs from the manifest.
    """
    found = _bring(model, models, cache_root, mirror, progress)
    sha256, _ = remembered(found)
    if sha256 != manifest["sha256"]:
        raise InfrastructureError(
            f"models.{model.key}: is now {sha256}, but was {manifest['sha256']} when it was fetched first; "
            "its source has changed: pin it by sha256"
        )
    if node_local is None or _in_ollama(model):
        return found
    return scratch.copied(found, sha256, node_local, progress)


def _bring(model: Model, models: Mapping[str, Model], cache_root: Path, mirror: str | None, progress: Progress) -> Path:
    """Return the model's place in the cache, fetching the model if need be; one job at a time for each model."""
    place = _place(model, cache_root)
    with locked(cache_root / "models" / "locks" / f"{place.name}.lock", waiting=progress):
        partial = place.with_name(f".partial-{place.name}")
        try:
            return _cached(model, place) or _obtain(model, models, place, partial, cache_root, mirror, progress)
        except Mismatch as mismatch:
            shutil.rmtree(partial, ignore_errors=True)
            raise InfrastructureError(f"models.{model.key}: {mismatch}") from None


def _in_ollama(model: Model) -> bool:
    """Tell whether the model is a blob in an Ollama store."""
    return model.source is not None and model.source.startswith("ollama://")


def _place(model: Model, cache_root: Path) -> Path:
    """Return the cache directory of this model alone (an Ollama store is shared)."""
    base = cache_root / "models"
    if model.sha256:
        return base / model.sha256
    assert model.source  # config: a model without sha256 has an hf:// or ollama:// source (configuration/faults.py)
    if model.source.startswith("hf://"):
        return base / "hf" / hf.parse(model.source).directory
    return base / "ollama"


def _cached(model: Model, place: Path) -> Path | None:
    """Find the model in `place` if it is whole; remove one that was altered or half deleted."""
    if _in_ollama(model):
        return _blob(model, place)
    found = recorded(place)
    if found is None:
        return None
    try:
        accept(found, Wanted(model.sha256, model.size_bytes))
    except Mismatch:
        _remove(place)
        return None
    return found


def _remove(place: Path) -> None:
    """Remove a model's place, whatever somebody has put there."""
    if place.is_dir() and not place.is_symlink():
        shutil.rmtree(place)
    else:
        place.unlink(missing_ok=True)


def _blob(model: Model, store: Path) -> Path | None:
    """Find the model in an Ollama store, where a blob's name gives its digest.

    A complete blob stays even when another model is wanted: its tag may mean another model by now."""
    found = ollama.find(model.source or "", store)
    if found is None:
        return None
    sha256 = found.name.removeprefix("sha256-")
    try:
        accept(found, Wanted(sha256))
    except Mismatch:
        _remove(found)
        return None
    return found if model.sha256 in (None, sha256) and model.size_bytes in (None, size(found)) else None


def _obtain(
    model: Model,
    models: Mapping[str, Model],
    place: Path,
    partial: Path,
    cache_root: Path,
    mirror: str | None,
    progress: Progress,
) -> Path:
    """Fetch or make the model in `partial`, check it, and only then let it appear at `place`."""
    wanted, origin = Wanted(model.sha256, model.size_bytes), dict[str, Any]()
    into = place if _in_ollama(model) else partial
    into.mkdir(parents=True, exist_ok=True)
    if model.requantize:
        from servebench.models import requantize  # needs a package that `servebench load` has not

        source = _bring(models[model.requantize["from"]], models, cache_root, mirror, progress)
        got = into / f"{model.name}.{model.requantize['to']}.gguf"
        progress(f"{model.key}: requantizing {source.name} to {model.requantize['to']}")
        requantize.requantize(source, got, model.requantize["to"])
    else:
        got, origin = _fetched(model, wanted, into, mirror, progress)
    accept(got, wanted)
    note(got, **origin)
    if _in_ollama(model):
        return got
    _remove(place)
    partial.rename(place)
    return place / got.relative_to(partial)


def _fetched(
    model: Model, wanted: Wanted, into: Path, mirror: str | None, progress: Progress
) -> tuple[Path, dict[str, Any]]:
    """Fetch the model into `into` from the mirror or, where the mirror lacks it, from its source: (path, how)."""
    assert model.source
    if mirror and (got := mirrors.fetch(mirror, model.source, wanted, into, progress)):
        unverified = mirrors.unverified(mirror, model.source, wanted)
        if unverified:
            progress(f"{model.key}: {unverified}")
        return got, {"unverified": unverified}
    there = {path.name for folder in (into, into / "blobs") for path in folder.glob("*")}
    began = time.monotonic()
    got = SCHEMES[model.source.partition("://")[0]](model.source, into, progress)
    fetch_s = round(time.monotonic() - began, 3)
    return got, {"fetch_s": fetch_s if _downloaded(model.source, got, there) else None}


def _downloaded(source: str, got: Path, there: set[str]) -> bool:
    """Tell whether one download fetched all of `got`: nothing of it was `there` before."""
    if source.startswith("ollama://"):
        return not any(name.startswith(got.name) for name in there)
    return source.startswith(("https://", "hf://")) and not there and not hf.kept_elsewhere(source)
