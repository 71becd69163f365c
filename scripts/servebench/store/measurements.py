"""Raw measurements on disk: one Parquet file each, named by what determines it, never overwritten, discarded.

`results/<experiment>/store/<digest>.parquet` is the measurement; the files under `measurements/` Snakemake sees are
hard links to it. Whatever happens to a job, a finished measurement stays; a session that runs again links what is there
and measures only what is missing.

A file's rows are its requests (`load.records.REQUESTS_SCHEMA`) with the chunks of each as two list columns; all else
(identity, status, clocks, telemetry, what the server's log tells, session, provenance) is JSON in the file's
`servebench` metadata.
"""

from __future__ import annotations

import itertools
import json
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from servebench.faults import Fault
from servebench.load.records import CHUNKS_SCHEMA, check_chunks, check_requests
from servebench.plan.layout import PLACE, Layout

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
    """A measurement that was thrown out: its file, which it was (PLACE), why, and when (ISO 8601 UTC).

    `metadata`: as `read_metadata`; {} where the file is damaged.
    """

    file: Path
    place: dict[str, Any]
    why: str
    discarded_at: str
    metadata: dict[str, Any]


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
    with _beside(path) as temporary:
        with temporary.open("wb") as file:
            pq.write_table(table, file, compression="zstd", use_dictionary=False)
            file.flush()
            os.fsync(file.fileno())
        _link_new(temporary, path)


def read(path: Path) -> Record:
    """The record in `path`; raises `StoreError` when it is no such file or is damaged."""
    try:
        table = pq.read_table(path)
        rest = json.loads(table.schema.metadata[METADATA_KEY])
    except (OSError, pa.ArrowException, KeyError, TypeError, ValueError) as error:
        raise StoreError(f"{path}: is not a readable measurement ({error}); discard it and measure again") from error
    requests, chunks = _without_chunks(table)
    requests = check_requests(requests)
    return Record(requests=requests, chunks=check_chunks(chunks, requests), **rest)


def read_metadata(path: Path) -> dict[str, Any]:
    """Identity, status, reason, session and provenance of the record in `path`, without its rows."""
    try:
        return dict(json.loads(pq.read_schema(path).metadata[METADATA_KEY]))
    except (OSError, pa.ArrowException, KeyError, TypeError, ValueError) as error:
        raise StoreError(f"{path}: is not a readable measurement ({error}); discard it and measure again") from error


class Store:
    """The measurements of one experiment under `results/<experiment>`."""

    def __init__(self, experiment_dir: Path) -> None:
        self._layout = Layout(experiment_dir)

    def path(self, digest: str) -> Path:
        """Where the measurement named `digest` is or will be."""
        return self._layout.stored(digest)

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

    def discard(self, digest: str, why: str, place: Mapping[str, Any] | None = None) -> Path:
        """Throw a measurement out: it moves to store/discarded with its reason, and its link is removed.

        `place` (PLACE) is for a damaged file, which cannot say which measurement it is.
        """
        path = self.path(digest)
        place = place or read_metadata(path)["identity"]
        output = self._layout.measurement_at(place)
        kept = self._noted(digest, why, place)
        if path.exists():
            output.unlink(missing_ok=True)
        (path if path.exists() else output).rename(kept)
        return kept

    def write_discarded(self, record: Record, why: str) -> None:
        """Keep a measurement that was never to count, with its reason; it has not been in the store as a good one."""
        write(record, self._noted(record.identity["digest"], why, record.identity))

    def _noted(self, digest: str, why: str, place: Mapping[str, Any]) -> Path:
        """Write why something is discarded; where it is to go. The note means nothing before it is there."""
        folder = self._layout.discarded
        folder.mkdir(parents=True, exist_ok=True)
        number = next(n for n in itertools.count(1) if not list(folder.glob(f"{digest}-{n}.*")))
        kept = folder / f"{digest}-{number}.parquet"
        at = datetime.now(UTC).isoformat(timespec="milliseconds")
        note = {"why": why, "discarded_at": at, "place": {name: place[name] for name in PLACE}}
        with _beside(kept) as temporary:
            temporary.write_text(json.dumps(note, ensure_ascii=False), encoding="utf-8")
            temporary.rename(kept.with_suffix(".json"))
        return kept

    def discarded(self) -> Iterator[Discarded]:
        """All discarded measurements, oldest first."""
        paths = self._layout.discarded.glob("*.json")
        # Killed between the note and the move, what was to be discarded is still there.
        notes = [(_note(path), path) for path in paths if path.with_suffix(".parquet").exists()]
        for note, path in sorted(notes, key=lambda pair: (pair[0]["discarded_at"], pair[1])):
            yield _discarded(note, path.with_suffix(".parquet"))


def _note(path: Path) -> dict[str, Any]:
    """Why and when a measurement was discarded."""
    try:
        note = json.loads(path.read_text(encoding="utf-8"))
        return {name: note[name] for name in ("why", "discarded_at", "place")}
    except (ValueError, TypeError, KeyError) as error:
        raise StoreError(f"{path}: is no readable note of why something was discarded ({error}); remove it") from error


def _discarded(note: dict[str, Any], file: Path) -> Discarded:
    try:
        metadata = read_metadata(file)
    except StoreError:
        metadata = {}
    return Discarded(file=file, metadata=metadata, **note)


@contextmanager
def _beside(path: Path) -> Iterator[Path]:
    """An empty file in `path`'s folder, readable as others are, that is gone afterwards unless it was renamed."""
    handle, name = tempfile.mkstemp(prefix=".writing-", dir=path.parent)
    os.close(handle)
    temporary = Path(name)
    try:
        temporary.chmod(0o644)
        yield temporary
    finally:
        temporary.unlink(missing_ok=True)


def _link_new(source: Path, target: Path) -> None:
    """Hard link, or a whole copy on file systems that have none; fails when `target` exists."""
    try:
        os.link(source, target)
    except FileExistsError:
        raise StoreError(f"{target}: exists; a measurement is never overwritten, discard it first") from None
    except OSError:
        if target.exists():
            raise StoreError(f"{target}: exists; a measurement is never overwritten, discard it first") from None
        with _beside(target) as temporary:
            shutil.copyfile(source, temporary)
            temporary.rename(target)


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
