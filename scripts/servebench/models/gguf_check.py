"""Check that a GGUF's header fits into its file before it is read: counts and lengths in it are only claims."""

from __future__ import annotations

import struct
from pathlib import Path

STRING, ARRAY = 8, 9
# Bytes of a value, by GGUF's type, but for strings and arrays.
SIZES = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}
MOST_VALUES = 5_000_000  # of all arrays; the largest vocabularies have 260,000 tokens, in three arrays


def check(path: Path) -> None:
    """Raise ValueError for a header that claims more than the file has, is nested, or is of an unknown form."""
    with path.open("rb") as file:
        left = path.stat().st_size
        values = 0

        def take(count: int) -> bytes:
            nonlocal left
            left -= count
            if left < 0:
                raise ValueError("its header claims more than the file has")
            return file.read(count)

        def skip(count: int) -> None:
            nonlocal left
            left -= count
            if left < 0:
                raise ValueError("its header claims more than the file has")
            file.seek(count, 1)

        def number(form: str) -> int:
            return int(struct.unpack(form, take(struct.calcsize(form)))[0])

        magic, version = take(4), number("<I")
        if magic != b"GGUF" or version not in (2, 3):
            raise ValueError(f"is no GGUF of version 2 or 3 ({magic!r}, {version})")
        tensors, keys = number("<Q"), number("<Q")
        if 12 * keys + 24 * tensors > left:
            raise ValueError("its header claims more than the file has")
        for _ in range(keys):
            skip(number("<Q"))
            kind = number("<I")
            if kind == ARRAY:
                inner, count = number("<I"), number("<Q")
                values += count
                if values > MOST_VALUES:
                    raise ValueError(f"its arrays claim more than {MOST_VALUES:,} values")
                if inner == STRING:
                    for _ in range(count):
                        skip(number("<Q"))
                else:
                    skip(count * _size(inner))
            elif kind == STRING:
                skip(number("<Q"))
            else:
                skip(_size(kind))


def _size(kind: int) -> int:
    if kind not in SIZES:
        raise ValueError(f"its header has a value of type {kind}, which is nested or unknown")
    return SIZES[kind]
