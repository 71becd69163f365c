"""Write a GGUF anew with the same tensors in another order."""

import itertools
import struct
from pathlib import Path

SIZES = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}
ALIGNMENT = 32


def rewrite(source: Path, target: Path) -> None:
    """Copy metadata as it is, and the tensors in reverse order."""
    content = source.read_bytes()
    at = 8

    def number(form):
        nonlocal at
        (value,) = struct.unpack_from(form, content, at)
        at += struct.calcsize(form)
        return value

    def string():
        nonlocal at
        size = number("<Q")
        at += size
        return content[at - size : at]

    def value(kind):
        nonlocal at
        if kind == 8:
            string()
        elif kind == 9:
            of, count = number("<I"), number("<Q")
            for _ in range(count):
                value(of)
        else:
            at += SIZES[kind]

    count, pairs = number("<Q"), number("<Q")
    for _ in range(pairs):
        string()
        value(number("<I"))
    head, listed = content[:at], []
    for _ in range(count):
        name, dimensions = string(), number("<I")
        shape = [number("<Q") for _ in range(dimensions)]
        listed.append((number("<I"), number("<Q"), name, shape)[::-1])
    start = -(-at // ALIGNMENT) * ALIGNMENT
    places = [*sorted(offset for *_, offset, _ in listed), len(content) - start]
    sizes = {place: following - place for place, following in itertools.pairwise(places)}
    infos, data, written = b"", [], 0
    for shape, name, offset, kind in reversed(listed):
        infos += struct.pack("<Q", len(name)) + name + struct.pack("<I", len(shape))
        infos += struct.pack(f"<{len(shape)}Q", *shape) + struct.pack("<IQ", kind, written)
        data.append(content[start + offset : start + offset + sizes[offset]])
        data.append(bytes(-len(data[-1]) % ALIGNMENT))
        written += len(data[-2]) + len(data[-1])
    whole = head + infos
    target.write_bytes(whole + bytes(-len(whole) % ALIGNMENT) + b"".join(data))
