"""Fetch `ollama://` models from a real registry (tests/container/up.sh): a model is an OCI manifest and its blobs."""

import hashlib
import json
import os
import uuid
from pathlib import Path
from typing import Any

import httpx
import pytest

from servebench.machine.infrastructure import InfrastructureError
from servebench.models import ollama

REGISTRY = "127.0.0.1:5000"
STATE = Path(os.environ.get("CONTAINER_TEST_STATE", "/var/tmp/servebench-container"))
WEIGHTS = os.urandom(3 * 2**20)


@pytest.fixture
def name() -> str:
    """A model's name of the test's own."""
    if not (STATE / "registry.pid").exists():
        pytest.skip("needs a registry: tests/container/up.sh")
    return f"tiny-{uuid.uuid4().hex[:8]}"


def pushed(name: str, weights: bytes, tag: str = "1") -> dict[str, Any]:
    """Push a model as `ollama push` does; returns its manifest."""
    config = json.dumps({"model_format": "gguf", "name": name}).encode()
    base = f"http://{REGISTRY}/v2/library/{name}"

    def blob(content: bytes, kind: str) -> dict[str, Any]:
        digest = f"sha256:{hashlib.sha256(content).hexdigest()}"
        place = httpx.post(f"{base}/blobs/uploads/").headers["location"]
        httpx.put(httpx.URL(place).copy_merge_params({"digest": digest}), content=content).raise_for_status()
        return {"mediaType": kind, "digest": digest, "size": len(content)}

    manifest = {
        "schemaVersion": 2,
        "mediaType": ollama.MANIFEST_TYPE,
        "config": blob(config, "application/vnd.docker.container.image.v1+json"),
        "layers": [
            blob(weights, ollama.MODEL_LAYER),
            blob(b"{{ .Prompt }}", "application/vnd.ollama.image.template"),
        ],
    }
    headers = {"Content-Type": ollama.MANIFEST_TYPE}
    httpx.put(f"{base}/manifests/{tag}", content=json.dumps(manifest), headers=headers).raise_for_status()
    return manifest


def stored(digest: str) -> Path:
    """Where the registry keeps a blob."""
    hexadecimal = digest.removeprefix("sha256:")
    return STATE / "registry/docker/registry/v2/blobs/sha256" / hexadecimal[:2] / hexadecimal / "data"


def test_a_model_is_pulled_and_found_until_its_tag_moves(name: str, tmp_path: Path) -> None:
    pushed(name, WEIGHTS)
    source = f"ollama://{REGISTRY}/library/{name}:1"
    found = ollama.fetch(source, tmp_path, print)
    assert found.read_bytes() == WEIGHTS
    assert ollama.find(source, tmp_path) == found
    manifest = (tmp_path / ollama.parse(source).manifest).read_bytes()
    pinned = f"{source}@sha256:{hashlib.sha256(manifest).hexdigest()}"
    assert ollama.find(pinned, tmp_path) == found
    pushed(name, WEIGHTS + b"another")
    with pytest.raises(InfrastructureError, match=r"now has manifest sha256:\w+; the tag was moved"):
        ollama.fetch(pinned, tmp_path / "other", print)
    assert ollama.fetch(source, tmp_path, print).read_bytes() == WEIGHTS + b"another"


def test_a_missing_and_a_cut_blob_are_said_and_nothing_is_found(name: str, tmp_path: Path) -> None:
    weights = WEIGHTS + name.encode()
    (layer, _) = pushed(name, weights)["layers"]
    source, place = f"ollama://{REGISTRY}/library/{name}:1", stored(layer["digest"])
    for content, words in ((None, "404"), (weights[: 2**20], r"a blob has sha256 \w+, expected")):
        if content is None:
            place.unlink()
        else:
            place.write_bytes(content)
        with pytest.raises(InfrastructureError, match=words):
            ollama.fetch(source, tmp_path, print)
        assert ollama.find(source, tmp_path) is None
    place.write_bytes(weights)
    assert ollama.fetch(source, tmp_path, print).read_bytes() == weights
