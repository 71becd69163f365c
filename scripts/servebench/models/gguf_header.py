"""Read a GGUF's header without believing it: its counts and lengths are only claims, and must fit into the file.

`gguf.GGUFReader` believes them, and takes seconds for the tokenizer's lists, which are skipped here.
"""

from __future__ import annotations

import mmap
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

UINT32, STRING, ARRAY = 4, 8, 9
# Bytes of a value, by GGUF's type, but for strings and arrays.
SIZES = {0: 1, 1: 1, 2: 2, 3: 2, UINT32: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}
MOST_VALUES = 5_000_000  # of all arrays; the largest vocabularies have 260,000 tokens, in three arrays
ALIGNMENT = 32  # of the data of tensors, unless the file says otherwise


def check(path: Path) -> None:
    """Raise ValueError for a header that claims more than the file has, is nested, or is of an unknown form."""
    with opened(path):
        pass


@contextmanager
def opened(path: Path) -> Iterator[Header]:
    """Open a GGUF and pass over its pairs of keys and values, as far as the list of its tensors. Raises ValueError."""
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
        try:
            header = Header(content)
        except ValueError as error:
            raise ValueError(f"{path}: {error}") from None
        yield header


class Header:
    """Read a GGUF's header from the list of its tensors on.

    `tensors`: how many it claims. `alignment` of their data, and `at`, the place that is read next, in bytes.
    """

    def __init__(self, content: mmap.mmap) -> None:
        self._content, self.at, self._values, self.alignment = content, 0, 0, ALIGNMENT
        magic, version = self._take(4), self.number("<I")
        if magic != b"GGUF" or version not in (2, 3):
            raise ValueError(f"is no GGUF of version 2 or 3 ({magic!r}, {version})")
        self.tensors, pairs = self.number("<Q"), self.number("<Q")
        self._within(12 * pairs + 24 * self.tensors)
        for _ in range(pairs):
            name, kind = self._take(self.number("<Q")), self.number("<I")
            if name == b"general.alignment" and kind == UINT32:
                if (alignment := self.number("<I")) < 1:
                    raise ValueError(f"its tensors are aligned to {alignment} bytes")
                self.alignment = alignment
            else:
                self._skip(kind)

    def number(self, form: str) -> int:
        """Read a number of a form of `struct`."""
        (value,) = struct.unpack(form, self._take(struct.calcsize(form)))
        return int(value)

    def text(self) -> str:
        """Read a string."""
        return self._take(self.number("<Q")).decode()

    def _within(self, size: int) -> None:
        if self.at + size > len(self._content):
            raise ValueError("its header claims more than the file has")

    def _pass(self, size: int) -> None:
        self._within(size)
        self.at += size

    def _take(self, size: int) -> bytes:
        self._pass(size)
        return self._content[self.at - size : self.at]

    def _skip(self, kind: int) -> None:
        """Pass over a value."""
        if kind == STRING:
            self._pass(self.number("<Q"))
        elif kind == ARRAY:
            of, count = self.number("<I"), self.number("<Q")
            self._values += count
            if self._values > MOST_VALUES:
                raise ValueError(f"its arrays claim more than {MOST_VALUES:,} values")
            if of == STRING:
                for _ in range(count):
                    self._pass(self.number("<Q"))
            else:
                self._pass(count * _size(of))
        else:
            self._pass(_size(kind))


def _size(kind: int) -> int:
    if kind not in SIZES:
        raise ValueError(f"its header has a value of type {kind}, which is nested or unknown")
    return SIZES[kind]
