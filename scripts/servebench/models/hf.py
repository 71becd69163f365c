"""Fetch `hf://owner/repository[/path/to/file]@revision`: a file of the Hugging Face Hub, or a whole snapshot."""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

from servebench.machine.infrastructure import InfrastructureError, api_key
from servebench.models.checking import Mismatch, Wanted, accept, files

# No part may be `..` or begin with `-`: parts become names in the cache.
_PART = r"(?!\.\.?(?:[/@]|\Z)|-)[^/@]+"
SOURCE = re.compile(
    rf"hf://(?P<owner>{_PART})/(?P<repository>{_PART})(?:/(?P<file>{_PART}(?:/{_PART})*))?"
    rf"(?:@(?P<revision>{_PART}(?:/{_PART})*))?"
)
# Left out: the same weights in another framework's format.
IGNORED = ("*.bin", "*.pth", "*.pt", "*.h5", "*.msgpack", "*.onnx", "original/*", "*.gguf")


@dataclass(frozen=True)
class Source:
    """Hold the parts of an `hf://` source. `file` is None for a snapshot, `revision` None for the newest."""

    repository: str
    file: str | None
    revision: str | None

    @property
    def directory(self) -> str:
        """Name a directory after repository, revision and file."""
        name = f"{self.repository}@{self.revision}"
        return (f"{name}/{self.file}" if self.file else name).replace("/", "--")


def parse(source: str) -> Source:
    """Parse an `hf://` source; raises `InfrastructureError`."""
    match = SOURCE.fullmatch(source)
    if match is None:
        raise InfrastructureError(f"{source}: is not of the form hf://owner/repository[/file]@revision")
    return Source(f"{match['owner']}/{match['repository']}", match["file"], match["revision"])


def fetch(source: str, into: Path, progress: Callable[[str], None]) -> Path:
    """Download the file or snapshot into the directory `into`, each file as the Hub lists it for the commit.

    Raises `InfrastructureError` when the Hub has no such list, or a file is missing or differs from the list in size
    or, where listed, SHA-256. Whole files stay in `into` for the next attempt.
    """
    from huggingface_hub import HfApi

    wanted = parse(source)
    api = HfApi(token=token(source))
    with asking(source):
        commit = api.model_info(wanted.repository, revision=wanted.revision).sha
        tree = api.list_repo_tree(wanted.repository, recursive=True, revision=commit)
        listed = {entry.path: _listed(entry) for entry in tree if hasattr(entry, "size")}
    loaded = [name for name in listed if not any(fnmatch(name, pattern) for pattern in IGNORED)]
    names = [wanted.file] if wanted.file else loaded
    if not names or names[0] not in listed:
        lacks = f"the file {wanted.file}" if wanted.file else "files that a server loads"
        raise InfrastructureError(f"{source}: commit {commit} does not have {lacks}; name what it has")
    progress(f"{source}: downloading {len(names)} of {len(listed)} files of commit {commit}")
    with asking(source):
        # When the Hub cannot be reached, the client silently returns the files it has.
        api.snapshot_download(
            wanted.repository, revision=commit, local_dir=into, allow_patterns=[glob.escape(name) for name in names]
        )
    for name in names:
        _check(source, name, into / name, listed[name])
    if wanted.file:
        return (into / wanted.file).rename(into / Path(wanted.file).name)
    for file in files(into):
        if file.relative_to(into).as_posix() not in names:
            file.unlink()  # of another commit, when an earlier attempt was cut
    return into


def kept_elsewhere(source: str) -> bool:
    """Tell whether the Hub's client has files of the repository in its own cache, from which it copies."""
    from huggingface_hub import constants

    return (Path(constants.HF_HUB_CACHE) / f"models--{parse(source).repository.replace('/', '--')}").exists()


def _listed(entry: Any) -> Wanted:
    return Wanted(entry.lfs.sha256 if entry.lfs else None, entry.size)


def _check(source: str, name: str, file: Path, wanted: Wanted) -> None:
    if not file.is_file():
        expected = f"{wanted.size_bytes:,} bytes" + (f", sha256 {wanted.sha256}" if wanted.sha256 else "")
        raise InfrastructureError(f"{source}: {name} ({expected}) is still missing; run the same again")
    try:
        accept(file, wanted)
    except Mismatch as mismatch:
        file.unlink()
        raise InfrastructureError(f"{source}: {mismatch}; run the same again") from None


def token(what: str) -> str | bool:
    """Return the key in HF_TOKEN, False when unset: a key is taken from nowhere else."""
    return api_key(what, "HF_TOKEN") if os.environ.get("HF_TOKEN") else False


@contextmanager
def asking(what: str) -> Iterator[None]:
    """Turn any error of the Hub's client into one sentence: those of HTTP and of Xet share no base class."""
    try:
        yield
    except Exception as error:
        told = " ".join(str(error).split()) or type(error).__name__
        status = getattr(getattr(error, "response", None), "status_code", None)
        lacks = status in (401, 403) and not os.environ.get("HF_TOKEN")
        remedy = "; a gated model needs HF_TOKEN in the environment" if lacks else ""
        raise InfrastructureError(f"{what}: {told}{remedy}") from error
