"""Raw measurements on disk: one Parquet file each, named by what determines it, never overwritten, discarded.

`results/<experiment>/store/<digest>.parquet` is the measurement; the files under `measurements/` Snakemake sees are
hard links to it. Whatever happens to a job, a finished measurement stays; a session that runs again links what is there
and measures only what is missing.

A file's rows are its requests (`load.records.REQUESTS_SCHEMA`) with the chunks of each as two list columns; all else
(identity, status, clocks, telemetry, what the server's log tells, session, provenance) is JSON in the file's
`servebench` metadata.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from servebench.faults import Fault
from servebench.load.records import CHUNKS_SCHEMA, check_chunks, check_requests

METADATA_KEY = b"servebench"
LIST_COLUMNS = {"chunk_arrival_ns": "arrival_ns", "chunk_tokens": "tokens"}


class StoreError(Fault):
    """A record that cannot be read or written; names the file and what to do."""


@dataclass(frozen=True, kw_only=True)
class Record:
    """One measurement as kept. `requests` and `chunks` are empty when `status` is "failed"; `reason` then says why.

    `served`: the requests as llama-server's log tells them (`engines.llama_log.Request`), by column, with its numbers
    of them and not ours; {} where the server wrote none.
    """

    identity: dict[str, Any]
    status: str
    reason: str | None
    requests: pa.Table
    chunks: pa.Table
    meta: dict[str, Any] | None
    telemetry: dict[str, list[Any]]
    served: dict[str, list[Any]] = field(default_factory=dict)
    session: dict[str, Any]
    provenance: dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Discarded:
    """A measurement that was thrown out: the record, why, and when (ISO 8601 UTC)."""

    record: Record
    why: str
    discarded_at: str


def write(record: Record, path: Path) -> None:
    """Write `record` to `path` in one step; refuses to replace an existing file."""
    if record.status not in ("ok", "failed"):
        raise StoreError(f"{path}: status: {record.status!r} is neither ok nor failed")
    table = _with_chunks(check_requests(record.requests), check_chunks(record.chunks, record.requests))
    rest = {
        "identity": record.identity,
        "status": record.status,
        "reason": record.reason,
        "meta": record.meta,
        "telemetry": record.telemetry,
        "served": record.served,
        "session": record.session,
        "provenance": record.provenance,
    }
    text = json.dumps(rest, ensure_ascii=False, allow_nan=False)
    table = table.replace_schema_metadata({METADATA_KEY: text.encode()})
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(prefix=".writing-", dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            pq.write_table(table, file, compression="zstd", use_dictionary=False)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(temporary, 0o644)  # noqa: PTH101
        _link_new(Path(temporary), path)
    finally:
        Path(temporary).unlink(missing_ok=True)


def read(path: Path) -> Record:
    """The record in `path`; raises `StoreError` when it is no such file or is damaged."""
    try:
        table = pq.read_table(path)
        rest = json.loads(table.schema.metadata[METADATA_KEY])
    except (OSError, pa.ArrowException, KeyError, TypeError, ValueError) as error:
        raise StoreError(f"{path}: is not a readable measurement ({error}); discard it and measure again") from error
    requests, chunks = _without_chunks(table)
    return Record(requests=check_requests(requests), chunks=check_chunks(chunks, requests), **rest)


def read_metadata(path: Path) -> dict[str, Any]:
    """Identity, status, reason, session and provenance of the record in `path`, without its rows."""
    try:
        return dict(json.loads(pq.read_schema(path).metadata[METADATA_KEY]))
    except (OSError, pa.ArrowException, KeyError, TypeError, ValueError) as error:
        raise StoreError(f"{path}: is not a readable measurement ({error}); discard it and measure again") from error


class Store:
    """The measurements of one experiment under `results/<experiment>`."""

    def __init__(self, experiment_dir: Path) -> None:
        self.root = experiment_dir / "store"
        self.measurements = experiment_dir / "measurements"

    def path(self, digest: str) -> Path:
        """Where the measurement named `digest` is or will be."""
        return self.root / f"{digest}.parquet"

    def status(self, digest: str) -> str | None:
        """ "ok" or "failed" when the measurement is there, None when it is not."""
        path = self.path(digest)
        return str(read_metadata(path)["status"]) if path.exists() else None

    def link(self, digest: str, output: Path) -> None:
        """Make `output` the measurement named `digest`, as new as now, so that Snakemake takes it as just made."""
        output.parent.mkdir(parents=True, exist_ok=True)
        output.unlink(missing_ok=True)
        _link_new(self.path(digest), output)
        os.utime(output)

    def discard(self, digest: str, why: str) -> Path:
        """Throw a measurement out: it moves to store/discarded with its reason, and its links are removed."""
        path = self.path(digest)
        identity = read_metadata(path)["identity"]
        folder = self.root / "discarded"
        folder.mkdir(parents=True, exist_ok=True)
        number = len(list(folder.glob(f"{digest}-*.json"))) + 1
        kept = folder / f"{digest}-{number}.parquet"
        note = {"why": why, "discarded_at": datetime.now(UTC).isoformat(timespec="milliseconds")}
        kept.with_suffix(".json").write_text(json.dumps(note, ensure_ascii=False), encoding="utf-8")
        path.rename(kept)
        self.output(identity).unlink(missing_ok=True)
        return kept

    def output(self, identity: dict[str, Any]) -> Path:
        """The file under measurements/ that stands for a record of this identity."""
        folder = self.measurements.joinpath(identity["run"], identity["setting"], f"round{identity['round']}")
        return folder / f"users{identity['users']:03d}.parquet"

    def discarded(self) -> Iterator[Discarded]:
        """All discarded measurements, oldest first."""
        notes = [(json.loads(p.read_text(encoding="utf-8")), p) for p in (self.root / "discarded").glob("*.json")]
        for note, path in sorted(notes, key=lambda pair: (pair[0]["discarded_at"], pair[1])):
            yield Discarded(record=read(path.with_suffix(".parquet")), **note)


def _link_new(source: Path, target: Path) -> None:
    """Hard link, or a copy on file systems that have none; fails when `target` exists."""
    try:
        os.link(source, target)
    except FileExistsError:
        raise StoreError(f"{target}: exists; a measurement is never overwritten, discard it first") from None
    except OSError:
        if target.exists():
            raise StoreError(f"{target}: exists; a measurement is never overwritten, discard it first") from None
        shutil.copyfile(source, target)


def _with_chunks(requests: pa.Table, chunks: pa.Table) -> pa.Table:
    """Requests with the chunks of each as list columns, in their order."""
    ids, owners = requests["request_id"].to_numpy(), chunks["request_id"].to_numpy()
    by_owner = np.argsort(owners, kind="stable")
    first = np.searchsorted(owners, ids, "left", sorter=by_owner)
    counts = np.searchsorted(owners, ids, "right", sorter=by_owner) - first
    offsets = np.concatenate([[0], np.cumsum(counts)])
    place = np.repeat(first - offsets[:-1], counts) + np.arange(offsets[-1])
    chunks = chunks.take(pa.array(by_owner[place]))
    for name, column in LIST_COLUMNS.items():
        values = pa.array(chunks[column].to_numpy(), CHUNKS_SCHEMA.field(column).type)
        requests = requests.append_column(name, pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), values))
    return requests


def _without_chunks(table: pa.Table) -> tuple[pa.Table, pa.Table]:
    """The inverse of `_with_chunks`."""
    table = table.replace_schema_metadata(None)
    lists = {column: table[name].combine_chunks() for name, column in LIST_COLUMNS.items()}
    counts = lists["tokens"].value_lengths().to_numpy(zero_copy_only=False)
    owners = np.repeat(table["request_id"].to_numpy(), counts)
    columns = [pa.array(owners), *(values.flatten() for values in lists.values())]
    return table.drop_columns(list(LIST_COLUMNS)), pa.table(columns, schema=CHUNKS_SCHEMA)
