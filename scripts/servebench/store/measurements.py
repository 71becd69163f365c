"""Keep each raw measurement in a Parquet file named by the digest of its spec; never overwrite it, only discard it.

`results/<experiment>/store/<digest>.parquet` is the measurement; the files under `measurements/` that Snakemake sees
are hard links to it. Whatever happens to a job, a finished measurement stays; a session that runs again links the
stored measurements and makes only the missing ones.

A file's rows are its requests (`load.records.REQUESTS_SCHEMA`) with the chunks of each as two list columns; the rest
(`store.records.Metadata`) is JSON in the file's `servebench` metadata.
"""

from __future__ import annotations

import fcntl
import itertools
import json
import os
import shutil
import tempfile
import time
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
NOT_JUDGED = "its server was not checked afterwards: the session ended first, or is checking it now"
ONLY_COPY = "its file in the store was lost, and measured again before this link was seen"
UNFINISHED = ".writing-"
JUST_BEGUN_S = 60.0  # the file of a living job may not be locked yet
LIST_COLUMNS = {"chunk_arrival_ns": "arrival_ns", "chunk_tokens": "tokens"}


class Record(Metadata, frozen=True, kw_only=True):
    """Hold one measurement. `requests` and `chunks` are empty when `status` is "failed"."""

    requests: pa.Table
    chunks: pa.Table

    @property
    def loaded(self) -> LoadMeta:
        """Return how the server was loaded; only for `status` "ok"."""
        assert self.meta
        return self.meta


@dataclass(frozen=True, kw_only=True)
class Discarded:
    """Describe a discarded measurement: its file, its place (PLACE), why and when it was discarded (ISO 8601 UTC).

    `metadata` is None for a damaged file. `by_hand`: somebody asked for it; no session has done it in its course.
    """

    file: Path
    place: dict[str, Any]
    why: str
    discarded_at: str
    metadata: Metadata | None
    by_hand: bool = False


def write(record: Record, path: Path) -> None:
    """Write `record` to `path` atomically. Raises StoreError when `path` exists."""
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
    """Read the record in `path`. Raises StoreError for a file that is damaged or newer than this code."""
    with parquet.named(path, REMEDY):
        table, metadata = parquet.read(path, MEASUREMENT)
        rows, chunks = _without_chunks(table)
        requests = check_requests(rows)
        facts = {name: getattr(metadata, name) for name in Metadata.__struct_fields__}
        return Record(requests=requests, chunks=check_chunks(chunks, requests), **facts)


def read_metadata(path: Path) -> Metadata:
    """Read the metadata of the record in `path`, without reading or checking its rows."""
    with parquet.named(path, REMEDY):
        return parquet.read_metadata(path, MEASUREMENT)


class Store:
    """Manage the measurements of one experiment under `results/<experiment>`."""

    def __init__(self, experiment_dir: Path) -> None:
        self._layout = Layout(experiment_dir)

    def path(self, digest: str) -> Path:
        """Return the path of the measurement named `digest`, whether or not it exists."""
        return self._layout.stored(digest)

    def status(self, digest: str) -> str | None:
        """Return "ok" or "failed" for the measurement named `digest`; None when it is not in the store."""
        path = self.path(digest)
        return read_metadata(path).status if path.exists() else None

    def link(self, digest: str, output: Path) -> None:
        """Link `output` to the measurement named `digest`, and touch it, so that Snakemake takes it as just made.

        A whole measurement that stands there and that the store has lost is put back; one that the store has measured
        again goes to the discarded ones.
        """
        output.parent.mkdir(parents=True, exist_ok=True)
        self.restore(output)
        self._keep_only_copy(output)
        output.unlink(missing_ok=True)
        _link_new(self.path(digest), output)
        os.utime(output)

    def restore(self, output: Path) -> bool:
        """Put a whole measurement at `output` back if the store has lost it, or its file is damaged; return whether."""
        if not output.exists():
            return False
        with suppress(Damaged):
            found = read_metadata(output).identity
            kept = self.path(found.digest)
            if _same(output, kept):
                return False
            read(output)
            if kept.exists():
                try:
                    read(kept)
                    return False
                except Damaged as damage:
                    kept.rename(self._noted(found.digest, f"damaged: {damage}", found.place))
            kept.parent.mkdir(parents=True, exist_ok=True)
            with suppress(StoreError):  # another session has put it back at the same time
                _link_new(output, kept)
            return True
        return False

    def sweep(self) -> None:
        """Remove what killed jobs left unfinished: files that nobody holds a lock on and that were not just begun."""
        for folder in (self._layout.discarded.parent, self._layout.measurements):
            for path in folder.rglob(f"{UNFINISHED}*"):
                with suppress(OSError), path.open("rb+") as file:
                    if time.time() - path.stat().st_mtime > JUST_BEGUN_S:
                        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                        path.unlink()

    def restored(self) -> Iterator[Path]:
        """Put every measurement back that only its link holds; yield these links."""
        for output in sorted(self._layout.measurements.rglob("*.parquet")):
            if output.stat().st_nlink == 1 and self.restore(output):
                yield output

    def _keep_only_copy(self, output: Path) -> None:
        """Move a whole measurement that differs from the store's of the same digest to the discarded ones."""
        if not output.exists():
            return
        with suppress(Damaged):
            found = read_metadata(output).identity
            if not _same(output, self.path(found.digest)):
                read(output)
                output.rename(self._noted(found.digest, ONLY_COPY, found.place))

    def mend(self, digest: str, place: Mapping[str, Any], damage: Damaged) -> None:
        """Make the damaged link of the measurement at `place` again, if the store's own file, `digest`, is whole.

        Otherwise discard the measurement, so that it is wanted again, and raise Damaged, which says so.
        """
        if (path := self.path(digest)).exists():
            try:
                read(path)
            except Damaged as found:
                damage = found
            else:
                self.link(digest, self._layout.measurement_at(place))
                return
        kept = self.discard(digest, f"damaged: {damage}", place)
        told = str(damage).removesuffix(f"; {REMEDY}")
        raise Damaged(f"{told}; it is kept as {kept}, and the next run measures it again") from None

    def discard(self, digest: str, why: str, place: Mapping[str, Any] | None = None, *, by_hand: bool = False) -> Path:
        """Discard a measurement: move it to store/discarded with its reason, and remove its link.

        `place` (PLACE) names the measurement of a damaged file, which cannot name it itself. `by_hand`: somebody asked
        for it; no session has done it in its course.
        """
        path = self.path(digest)
        place = place or read_metadata(path).identity.place
        output = self._layout.measurement_at(place)
        # A search for a capacity that has used it goes on from there; Snakemake makes no record again for its own sake.
        for record in (self._layout.search_at(place), self._layout.capacities):
            record.unlink(missing_ok=True)
        kept = self._noted(digest, why, place, by_hand=by_hand)
        if path.exists():
            output.unlink(missing_ok=True)
        (path if path.exists() else output).rename(kept)
        return kept

    def put_aside(self, record: Record) -> Path:
        """Keep a measurement just made, before anything can go wrong; return its file, for `accept` or `reject`.

        Until then it is a discarded measurement, and stays one if the session is killed.
        """
        aside = self._noted(record.identity.digest, NOT_JUDGED, record.identity.place)
        write(record, aside)
        return aside

    def accept(self, record: Record, aside: Path) -> None:
        """Put the complete record of a measurement kept `aside` into the store.

        It stays discarded when the store has one: another session has made it at the same time.
        """
        digest = record.identity.digest
        if self.status(digest):
            self.reject(record, aside, "another session has made this measurement at the same time")
            return
        write(record, self.path(digest))
        aside.unlink()
        aside.with_suffix(".json").unlink()

    def reject(self, record: Record, aside: Path, why: str) -> None:
        """Discard the complete record of a measurement kept `aside`, with the reason."""
        with _beside(aside) as temporary:
            temporary.unlink()
            write(record, temporary)
            temporary.rename(aside)
        _write_note(aside, why, record.identity.place)

    def _noted(self, digest: str, why: str, place: Mapping[str, Any], *, by_hand: bool = False) -> Path:
        """Write the note of why a measurement is discarded, and return where its file has to be moved.

        The note has no meaning until the file is there.
        """
        folder = self._layout.discarded
        folder.mkdir(parents=True, exist_ok=True)
        number = next(n for n in itertools.count(1) if not list(folder.glob(f"{digest}-{n}.*")))
        kept = folder / f"{digest}-{number}.parquet"
        _write_note(kept, why, place, by_hand=by_hand)
        return kept

    def discarded_by_hand(self) -> list[str]:
        """Return the names of the files that somebody asked to discard, in order."""
        found = []
        for path in sorted(self._layout.discarded.glob("*.json")):
            with suppress(StoreError):  # of a note that cannot be read: said where the notes are
                if _note(path)["by_hand"]:
                    found.append(path.stem)
        return found

    def discarded(self) -> Iterator[Discarded]:
        """Yield all discarded measurements, oldest first."""
        paths = self._layout.discarded.glob("*.json")
        # A process killed between note and move leaves the measurement undiscarded.
        notes = [(_note(path), path) for path in paths if path.with_suffix(".parquet").exists()]
        for note, path in sorted(notes, key=lambda pair: (pair[0]["discarded_at"], pair[1])):
            found = _discarded(note, path.with_suffix(".parquet"))
            if not (found.why == NOT_JUDGED and self._accepted(found)):
                yield found

    def _accepted(self, aside: Discarded) -> bool:
        """Return whether the store has this very measurement: the session was killed within `accept`."""
        kept = self._layout.stored(aside.file.name.rpartition("-")[0])
        if aside.metadata is None or not kept.exists():
            return False
        with suppress(Damaged):
            found = read_metadata(kept)
            return (found.session.session_id, found.meta) == (aside.metadata.session.session_id, aside.metadata.meta)
        return False


def _write_note(kept: Path, why: str, place: Mapping[str, Any], *, by_hand: bool = False) -> None:
    at = datetime.now(UTC).isoformat(timespec="milliseconds")
    note = {"why": why, "discarded_at": at, "place": {name: place[name] for name in PLACE}, "by_hand": by_hand}
    with _beside(kept) as temporary:
        temporary.write_text(json.dumps(note, ensure_ascii=False), encoding="utf-8")
        temporary.rename(kept.with_suffix(".json"))


def _note(path: Path) -> dict[str, Any]:
    """Read why and when a measurement was discarded."""
    try:
        note = json.loads(path.read_text(encoding="utf-8"))
        found = {name: note[name] for name in ("why", "discarded_at", "place")}
        return found | {"by_hand": note.get("by_hand", False)}
    except (ValueError, TypeError, KeyError) as error:
        raise StoreError(f"{path}: is not a readable note of a discarded measurement ({error}); remove it") from error


def _discarded(note: dict[str, Any], file: Path) -> Discarded:
    metadata = None
    with suppress(Damaged):
        metadata = read_metadata(file)
    return Discarded(file=file, metadata=metadata, **note)


@contextmanager
def _beside(path: Path) -> Iterator[Path]:
    """Make an empty file with ordinary permissions in `path`'s folder; remove it after the block unless renamed.

    Its lock tells `Store.sweep` that its writer lives.
    """
    handle, name = tempfile.mkstemp(prefix=UNFINISHED, dir=path.parent)
    temporary = Path(name)
    try:
        with suppress(OSError):  # a file system without locks: none is swept there
            fcntl.flock(handle, fcntl.LOCK_EX)
        temporary.chmod(0o644)
        yield temporary
    finally:
        os.close(handle)
        temporary.unlink(missing_ok=True)


def _link_new(source: Path, target: Path) -> None:
    """Hard-link `target` to `source`, or copy it where the file system has no hard links.

    Raises StoreError when `target` exists.
    """
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


def _same(one: Path, other: Path) -> bool:
    return other.exists() and (one.samefile(other) or one.read_bytes() == other.read_bytes())


def _with_chunks(requests: pa.Table, chunks: pa.Table) -> pa.Table:
    """Add the chunks of each request, in order, to the requests as list columns."""
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
    """Split a table into requests and chunks: the inverse of `_with_chunks`."""
    table = table.replace_schema_metadata(None)
    lists = {column: table[name].combine_chunks() for name, column in LIST_COLUMNS.items()}
    counts = lists["tokens"].value_lengths().to_numpy(zero_copy_only=False)
    owners = np.repeat(table["request_id"].to_numpy(), counts)
    columns = [pa.array(owners), *(values.flatten() for values in lists.values())]
    return table.drop_columns(list(LIST_COLUMNS)), pa.table(columns, schema=CHUNKS_SCHEMA)
