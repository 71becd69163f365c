"""Identify the weights of a GGUF whatever the order of its tensors: Ollama writes the files that it is given anew."""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import dataclass
from math import prod
from pathlib import Path

from servebench.models import gguf_header
from servebench.models.checking import Wanted, accept, note, noted

SPLIT = re.compile(r"(.+)-\d{5}-of-(\d{5})\.gguf")


def sha256(path: Path) -> str:
    """Return the SHA-256 over the tensors of a GGUF, of all parts of a split one; remembered beside the file.

    Two files have the same digest exactly when they have the same tensors: name, type, shape and bytes.
    """
    accept(path, Wanted())
    known = noted(path).get("weights_sha256")
    if known is None:
        known = digest(parts(path))
        note(path, **noted(path), weights_sha256=known)
    return str(known)


def digest(paths: list[Path]) -> str:
    """Compute the SHA-256 over all tensors of the files, sorted by name."""
    files = [(tensor, path) for path in paths for tensor in tensors(path)]
    found = hashlib.sha256()
    for tensor, path in sorted(files, key=lambda entry: entry[0].name):
        found.update(json.dumps([tensor.name, tensor.kind, tensor.shape]).encode() + b"\n")
        with path.open("rb") as file:
            file.seek(tensor.place)
            left = tensor.size
            while left:
                piece = file.read(min(left, 2**24))
                if not piece:
                    raise ValueError(f"{path}: ends within the tensor {tensor.name}")
                found.update(piece)
                left -= len(piece)
    return found.hexdigest()


def parts(path: Path) -> list[Path]:
    """List the parts of a split GGUF, of which `path` is any; a file that is whole is its only part."""
    split = SPLIT.fullmatch(path.name)
    if split is None:
        return [path]
    count = int(split[2])
    return [path.with_name(f"{split[1]}-{part:05d}-of-{split[2]}.gguf") for part in range(1, count + 1)]


@dataclass(frozen=True)
class Tensor:
    """Where a tensor lies in its file; `place` and `size` in bytes, `kind` as ggml numbers its types."""

    name: str
    kind: int
    shape: list[int]
    place: int
    size: int


def tensors(path: Path) -> list[Tensor]:
    """List the tensors of a GGUF.

    Raises ValueError for another or a cut file, or a type of tensor that `gguf` does not know.
    """
    from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType

    with gguf_header.opened(path) as read:
        listed = [
            (read.text(), [read.number("<Q") for _ in range(read.number("<I"))], read.number("<I"), read.number("<Q"))
            for _ in range(read.tensors)
        ]
        start = -(-read.at // read.alignment) * read.alignment
    found = []
    for name, shape, kind, offset in listed:
        values, size = GGML_QUANT_SIZES[GGMLQuantizationType(kind)]
        found.append(Tensor(name, kind, shape, start + offset, prod(shape) // values * size))
    return found
