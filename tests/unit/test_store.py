"""The store keeps what was measured: bit for bit, once, and even when it is thrown out."""

import pyarrow as pa
import pytest

from servebench import store
from servebench.load.records import CHUNKS_SCHEMA, REQUESTS_SCHEMA


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
    return store.Record(
        identity={"run": "main", "setting": "np4", "round": 1, "users": users},
        status=status,
        reason=None,
        requests=requests_table(counts),
        chunks=pa.Table.from_pylist(chunks, schema=CHUNKS_SCHEMA),
        meta={"window_start_ns": 1},
        telemetry={"time_ns": [1, 2]},
        session={"session_id": "s"},
        provenance={},
    )


@pytest.mark.parametrize("counts", [{}, {7: 0}, {3: 2, 1: 0, 2: 3}])
def test_what_is_written_is_read(tmp_path, counts):
    written = record(counts)
    store.write(written, tmp_path / "a.parquet")
    read = store.read(tmp_path / "a.parquet")
    assert read.requests.equals(written.requests)
    assert sorted(read.chunks.to_pylist(), key=str) == sorted(written.chunks.to_pylist(), key=str)
    assert (read.identity, read.meta, read.telemetry) == (written.identity, written.meta, written.telemetry)


def test_nothing_is_overwritten(tmp_path):
    store.write(record({1: 2}), tmp_path / "a.parquet")
    with pytest.raises(store.StoreError, match="discard it first"):
        store.write(record({1: 3}), tmp_path / "a.parquet")
    assert len(store.read(tmp_path / "a.parquet").chunks) == 2
    assert [p.name for p in tmp_path.iterdir()] == ["a.parquet"]


def test_a_measurement_outlives_its_link_and_a_discard_is_on_record(tmp_path):
    kept = store.Store(tmp_path)
    store.write(record({1: 2}), kept.path("d1"))
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
    assert len(thrown.record.chunks) == 2

    store.write(record({1: 5}), kept.path("d1"))
    kept.discard("d1", "again")
    assert [d.why for d in kept.discarded()] == ["somebody else used the machine", "again"]


def test_a_damaged_file_is_named(tmp_path):
    store.write(record({1: 2}), tmp_path / "a.parquet")
    content = (tmp_path / "a.parquet").read_bytes()
    (tmp_path / "cut.parquet").write_bytes(content[:-20])
    with pytest.raises(store.StoreError, match=r"cut\.parquet: is not a readable measurement"):
        store.read(tmp_path / "cut.parquet")
