"""Fetching from the Hugging Face Hub: what its double lists, whole and checked, or nothing."""

import hashlib
import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import huggingface_hub.constants
import msgspec
import pytest

from hub_double import REPOSITORY, Hub
from servebench import models
from servebench.cli import app as cli
from servebench.cli import kv_cache
from servebench.machine.infrastructure import InfrastructureError
from servebench.models import checking, hf
from servebench.plan import Model

OLD, NEW = "a" * 40, "b" * 40
WEIGHTS = bytes(range(256)) * 400
CONFIG = json.dumps({"model_type": "x", "num_hidden_layers": 2, "num_attention_heads": 2, "hidden_size": 64}).encode()
FILES = {
    ".gitattributes": b"*.gguf filter=lfs",
    "config.json": CONFIG,
    "model[1].safetensors": WEIGHTS,
    "more/tokenizer.json": b"{}",
    "pytorch_model.bin": b"the same weights again",
    "gguf/tiny.gguf": WEIGHTS[::-1],
}
SNAPSHOT = ["config.json", "model[1].safetensors", "more/tokenizer.json"]


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Hub]:
    """Point the Hub's client to the double, and let it retry without waiting."""
    with Hub({OLD: FILES | {"old.json": b"{}"}, NEW: FILES}) as served:
        template = served.url + "/{repo_id}/resolve/{revision}/{filename}"
        monkeypatch.setattr(huggingface_hub.constants, "ENDPOINT", served.url)
        monkeypatch.setattr(huggingface_hub.constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)
        monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path / "hf"))
        monkeypatch.setattr(time, "sleep", lambda _: None)
        monkeypatch.delenv("HF_TOKEN", raising=False)
        yield served


@pytest.fixture
def fetch(tmp_path: Path) -> Callable[..., dict[str, Any]]:
    """Fetch a source into a cache; the manifest."""

    def fetched(source: str = f"hf://{REPOSITORY}", **more: Any) -> dict[str, Any]:
        entry = {"key": "m", "name": "M", "source": source, "unverified": "no revision"}
        return models.fetch(msgspec.convert(entry, Model), {}, cache_root=tmp_path / "cache", **more)

    return fetched


def visible(folder: Path) -> list[str]:
    """The files of a snapshot."""
    return sorted(p.relative_to(folder).as_posix() for p in checking.files(folder))


def kept(tmp_path: Path) -> list[str]:
    """List the files in their final place."""
    return [p.name for p in (tmp_path / "cache" / "models" / "hf").iterdir() if not p.name.startswith(".partial-")]


def downloads(hub: Hub) -> list[tuple[str, int]]:
    """List (file, first byte) of each requested download."""
    return [
        (path.partition("/resolve/")[2], start)
        for method, path, start, _ in hub.asked
        if method == "GET" and "/resolve/" in path
    ]


def test_a_snapshot_is_what_a_server_loads_of_the_newest_commit(hub, fetch, tmp_path):
    manifest = fetch()
    found = tmp_path / "cache" / manifest["path"]
    assert manifest["path"] == "models/hf/someone--tiny@None"
    assert visible(found) == SNAPSHOT
    lines = [f"{hashlib.sha256(FILES[name]).hexdigest()}  {name}\n" for name in SNAPSHOT]
    assert manifest["sha256"] == hashlib.sha256("".join(lines).encode()).hexdigest()
    assert manifest["size_bytes"] == sum(len(FILES[name]) for name in SNAPSHOT)
    assert manifest["facts"]["layers"] == 2
    assert manifest["fetch_s"] > 0
    asked = len(hub.asked)
    assert fetch() == manifest
    assert len(hub.asked) == asked


def test_a_file_is_fetched_alone(hub, fetch, tmp_path):
    manifest = fetch(f"hf://{REPOSITORY}/gguf/tiny.gguf")
    found = tmp_path / "cache" / manifest["path"]
    assert (found.name, found.read_bytes()) == ("tiny.gguf", FILES["gguf/tiny.gguf"])
    assert manifest["sha256"] == hashlib.sha256(FILES["gguf/tiny.gguf"]).hexdigest()
    assert downloads(hub) == [(f"{NEW}/gguf/tiny.gguf", 0)]


def test_a_pinned_revision_is_fetched_though_there_is_a_newer_one(hub, fetch, tmp_path):
    manifest = fetch(f"hf://{REPOSITORY}@{OLD}")
    assert visible(tmp_path / "cache" / manifest["path"]) == sorted([*SNAPSHOT, "old.json"])
    assert {path.partition("/")[0] for path, _ in downloads(hub)} == {OLD}


@pytest.mark.parametrize(
    "source", [f"hf://{REPOSITORY}", f"hf://{REPOSITORY}@{NEW}", f"hf://{REPOSITORY}/model[1].safetensors"]
)
def test_a_cut_snapshot_does_not_become_usable_where_the_hub_is_out_of_reach(source, hub, fetch, tmp_path):
    hub.gone = True
    partial = tmp_path / "cache" / "models" / "hf" / f".partial-{hf.parse(source).directory}"
    partial.mkdir(parents=True)
    (partial / "config.json").write_bytes(CONFIG)
    (partial / "model[1].safetensors").write_bytes(WEIGHTS[:1000])
    with pytest.raises(InfrastructureError, match="Server disconnected") as refused:
        fetch(source)
    assert str(refused.value).startswith(f"{source}: ")
    assert kept(tmp_path) == []
    hub.gone = False
    found = tmp_path / "cache" / fetch(source)["path"]
    assert (found if found.is_file() else found / "model[1].safetensors").read_bytes() == WEIGHTS


def test_a_hub_that_goes_away_after_its_list_gives_no_snapshot(hub, fetch, tmp_path):
    hub.gone_after_tree = True
    with pytest.raises(InfrastructureError, match=f"hf://{REPOSITORY}: "):
        fetch()
    assert kept(tmp_path) == []


def test_a_body_that_is_cut_is_continued(hub, fetch, tmp_path, monkeypatch):
    monkeypatch.setattr(huggingface_hub.constants, "DOWNLOAD_CHUNK_SIZE", 1024)
    hub.cuts = 2
    found = tmp_path / "cache" / fetch(f"hf://{REPOSITORY}/gguf/tiny.gguf")["path"]
    assert found.read_bytes() == FILES["gguf/tiny.gguf"]
    half = len(WEIGHTS) // 2
    assert [start for _, start in downloads(hub)] == [0, half, half + half // 2]


def test_a_body_that_is_always_cut_is_one_sentence_and_the_whole_files_are_kept(hub, fetch, tmp_path):
    hub.cuts = 10**6
    with pytest.raises(InfrastructureError, match="peer closed connection without sending complete message") as refused:
        fetch()
    assert "\n" not in str(refused.value)
    assert kept(tmp_path) == []
    hub.cuts, before = 0, len(downloads(hub))
    manifest = fetch()
    assert visible(tmp_path / "cache" / manifest["path"]) == SNAPSHOT
    assert manifest["fetch_s"] is None, "it came in two goes"
    assert f"{NEW}/config.json" not in [path for path, _ in downloads(hub)[before:]]


@pytest.mark.parametrize(
    ("listed", "said"),
    [
        ({"size": 999_999}, r"model\[1\]\.safetensors has 102,400 bytes, expected 999,999; it is cut or another file"),
        (
            {"lfs": {"oid": "c" * 64, "size": len(WEIGHTS), "pointerSize": 134}},
            f"has sha256 {hashlib.sha256(WEIGHTS).hexdigest()}, expected {'c' * 64}; it is another file",
        ),
    ],
)
@pytest.mark.parametrize("source", [f"hf://{REPOSITORY}@{NEW}", f"hf://{REPOSITORY}/model[1].safetensors"])
def test_a_file_that_is_not_as_listed_is_refused_with_both_values(source, listed, said, hub, fetch, tmp_path):
    hub.listed = {"model[1].safetensors": listed}
    with pytest.raises(InfrastructureError, match=said):
        fetch(source)
    assert kept(tmp_path) == []
    hub.listed, before = {}, len(downloads(hub))
    fetch(source)
    assert [path for path, _ in downloads(hub)[before:]] == [f"{NEW}/model[1].safetensors"]


def test_what_an_earlier_commit_left_is_not_part_of_a_snapshot(hub, fetch, tmp_path):
    partial = tmp_path / "cache" / "models" / "hf" / ".partial-someone--tiny@None"
    partial.mkdir(parents=True)
    (partial / "old.json").write_bytes(b"{}")
    assert visible(tmp_path / "cache" / fetch()["path"]) == SNAPSHOT


def test_a_file_or_a_revision_that_is_not_there_says_so(hub, fetch):
    with pytest.raises(InfrastructureError, match=rf"commit {NEW} does not have the file other\.gguf"):
        fetch(f"hf://{REPOSITORY}/other.gguf")
    with pytest.raises(InfrastructureError, match=f"hf://{REPOSITORY}@{'c' * 40}: 404"):
        fetch(f"hf://{REPOSITORY}@{'c' * 40}")
    hub.commits = {NEW: {"pytorch_model.bin": b""}}
    with pytest.raises(InfrastructureError, match=f"commit {NEW} does not have files that a server loads"):
        fetch()


def test_a_repository_whose_configuration_tells_no_model_is_one_sentence(hub, fetch):
    hub.commits = {NEW: FILES | {"config.json": b"{}"}}
    with pytest.raises(InfrastructureError, match=r"models\.m: .*is not a whole model \(KeyError"):
        fetch()


def test_the_token_comes_from_the_environment_alone_and_is_never_told(hub, fetch, tmp_path, monkeypatch):
    hub.token, said = "hf_secret", []
    (tmp_path / "token").write_text("hf_secret")
    monkeypatch.setattr(huggingface_hub.constants, "HF_TOKEN_PATH", str(tmp_path / "token"))
    with pytest.raises(InfrastructureError, match="a gated model needs HF_TOKEN in the environment"):
        fetch()
    assert {token for *_, token in hub.asked} == {None}
    monkeypatch.setenv("HF_TOKEN", "hf_secret\n")
    with pytest.raises(InfrastructureError, match="HF_TOKEN holds no key") as refused:
        fetch()
    assert "hf_secret" not in str(refused.value)
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    manifest = fetch(progress=said.append)
    assert "hf_secret" in {token for *_, token in hub.asked}
    assert said and "hf_secret" not in json.dumps([manifest, said])
    texts = [p.read_text() for p in (tmp_path / "cache").rglob("*.json")]
    assert texts and not any("hf_secret" in text for text in texts)


def test_the_verb_ends_with_one_line(hub, tmp_path, monkeypatch, capsys):
    hub.gone = True
    monkeypatch.setenv("SERVEBENCH_CACHE", str(tmp_path / "cache"))
    known = json.dumps({"m": {"key": "m", "name": "M", "source": f"hf://{REPOSITORY}", "unverified": "no revision"}})
    with pytest.raises(SystemExit) as end:
        cli.main(["fetch", "m", "--models", known, "--runtime", "{}", "--out", str(tmp_path / "m.json")])
    assert end.value.code == 1
    assert capsys.readouterr().err.splitlines()[-1].startswith(f"servebench: hf://{REPOSITORY}: ")
    assert not (tmp_path / "m.json").exists()


def test_kv_cache_of_a_repository_reads_its_config(hub, monkeypatch):
    assert kv_cache.of(f"hf://{REPOSITORY}@{OLD}").all_layers == 2
    with monkeypatch.context() as patch, pytest.raises(InfrastructureError, match=f"^hf://{REPOSITORY}: HF_TOKEN "):
        patch.setenv("HF_TOKEN", "two lines\n")
        kv_cache.of(f"hf://{REPOSITORY}")
    hub.gone = True
    with pytest.raises(InfrastructureError, match=f"hf://{REPOSITORY}@{NEW}: "):
        kv_cache.of(f"hf://{REPOSITORY}@{NEW}")
