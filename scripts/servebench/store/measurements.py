"""Raw measurements on disk: one Parquet file each, named by what determines it, never overwritten, discarded.

`results/<experiment>/store/<digest>.parquet` is the measurement; the files under `measurements/` Snakemake sees are
hard links to it. Whatever happens to a job, a finished measurement stays; a session that runs again links what is there
and measures only what is missing.

A file's rows are its requests (`load.records.REQUESTS_SCHEMA`) with the chunks of each as two list columns; all else
(`store.records.Metadata`) is JSON in the file's `servebench` metadata.
"""

from __future__ import annotations

import itertools
import json
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from servebench.load.measurement import LoadMeta
from servebench.load.records import CHUNKS_SCHEMA, check_chunks, check_requests
from servebench.plan.layout import PLACE, Layout
from servebench.store import parquet
from servebench.store.parquet import Damaged, StoreError
from servebench.store.records import MEASUREMENT, Metadata

REMEDY = "discard it and measure again"
LIST_COLUMNS = {"chunk_arrival_ns": "arrival_ns", "chunk_tokens": "tokens"}


class Record(Metadata, frozen=True, kw_only=True):
    """One measurement as kept. `requests` and `chunks` are empty when `status` is "failed"."""

    requests: pa.Table
    chunks: pa.Table

    @property
    def loaded(self) -> LoadMeta:
        """How it was loaded; only where `status` is "ok"."""
        assert self.meta
        return self.meta


@dataclass(frozen=True, kw_only=True)
class Discarded:
    """A measurement that was thrown out: its file, which it was (PLACE), why, and when (ISO 8601 UTC).

    `metadata` is None where the file is damaged.
    """

    file: Path
    place: dict[str, Any]
    why: str
    discarded_at: str
    metadata: Metadata | None


def write(record: Record, path: Path) -> None:
    """Write `record` to `path` in one step; refuses to replace an existing file."""
    if record.status not in ("ok", "failed"):
        raise StoreError(f"{path}: status: {record.status!r} is neither ok nor failed")
    table = _with_chunks(check_requests(record.requests), check_chunks(record.chunks, record.requests))
    metadata = Metadata(**{name: getattr(record, name) for name in Metadata.__struct_fields__})
    path.parent.mkdir(parents=True, exist_ok=True)
    with _beside(path) as temporary:
        with temporary.open("wb") as file:
            parquet.write(table, metadata, file)
            file.flush()
            os.fsync(file.fileno())
        _link_new(temporary, path)


def read(path: Path) -> Record:
    """Read the record in `path`; StoreError names a file that is damaged, or newer than this code."""
    with parquet.named(path, REMEDY):
        table, metadata = parquet.read(path, MEASUREMENT)
        rows, chunks = _without_chunks(table)
        requests = check_requests(rows)
        facts = {name: getattr(metadata, name) for name in Metadata.__struct_fields__}
        return Record(requests=requests, chunks=check_chunks(chunks, requests), **facts)


def read_metadata(path: Path) -> Metadata:
    """Read all of the record in `path` but its rows, which stay unchecked."""
    with parquet.named(path, REMEDY):
        return parquet.read_metadata(path, MEASUREMENT)


class Store:
    """The measurements of one experiment under `results/<experiment>`."""

    def __init__(self, experiment_dir: Path) -> None:
        self._layout = Layout(experiment_dir)

    def path(self, digest: str) -> Path:
        """Where the measurement named `digest` is or will be."""
        return self._layout.stored(digest)

    def status(self, digest: str) -> str | None:
        """Say whether the measurement named `digest` is "ok" or "failed"; None when it is not in the store."""
        path = self.path(digest)
        return read_metadata(path).status if path.exists() else None

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
        place = place or read_metadata(path).identity.place
        output = self._layout.measurement_at(place)
        kept = self._noted(digest, why, place)
        if path.exists():
            output.unlink(missing_ok=True)
        (path if path.exists() else output).rename(kept)
        return kept

    def write_discarded(self, record: Record, why: str) -> None:
        """Keep a measurement that was never to count, with its reason; it has not been in the store as a good one."""
        write(record, self._noted(record.identity.digest, why, record.identity.place))

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
    metadata = None
    with suppress(Damaged):
        metadata = read_metadata(file)
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
