"""The store keeps what was measured: bit for bit, once, and even when it is thrown out."""

import errno
import fcntl
import os
import time
from pathlib import Path

import pyarrow as pa
import pytest
from msgspec.structs import replace

import synthetic
from servebench.load.records import CHUNKS_SCHEMA, REQUESTS_SCHEMA
from servebench.store import measurements


def requests_table(counts):
    rows = [
        {
            "request_id": number,
            "user": 0,
            "process": 0,
            "prompt_id": f"p{number}",
            "phase": "window",
            "scheduled_ns": number,
            "sent_ns": number + 1,
            "status": "ok" if count else "timeout",
            "resent": False,
            "completion_tokens": 2 * count if count else None,
            "tokens_from": "usage" if count else None,
            "chunks": count,
            "done": True,
            "reasoning_chars": 0,
        }
        for number, count in counts.items()
    ]
    return pa.Table.from_pylist(rows, schema=REQUESTS_SCHEMA)


def record(counts, status="ok", users=4):
    chunks = [
        {"request_id": number, "arrival_ns": 1000 * k + number, "tokens": 2}
        for number, count in reversed(counts.items())
        for k in range(count)
    ]
    return synthetic.changed(
        synthetic.record(synthetic.setting_of("llama-np4", "main", (users,)), 0, users, 1, synthetic.UNPUBLISHED),
        identity={"setting": "np4"},
        status=status,
        requests=requests_table(counts),
        chunks=pa.Table.from_pylist(chunks, schema=CHUNKS_SCHEMA),
    )


@pytest.mark.parametrize("counts", [{}, {7: 0}, {3: 2, 1: 0, 2: 3}])
def test_what_is_written_is_read(tmp_path, counts):
    written = record(counts)
    measurements.write(written, tmp_path / "a.parquet")
    read = measurements.read(tmp_path / "a.parquet")
    assert read.requests.equals(written.requests)
    assert sorted(read.chunks.to_pylist(), key=str) == sorted(written.chunks.to_pylist(), key=str)
    empty = {"requests": None, "chunks": None}
    assert replace(read, **empty) == replace(written, **empty)


def test_nothing_is_overwritten(tmp_path):
    measurements.write(record({1: 2}), tmp_path / "a.parquet")
    with pytest.raises(measurements.StoreError, match="discard it first"):
        measurements.write(record({1: 3}), tmp_path / "a.parquet")
    assert len(measurements.read(tmp_path / "a.parquet").chunks) == 2
    assert [p.name for p in tmp_path.iterdir()] == ["a.parquet"]


def test_a_measurement_outlives_its_link_and_a_discard_is_on_record(tmp_path):
    kept = measurements.Store(tmp_path)
    measurements.write(record({1: 2}), kept.path("d1"))
    output = tmp_path / "measurements/main/np4/round1/users004.parquet"
    kept.link("d1", output)
    output.unlink()  # what Snakemake does to the outputs of a failed job
    assert kept.status("d1") == "ok"
    kept.link("d1", output)

    kept.discard("d1", "somebody else used the machine")
    assert not output.exists()
    assert kept.status("d1") is None
    (thrown,) = kept.discarded()
    assert thrown.why == "somebody else used the machine"
    assert thrown.place == {"run": "main", "setting": "np4", "round": 1, "users": 4}
    assert len(measurements.read(thrown.file).chunks) == 2

    measurements.write(record({1: 5}), kept.path("d1"))
    kept.discard("d1", "again")
    assert [d.why for d in kept.discarded()] == ["somebody else used the machine", "again"]


@pytest.fixture
def linked(tmp_path):
    """The store with d1 and d2, of which d2 is linked; the link."""
    kept = measurements.Store(tmp_path)
    output = tmp_path / "measurements/main/np4/round1/users004.parquet"
    for digest, chunks in (("d1", 2), ("d2", 5)):
        made = record({1: chunks})
        made = replace(made, identity=replace(made.identity, digest=digest))
        measurements.write(made, kept.path(digest))
    kept.link("d1", output)
    kept.link("d2", output)
    assert list(kept.discarded()) == [], "the store has both"
    return kept, output


@pytest.mark.outcome(
    "the store's file of a measurement is gone or damaged, its link whole",
    at="linking another",
    into="files",
    kept="it: the link's copy enters the store again",
    again="nothing",
    reads="–",
    code="0",
)
@pytest.mark.parametrize("harm", ["lost", "damaged"])
def test_a_measurement_that_only_its_link_holds_enters_the_store_again_when_another_takes_its_place(linked, harm):
    kept, output = linked
    whole = output.read_bytes()
    kept.path("d2").unlink()
    if harm == "damaged":
        kept.path("d2").write_bytes(whole[:-9])
    kept.link("d1", output)
    assert kept.path("d2").read_bytes() == whole
    assert [one.file.read_bytes() for one in kept.discarded()] == ([whole[:-9]] if harm == "damaged" else [])
    assert output.samefile(kept.path("d1"))


def test_only_links_that_are_the_last_copy_are_put_back(linked):
    kept, output = linked
    assert list(kept.restored()) == []
    whole = output.read_bytes()
    kept.path("d2").unlink()
    output.write_bytes(whole[:-9])
    assert list(kept.restored()) == [], "it is damaged"
    output.write_bytes(whole)
    assert list(kept.restored()) == [output]
    assert kept.path("d2").samefile(output)


def test_a_damaged_link_whose_measurement_the_store_has_lost_gives_way(linked):
    kept, output = linked
    kept.path("d2").unlink()
    whole = output.read_bytes()
    output.write_bytes(whole[:100] + b"#" + whole[101:])  # its metadata, at the end, can be read
    assert measurements.read_metadata(output).identity.digest == "d2"
    kept.link("d1", output)
    assert output.samefile(kept.path("d1"))


def test_two_whole_measurements_of_the_same_are_both_kept(linked):
    kept, output = linked
    whole = kept.path("d2").read_bytes()
    kept.path("d2").unlink()
    made = record({1: 7})
    measurements.write(replace(made, identity=replace(made.identity, digest="d2")), kept.path("d2"))
    kept.link("d2", output)
    (thrown,) = kept.discarded()
    assert (thrown.file.read_bytes(), thrown.why) == (whole, measurements.ONLY_COPY)
    assert output.samefile(kept.path("d2"))


def test_a_discard_that_was_killed_half_way_has_not_happened(tmp_path, monkeypatch):
    kept = measurements.Store(tmp_path)
    measurements.write(record({1: 2}), kept.path("d1"))
    output = tmp_path / "measurements/main/np4/round1/users004.parquet"
    kept.link("d1", output)
    rename = Path.rename

    def killed(self, target):
        if self == kept.path("d1"):
            raise KeyboardInterrupt  # what is done until then stays, as when it is killed
        return rename(self, target)

    with monkeypatch.context() as stopped:
        stopped.setattr(Path, "rename", killed)
        with pytest.raises(KeyboardInterrupt):
            kept.discard("d1", "a backup ran")
    assert list(kept.discarded()) == []
    assert kept.status("d1") == "ok"
    kept.discard("d1", "a backup ran")
    assert [thrown.why for thrown in kept.discarded()] == ["a backup ran"]
    assert (kept.status("d1"), output.exists()) == (None, False)


def test_a_discard_leaves_no_link_behind_wherever_it_is_killed(tmp_path, monkeypatch):
    kept = measurements.Store(tmp_path)
    measurements.write(record({1: 2}), kept.path("d1"))
    output = tmp_path / "measurements/main/np4/round1/users004.parquet"
    kept.link("d1", output)
    rename, linked = Path.rename, []
    monkeypatch.setattr(Path, "rename", lambda self, target: linked.append(output.exists()) or rename(self, target))
    kept.discard("d1", "a backup ran")
    assert linked == [True, False]  # at the note, and when it goes


def test_a_discarded_file_is_told_of_even_when_damaged(tmp_path):
    kept = measurements.Store(tmp_path)
    place = {"run": "main", "setting": "np4", "round": 1, "users": 4}
    kept.path("d1").parent.mkdir(parents=True)
    kept.path("d1").write_bytes(b"cut")
    file = kept.discard("d1", "damaged", place)
    (thrown,) = kept.discarded()
    assert (thrown.place, thrown.metadata, thrown.file) == (place, None, file)
    assert file.read_bytes() == b"cut"


@pytest.mark.parametrize("kept_of_note", [lambda text: text[:20], lambda text: b"{}"], ids=["cut", "empty"])
def test_a_note_that_is_cut_is_named_and_what_it_stood_for_stays_when_it_is_removed(tmp_path, kept_of_note):
    kept = measurements.Store(tmp_path)
    for _ in range(2):
        measurements.write(record({1: 2}), kept.path("d1"))
        kept.discard("d1", "a backup ran")
    note = tmp_path / "store/discarded/d1-1.json"
    note.write_bytes(kept_of_note(note.read_bytes()))
    with pytest.raises(measurements.StoreError, match=f"^{note}: .*remove it$"):
        list(kept.discarded())
    note.unlink()
    measurements.write(record({1: 5}), kept.path("d1"))
    assert kept.discard("d1", "another").name == "d1-3.parquet"
    kept_files = (tmp_path / "store" / "discarded" / f"d1-{n}.parquet" for n in (1, 2, 3))
    assert [len(measurements.read(file).chunks) for file in kept_files] == [2, 2, 5]


def test_without_hard_links_a_copy_is_whole_or_not_there(tmp_path, monkeypatch):
    def no_links(source, target):
        raise OSError(errno.EPERM, "Operation not permitted")

    def cut(source, target):
        Path(target).write_bytes(Path(source).read_bytes()[:100])
        raise KeyboardInterrupt  # what is written until then stays, as when it is killed

    monkeypatch.setattr(measurements.os, "link", no_links)
    kept = measurements.Store(tmp_path)
    with monkeypatch.context() as stopped:
        stopped.setattr(measurements.shutil, "copyfile", cut)
        with pytest.raises(KeyboardInterrupt):
            measurements.write(record({1: 2}), kept.path("d1"))
    assert kept.status("d1") is None
    measurements.write(record({1: 2}), kept.path("d1"))
    output = tmp_path / "measurements/main/np4/round1/users004.parquet"
    kept.link("d1", output)
    assert output.read_bytes() == kept.path("d1").read_bytes()
    assert output.stat().st_mode & 0o777 == 0o644
    with pytest.raises(measurements.StoreError, match="discard it first"):
        measurements.write(record({1: 3}), kept.path("d1"))
    assert [p.name for p in output.parent.iterdir()] == [output.name]


@pytest.mark.outcome(
    "a job is killed while it writes into the store",
    at="the next session",
    into="files",
    kept="all; the unfinished file is removed",
    again="what is missing",
    reads="nothing",
    code="0",
)
def test_what_killed_jobs_left_unfinished_is_removed_and_what_living_ones_write_is_not(tmp_path):
    kept = measurements.Store(tmp_path)
    measurements.write(record({1: 2}), kept.path("d1"))
    kept.discard("d1", "for the test")
    measurements.write(record({1: 2}), kept.path("d1"))
    hour_ago = time.time() - 3600
    places = (kept.path("d1").parent, kept.path("d1").parent / "discarded", tmp_path / "measurements" / "main")
    places[-1].mkdir(parents=True)
    left = [folder / ".writing-left" for folder in places]
    held, begun = places[0] / ".writing-held", places[0] / ".writing-begun"
    for path in (*left, held, begun):
        path.write_bytes(b"PAR1")
        if path != begun:
            os.utime(path, (hour_ago, hour_ago))
    before = {path for path in tmp_path.rglob("*") if path not in left}
    with held.open("rb") as writer:
        fcntl.flock(writer, fcntl.LOCK_EX)
        kept.sweep()
        assert set(tmp_path.rglob("*")) == before
    kept.sweep()
    assert set(tmp_path.rglob("*")) == before - {held}


def test_a_file_is_locked_while_it_is_written(tmp_path, monkeypatch):
    kept, found = measurements.Store(tmp_path), []

    def sync(descriptor):
        (path,) = tmp_path.rglob(f"{measurements.UNFINISHED}*")
        os.utime(path, (0, 0))
        kept.sweep()
        found.append(path.exists())

    monkeypatch.setattr(measurements.os, "fsync", sync)
    measurements.write(record({1: 2}), kept.path("d1"))
    assert found == [True] and kept.status("d1") == "ok"


def test_a_damaged_file_is_named(tmp_path):
    measurements.write(record({1: 2}), tmp_path / "a.parquet")
    content = (tmp_path / "a.parquet").read_bytes()
    (tmp_path / "cut.parquet").write_bytes(content[:-20])
    with pytest.raises(measurements.StoreError, match=r"cut\.parquet: is damaged"):
        measurements.read(tmp_path / "cut.parquet")
