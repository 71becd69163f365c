"""`servebench verify` reads everything that is kept, and names what is wrong and what to do about it."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

import synthetic
from servebench import configuration, plan
from servebench.cli import verify
from servebench.models import checking
from servebench.outlook import inventory
from servebench.plan.layout import Layout
from servebench.store import measurements, replies
from servebench.store.parquet import Damaged

MODEL = b"a model's bytes" * 100


class Kept:
    """An experiment of one setting and two numbers of users, with all that a run keeps."""

    def __init__(self, folder: Path) -> None:
        cache = folder / "cache"
        sha256 = hashlib.sha256(MODEL).hexdigest()
        config = {
            "experiment": "kept",
            "rounds": 1,
            "engines": {"e": {"kind": "llama-server", "runtime": "binary", "binary": "llama-server"}},
            "models": {"m": {"source": "file:///nowhere.gguf", "sha256": sha256}},
            "workload": {"prompts": "en-short", "max_tokens": 4, "warmup_s": 1, "window_s": 60},
            "settings": {"s": {"engine": "e", "model": "m", "slots": 1, "context": 512, "users": [1, 2]}},
            "runtime": {"cache": str(cache)},
        }
        self.plan, self.results = configuration.load(config, ["config.yaml"]), folder / "results"
        self.folder = self.results / "kept"
        self.layout = Layout(self.folder)
        self.model = cache / "models" / sha256 / "m.gguf"
        self.model.parent.mkdir(parents=True)
        self.model.write_bytes(MODEL)
        checking.accept(self.model, checking.Wanted(sha256))
        manifest = {"sha256": sha256, "path": str(self.model.relative_to(cache)), "key": "m", "name": "m"}
        self.layout.model("m").parent.mkdir(parents=True)
        self.layout.model("m").write_text(json.dumps({**manifest, "size_bytes": len(MODEL)}))
        self.layout.plan.write_text(plan.canonical(plan.reported(self.plan)))
        (session,) = self.plan.sessions()
        store = measurements.Store(self.folder)
        self.stored, self.links = [], []
        for users in (1, 2):
            stored = inventory.stored_path(self.plan, self.folder, session, users)
            made = synthetic.record(
                synthetic.setting_of("llama-np4", "main", (1, 2)), 0, users, 1, synthetic.UNPUBLISHED
            )
            measurements.write(synthetic.changed(made, identity={"digest": stored.stem}), stored)
            link = self.layout.measurement(session.setting, 1, users)
            store.link(stored.stem, link)
            self.stored.append(stored)
            self.links.append(link)
        self.replies = self.layout.replies("d" * 20)
        file = replies.AnswerFile(self.replies)
        file.append(replies.Reply(repeat=1, question_id="q", session_id="s", text="Paris", latency_s=1.0))
        file.close()

    def wrong(self) -> list[str]:
        lines, count = verify.report(self.plan, self.results)
        assert len(lines) == count + 1
        return lines[:-1]


@pytest.fixture
def kept(tmp_path: Path) -> Kept:
    return Kept(tmp_path)


def flip(path: Path, byte: int) -> None:
    """Change one bit of a file and neither its size nor its time."""
    content, times = bytearray(path.read_bytes()), path.stat()
    content[byte] ^= 1
    with path.open("r+b") as file:  # in place: a hard link sees it, too
        file.write(content)
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))


def detached(path: Path) -> None:
    """Make the file one of its own, as on a disk without hard links."""
    content = path.read_bytes()
    path.unlink()
    path.write_bytes(content)


def test_what_is_whole_is_read_and_counted(kept: Kept) -> None:
    lines, count = verify.report(kept.plan, kept.results)
    assert (lines, count) == (["read: 2 measurements, 0 discarded measurements, 1 replies, 1 models; wrong: 0"], 0)


@pytest.mark.outcome(
    "damage to a stored measurement",
    "damage to a link",
    "damage to a missing link",
    "damage to a reply",
    "damage to the plan",
    "damage to a model file",
    "damage to a missing model",
    "damage to a manifest",
    at="servebench verify",
    into="files",
    kept="all",
    again="as it says",
    reads="the file's name and what to do",
    code="1",
)
@pytest.mark.parametrize(
    ("harm", "said"),
    [
        (lambda k: flip(k.stored[0], 5000), ["damaged: {0}: is damaged"]),
        (lambda k: (detached(k.links[0]), flip(k.links[0], 5000)), ["differs: {link}"]),
        (lambda k: k.links[0].unlink(), ["no link: {link}: the next run links it again: snakemake"]),
        (lambda k: k.stored[0].unlink(), ["not in the store: {link}: is the only copy"]),
        (lambda k: (k.stored[0].unlink(), flip(k.links[0], 5000)), ["damaged: {link}: is damaged"]),
        (lambda k: k.links[0].write_bytes(b""), ["differs: {link}", "damaged: {0}"]),
        (lambda k: flip(k.replies, 20), ["damaged: {replies}:1: "]),
        (lambda k: k.layout.plan.write_text("{}"), ["damaged: {plan}: is not a saved plan"]),
        (lambda k: flip(k.model, 700), ["altered: models.m: {model} has sha256 "]),
        (lambda k: k.model.unlink(), ["altered: models.m: {model} is gone"]),
        (lambda k: k.layout.model("m").write_text("5"), ["damaged: {manifest}: is not of models.m"]),
        (lambda k: (k.stored[0].parent / ".writing-x").touch(), ["left by a killed job: "]),
        (lambda k: k.stored[1].rename(k.stored[1].with_stem("x")), ["misplaced: "]),
    ],
)
def test_what_is_wrong_is_named_with_what_to_do(kept: Kept, harm: Callable[[Kept], object], said: list[str]) -> None:
    detached(kept.links[0]) if "differs" in "".join(said) else None
    harm(kept)
    paths = {"link": kept.links[0], "replies": kept.replies, "plan": kept.layout.plan, "model": kept.model}
    wanted = [text.format(kept.stored[0], manifest=kept.layout.model("m"), **paths) for text in said]
    found = kept.wrong()
    assert any(line.startswith(wanted[0]) for line in found), found
    assert len(found) == 1 or "damaged" in said[-1], found


def test_the_remedy_for_a_lost_file_of_the_store_works(kept: Kept) -> None:
    kept.stored[0].unlink()
    (line,) = kept.wrong()
    subprocess.run(line.partition("keep it: ")[2], shell=True, check=True)
    assert kept.wrong() == []


PLACE = {"run": "main", "setting": "s", "round": 1, "users": 1}


def damage_of(path: Path) -> Damaged:
    with pytest.raises(Damaged) as damage:
        measurements.read(path)
    return damage.value


def test_a_damaged_link_of_a_whole_measurement_is_made_again(kept: Kept) -> None:
    detached(kept.links[0])
    flip(kept.links[0], 5000)
    measurements.Store(kept.folder).mend(kept.stored[0].stem, PLACE, damage_of(kept.links[0]))
    assert kept.links[0].samefile(kept.stored[0])
    assert kept.wrong() == []


def test_a_damaged_measurement_is_kept_aside_and_wanted_again(kept: Kept) -> None:
    flip(kept.stored[0], 5000)
    store = measurements.Store(kept.folder)
    with pytest.raises(Damaged, match=r"is kept as .*-1\.parquet, and the next run measures it again"):
        store.mend(kept.stored[0].stem, PLACE, damage_of(kept.links[0]))
    assert (kept.stored[0].exists(), kept.links[0].exists(), kept.stored[1].exists()) == (False, False, True)
    (thrown,) = store.discarded()
    assert (thrown.place, thrown.why.startswith("damaged: ")) == (PLACE, True)
    missing = [users for _, users in inventory.missing(kept.plan, kept.folder)]
    assert missing == [[1]]
