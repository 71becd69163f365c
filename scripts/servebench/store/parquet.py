"""Write and read Parquet files whose metadata is JSON.

The JSON and the number of rows have a digest, by which the metadata can be checked alone; the whole file has one, too,
so that no changed bit is read. Files of format 0 have neither and are read without these checks; those of later formats
before `Format.digest_since` have checksums of their pages in place of the file's digest.
"""

from __future__ import annotations

import hashlib
import io
import json
import secrets
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Generic, TypeVar

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from servebench.faults import Fault

METADATA_KEY = b"servebench"
DIGEST_KEY = b"servebench-sha256"
# Of the file's bytes, with 64 zeros in place of this digest.
FILE_KEY = b"servebench-file-sha256"
_NO_DIGEST = b"0" * 64
_UNREADABLE = (
    *(Fault, pa.ArrowException, LookupError, AttributeError, TypeError, ValueError),
    *(ArithmeticError, RecursionError, MemoryError),
)
Part = TypeVar("Part", bound=msgspec.Struct)


class StoreError(Fault):
    """A stored file cannot be read or written; the message names the file and the remedy."""


class Damaged(StoreError):
    """A stored file is not what was written."""


class Newer(StoreError):
    """A stored file has a format that only a later servebench knows."""


@dataclass(frozen=True)
class Format(Generic[Part]):
    """Describe a kind of stored content.

    It has a struct, a format number, one upgrade from each older format, and the format since which a whole file or
    line has a digest.
    """

    kind: type[Part]
    number: int
    upgrades: Mapping[int, Callable[[dict[str, Any]], dict[str, Any]]]
    digest_since: int

    def read(self, content: dict[str, Any]) -> Part:
        """Build the struct from content of this format or an older one; content without a format has format 0.

        Raises Newer, and KeyError, TypeError or ValueError for content of another shape.
        """
        found = content.get("format", 0)
        if type(found) is not int or found < 0:
            raise ValueError(f"format: {found!r} is not a format number")
        if found > self.number:
            told = f"has format {found}, and this servebench reads formats up to {self.number}"
            raise Newer(f"{told}; use the servebench that wrote it, or a later one")
        for number in range(found, self.number):
            content = self.upgrades[number](content)
        return msgspec.convert(content | {"format": self.number}, self.kind)


def encoded(content: msgspec.Struct) -> bytes:
    """Encode as JSON. Raises ValueError for NaN and infinities: what was not measured is null."""
    return json.dumps(msgspec.to_builtins(content), ensure_ascii=False, allow_nan=False).encode()


def write(table: pa.Table, content: msgspec.Struct, file: BinaryIO) -> None:
    """Write the table to an open file, with `content` as its metadata."""
    text, placeholder = encoded(content), secrets.token_hex(32).encode()
    metadata = {METADATA_KEY: text, DIGEST_KEY: _digest(text, table.num_rows), FILE_KEY: placeholder}
    table = table.replace_schema_metadata(None)
    options = {"compression": "zstd", "use_dictionary": False, "write_page_checksum": True, "store_schema": False}
    buffer = io.BytesIO()
    with pq.ParquetWriter(buffer, table.schema, **options) as writer:
        writer.write_table(table)
        writer.add_key_value_metadata(metadata)
    data = buffer.getvalue()
    file.write(data.replace(placeholder, _file_digest(data, placeholder)))


def read(path: Path, form: Format[Part]) -> tuple[pa.Table, Part]:
    """Read a table and its metadata, and verify their checksums if any; call this within `named`."""
    data = path.read_bytes()
    table = pq.read_table(pa.BufferReader(data), page_checksum_verification=True)
    found = table.schema.metadata or {}
    content = _content(found, table.num_rows, form)
    digest = found.get(FILE_KEY)
    if digest is None and json.loads(found[METADATA_KEY]).get("format", 0) >= form.digest_since:
        raise ValueError("it has no digest")
    if digest is not None and digest != _file_digest(data, digest):
        raise ValueError("it does not match its digest")
    return table.replace_schema_metadata(None), content


def read_metadata(path: Path, form: Format[Part]) -> Part:
    """Read the metadata alone; call this within `named`."""
    footer = pq.read_metadata(path)
    return _content(footer.metadata, footer.num_rows, form)


def _file_digest(data: bytes, in_place: bytes) -> bytes:
    """Return the digest of a file in whose bytes stands `in_place` where the digest belongs."""
    return hashlib.sha256(data.replace(in_place, _NO_DIGEST)).hexdigest().encode()


def _digest(text: bytes, rows: int) -> bytes:
    return hashlib.sha256(b"%d %b" % (rows, text)).hexdigest().encode()


def _content(metadata: Mapping[bytes, bytes] | None, rows: int, form: Format[Part]) -> Part:
    found = metadata or {}
    text = found[METADATA_KEY]
    digest = found.get(DIGEST_KEY)
    if digest is not None and digest != _digest(text, rows):
        raise ValueError("its metadata and number of rows do not match its digest")
    content = json.loads(text)
    if digest is None and "format" in content:
        raise ValueError("its metadata has no digest")
    return form.read(content)


@contextmanager
def named(path: Path, remedy: str) -> Iterator[None]:
    """Convert errors in the block to Damaged or Newer that name the file; `remedy` is for a damaged file."""
    try:
        yield
    except Newer as error:
        raise Newer(f"{path}: {error}") from None
    except OSError as error:
        if error.errno is not None:  # Arrow's own have none
            raise StoreError(f"{path}: cannot be read ({error.strerror}); make it readable, or bring it back") from None
        raise Damaged(f"{path}: is damaged ({error}); {remedy}") from error
    except _UNREADABLE as error:
        raise Damaged(f"{path}: is damaged ({error}); {remedy}") from error
