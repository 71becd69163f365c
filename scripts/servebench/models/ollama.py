"""Fetch `ollama://[host/][namespace/]model:tag[@sha256:digest]`, laid out as Ollama's own store.

The store (OLLAMA_MODELS) is `manifests/<host>/<namespace>/<model>/<tag>` and `blobs/sha256-<hex>`. Because it is
Ollama's layout, `ollama serve` finds the model there and llama-server can be given the very same weights: the blob.
Tags are mutable; the manifest's digest pins what the tag meant.
"""

from __future__ import annotations

import hashlib
import json
import re
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from servebench.machine.infrastructure import InfrastructureError
from servebench.models import file, https

REGISTRY = "registry.ollama.ai"  # the default host in Ollama's names
MANIFEST_TYPE = "application/vnd.docker.distribution.manifest.v2+json"
MOST_BYTES, MOST_S = 4 * 2**20, 60.0  # of a manifest, which has about a thousand bytes
BLOB = re.compile("sha256:[0-9a-f]{64}")
MODEL_LAYER = "application/vnd.ollama.image.model"
SOURCE = re.compile(
    r"ollama://(?:(?:(?P<host>[^/@]+)/)?(?P<namespace>[^/:@]+)/)?(?P<model>[^/:@]+)(?::(?P<tag>[^/:@]+))?(?:@(?P<digest>sha256:[0-9a-f]{64}))?"
)


@dataclass(frozen=True)
class Source:
    """Hold the parts of an `ollama://` source, with Ollama's defaults filled in."""

    host: str
    namespace: str
    model: str
    tag: str
    digest: str | None

    @property
    def manifest(self) -> Path:
        """Return the manifest's path in a store."""
        return Path("manifests") / self.host / self.namespace / self.model / self.tag

    @property
    def name(self) -> str:
        """Return the model's name in Ollama."""
        short = f"{self.model}:{self.tag}"
        if self.host != REGISTRY:
            return f"{self.host}/{self.namespace}/{short}"
        return short if self.namespace == "library" else f"{self.namespace}/{short}"


def parse(source: str) -> Source:
    """Parse an `ollama://` source; raises `InfrastructureError`."""
    match = SOURCE.fullmatch(source)
    if match is None:
        raise InfrastructureError(
            f"{source}: is not of the form ollama://model:tag or ollama://model:tag@sha256:digest"
        )
    part = match.groupdict()
    return Source(
        part["host"] or REGISTRY, part["namespace"] or "library", part["model"], part["tag"] or "latest", part["digest"]
    )


def find(source: str, store: Path) -> Path | None:
    """Find the blob with the model's weights in `store`; None when the store lacks the model or a part of it.

    Raises `InfrastructureError` when the tag in the store is not what `@sha256:` pins, or the model has split weights.
    """
    wanted = parse(source)
    place = store / wanted.manifest
    if not place.is_file():
        return None
    raw = place.read_bytes()
    _check_digest(source, wanted, raw)
    named = _parts(raw)
    if not named or not all(blob_path(store, part["digest"]).is_file() for part in named):
        return None
    weights = [part["digest"] for part in named if part.get("mediaType") == MODEL_LAYER]
    if len(weights) != 1:
        raise InfrastructureError(f"{source}: has {len(weights)} weight files; only models in one file are supported")
    return blob_path(store, weights[0])


def blob_path(store: Path, digest: str) -> Path:
    """Return where a store keeps the blob `sha256:<hex>`."""
    return store / "blobs" / digest.replace(":", "-")


def _parts(manifest: bytes) -> list[dict[str, Any]] | None:
    """List all blobs a manifest names, configuration and layers; None when the value is not a manifest."""
    try:
        found = json.loads(manifest)
        parts: list[dict[str, Any]] = [found["config"], *found["layers"]]
        return parts if all(BLOB.fullmatch(part["digest"]) for part in parts) else None
    except (ValueError, LookupError, TypeError):
        return None


def fetch(source: str, store: Path, progress: Callable[[str], None]) -> Path:
    """Download manifest and blobs into `store` (resumable, each checked against its digest) and return the weights."""
    wanted = parse(source)
    # A registry on this machine (a test, a mirror's tunnel) speaks plain HTTP.
    scheme = "http" if wanted.host.partition(":")[0] in ("127.0.0.1", "localhost") else "https"
    base = f"{scheme}://{wanted.host}/v2/{wanted.namespace}/{wanted.model}"
    return _bring(source, f"{base}/manifests/{wanted.tag}", lambda digest: f"{base}/blobs/{digest}", store, progress)


def copy(source: str, other: str, store: Path, progress: Callable[[str], None]) -> Path:
    """Copy manifest and blobs from another store, at a `file://` or `https://` address, into `store`."""
    manifest_at = f"{other}/{parse(source).manifest}"
    return _bring(source, manifest_at, lambda digest: f"{other}/{blob_path(Path(), digest)}", store, progress)


def _bring(
    source: str, manifest_at: str, blob_at: Callable[[str], str], store: Path, progress: Callable[[str], None]
) -> Path:
    wanted = parse(source)
    raw = _read(source, manifest_at)
    _check_digest(source, wanted, raw)
    named = _parts(raw)
    if not named:
        raise InfrastructureError(f"{source}: {manifest_at} is not a model's manifest; name another model")
    (store / "blobs").mkdir(parents=True, exist_ok=True)
    for digest in [part["digest"] for part in named]:
        blob = blob_path(store, digest)
        if not blob.is_file():
            cut = blob.with_name(f"{blob.name}-partial.d")
            cut.mkdir(exist_ok=True)
            at = blob_at(digest)
            got = file.fetch(at, cut, progress) if at.startswith("file://") else https.fetch(at, cut, progress)
            with got.open("rb") as content:
                found = hashlib.file_digest(content, "sha256").hexdigest()
            if f"sha256:{found}" != digest:
                got.unlink()
                raise InfrastructureError(f"{source}: a blob has sha256 {found}, expected {digest}")
            got.rename(blob)
            shutil.rmtree(cut)
    place = store / wanted.manifest
    place.parent.mkdir(parents=True, exist_ok=True)
    place.with_name(f".{place.name}.partial").write_bytes(raw)
    place.with_name(f".{place.name}.partial").rename(place)
    found_blob = find(source, store)
    assert found_blob is not None
    return found_blob


def _read(source: str, manifest_at: str) -> bytes:
    try:
        if manifest_at.startswith("file://"):
            return file.path_of(manifest_at).read_bytes()
        return https.read(manifest_at, MOST_BYTES, MOST_S, {"Accept": MANIFEST_TYPE})
    except (httpx.HTTPError, OSError) as error:
        raise InfrastructureError(f"{source}: {https.told(error)}") from error


def _check_digest(source: str, wanted: Source, manifest: bytes) -> None:
    found = f"sha256:{hashlib.sha256(manifest).hexdigest()}"
    if wanted.digest and found != wanted.digest:
        raise InfrastructureError(
            f"{source}: {wanted.name} now has manifest {found}; the tag was moved: pin the new digest if it is wanted"
        )
