"""What `runtime.mirror` gives: laid out as a cache, checked where something pins it, else said to be unverified."""

import json
import logging
import shutil
from collections.abc import Callable, Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest

from files_double import FilesDouble
from servebench import models
from servebench.machine.infrastructure import InfrastructureError
from servebench.models import https, ollama
from servebench.plan import Model

WEIGHTS = bytes(range(256)) * 40
SHA256 = sha256(WEIGHTS).hexdigest()
COMMIT = "a" * 40
NOWHERE = "127.0.0.1:9"  # a registry that answers to nobody


@pytest.fixture
def mirror(tmp_path: Path) -> Path:
    """An empty folder."""
    folder = tmp_path / "mirror"
    folder.mkdir()
    return folder


@pytest.fixture
def served(mirror: Path) -> Iterator[str]:
    """The folder as a plain web server has it, with a page that lists it."""
    with FilesDouble(mirror) as double:
        yield double.url


@pytest.fixture
def fetch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple[dict[str, Any], list[str]]]:
    """Fetch a source with a mirror; the manifest and what was said. No source of its own is in reach."""
    monkeypatch.setattr(https.time, "sleep", lambda _: None)
    monkeypatch.setitem(models.SCHEMES, "hf", unreachable)

    def fetched(source: str, mirror: Any, cache: str = "cache", **entry: Any) -> tuple[dict[str, Any], list[str]]:
        said: list[str] = []
        wanted = msgspec.convert({"key": "m", "name": "M", "source": source, **entry}, Model)
        manifest = models.fetch(wanted, {}, cache_root=tmp_path / cache, mirror=str(mirror), progress=said.append)
        return manifest, said

    return fetched


def unreachable(source: str, into: Path, progress: Callable[[str], None]) -> Path:
    """The Hub, for a site without internet."""
    raise InfrastructureError(f"{source}: no internet")


def store(folder: Path, host: str = NOWHERE, weights: bytes = WEIGHTS) -> str:
    """An Ollama store with library/tiny:1b; returns its manifest's digest."""
    (folder / "blobs").mkdir(parents=True, exist_ok=True)
    layers = []
    for kind, content in (("config", b"{}"), ("model", weights)):
        digest = f"sha256:{sha256(content).hexdigest()}"
        ollama.blob_path(folder, digest).write_bytes(content)
        layers.append({"mediaType": f"application/vnd.ollama.image.{kind}", "digest": digest, "size": len(content)})
    manifest = folder / "manifests" / host / "library" / "tiny" / "1b"
    manifest.parent.mkdir(parents=True, exist_ok=True)
    manifest.write_text(json.dumps({"schemaVersion": 2, "config": layers[0], "layers": layers[1:]}))
    return f"sha256:{sha256(manifest.read_bytes()).hexdigest()}"


@pytest.mark.parametrize("by", ["folder", "address"])
def test_an_ollama_model_comes_out_of_a_mirrors_store(by, mirror, served, fetch, tmp_path):
    digest, at = store(mirror / "ollama"), mirror if by == "folder" else served
    manifest, said = fetch(f"ollama://{NOWHERE}/library/tiny:1b@{digest}", at)
    assert manifest["path"] == f"models/ollama/blobs/sha256-{SHA256}"
    assert (tmp_path / "cache" / manifest["path"]).read_bytes() == WEIGHTS
    assert (tmp_path / "cache/models/ollama/manifests" / NOWHERE / "library/tiny/1b").is_file()
    assert (manifest["unverified"], manifest["fetch_s"]) == (None, None)
    tag = f"ollama://{NOWHERE}/library/tiny:1b"
    manifest, said = fetch(tag, at, "again", unverified="a tag")
    assert manifest["unverified"] == f"taken from {at} by its name alone: no SHA-256 says that it is {tag}"
    assert f"m: {manifest['unverified']}" in said


def test_an_ollama_blob_of_a_mirror_that_is_another_is_said_and_not_used(mirror, fetch, tmp_path):
    store(mirror / "ollama")
    ollama.blob_path(mirror / "ollama", f"sha256:{SHA256}").write_bytes(b"cut")
    said: list[str] = []
    source = f"ollama://{NOWHERE}/library/tiny:1b"
    wanted = msgspec.convert({"key": "m", "name": "M", "source": source, "unverified": "a tag"}, Model)
    with pytest.raises(InfrastructureError, match=f"{source}: .*Connection refused"):
        models.fetch(wanted, {}, cache_root=tmp_path / "cache", mirror=str(mirror), progress=said.append)
    assert said == [f"mirror: {source}: a blob has sha256 {sha256(b'cut').hexdigest()}, expected sha256:{SHA256}"]


@pytest.mark.parametrize(
    "content",
    [
        "<html>",
        "[]",
        "{}",
        '{"config": null, "layers": []}',
        '{"config": {"digest": 1}, "layers": []}',
        f'{{"config": {{"digest": "sha256:{SHA256}"}}, "layers": 3}}',
        '{"config": {"digest": "sha256:../../../elsewhere"}, "layers": []}',
    ],
)
def test_a_page_that_is_no_manifest_is_said_and_a_store_with_it_lacks_the_model(content, mirror, fetch):
    store(mirror / "ollama")
    (mirror / "ollama/manifests" / NOWHERE / "library/tiny/1b").write_text(content)
    assert ollama.find(f"ollama://{NOWHERE}/library/tiny:1b", mirror / "ollama") is None
    source = f"ollama://{NOWHERE}/library/tiny:1b"
    with pytest.raises(InfrastructureError, match="is not a model's manifest"):
        ollama.copy(source, f"file://{mirror}/ollama", mirror / "other", lambda line: None)


def test_a_copied_cache_is_a_mirror(mirror, fetch, tmp_path):
    """docs/slurm.md: fetched at home, copied, and named in runtime.mirror, for each kind of source."""
    (mirror / "tokenizer.json").write_text("{}")
    (mirror / "w.gguf").write_bytes(WEIGHTS)
    home = tmp_path / "home" / "models"
    (home / SHA256).mkdir(parents=True)
    shutil.copy(mirror / "w.gguf", home / SHA256)
    shutil.copytree(mirror, home / "hf" / f"a--b@{COMMIT}")
    (home / "hf" / "a--b@None--sub--w.gguf").mkdir()
    shutil.copy(mirror / "w.gguf", home / "hf" / "a--b@None--sub--w.gguf")
    store(home / "ollama")
    shutil.copytree(home / "ollama", home / ("b" * 64))
    sources = {
        "https://nowhere.invalid/w.gguf": {"sha256": SHA256},
        f"hf://a/b@{COMMIT}": {},
        "hf://a/b/sub/w.gguf": {"unverified": "no revision"},
        f"ollama://{NOWHERE}/library/tiny:1b": {"sha256": SHA256},
    }
    for place, (source, entry) in enumerate(sources.items()):
        manifest, _ = fetch(source, home, f"cache{place}", **entry)
        assert (manifest["unverified"] is None) is ("sha256" in entry)


def test_a_snapshots_hidden_files_and_what_an_attempt_left_are_not_taken_from_a_mirror(mirror, fetch, tmp_path):
    snapshot, partial = mirror / "a" / "b", tmp_path / "cache/models/hf/.partial-a--b@None"
    snapshot.mkdir(parents=True)
    partial.mkdir(parents=True)
    (snapshot / "tokenizer.json").write_text("{}")
    (snapshot / ".servebench.json").write_text('{".": {"sha256": "0", "seen": [], "origin": {"fetch_s": 1}}}')
    (partial / "model.safetensors").write_bytes(WEIGHTS[:100])
    manifest, _ = fetch("hf://a/b", mirror, unverified="no revision")
    assert manifest["size_bytes"] == 2
    assert manifest["fetch_s"] is None
    assert manifest["sha256"] == sha256(f"{sha256(b'{}').hexdigest()}  tokenizer.json\n".encode()).hexdigest()


def test_a_snapshot_of_a_mirror_that_is_another_is_passed_over(mirror, fetch):
    (mirror / "a" / "b").mkdir(parents=True)
    (mirror / "a" / "b" / "config.json").write_text("{}")
    with pytest.raises(InfrastructureError, match="hf://a/b: no internet"):
        fetch("hf://a/b", mirror, sha256="0" * 64)
    assert (mirror / "a" / "b" / "config.json").is_file()


def test_an_address_that_cannot_hold_a_snapshot_says_so_and_gives_no_page(mirror, served, fetch, tmp_path):
    (mirror / "a" / "b").mkdir(parents=True)
    said: list[str] = []
    wanted = Model(key="m", name="M", source="hf://a/b", unverified="no revision")
    with pytest.raises(InfrastructureError, match="hf://a/b: no internet"):
        models.fetch(wanted, {}, cache_root=tmp_path / "cache", mirror=served, progress=said.append)
    assert said == [f"mirror: {served} cannot hold hf://a/b: a snapshot is a folder of files, and no address lists one"]


@pytest.mark.parametrize(
    "error", [httpx.ReadError(""), httpx.TooManyRedirects("Exceeded"), httpx.InvalidURL("Invalid")]
)
def test_whatever_ends_a_download_is_one_sentence(error, tmp_path, monkeypatch):
    def failing(*_: Any) -> None:
        raise error

    monkeypatch.setattr(https, "download", failing)
    monkeypatch.setattr(https.time, "sleep", lambda _: None)
    attempts = 5 if isinstance(error, httpx.ReadError) else 1
    told = str(error) or "ReadError"
    with pytest.raises(InfrastructureError, match=rf"https://a/b: {told} \(attempt {attempts} of 5\)"):
        https.fetch("https://a/b", tmp_path, logging.getLogger("servebench").info)
