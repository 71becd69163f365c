"""`hf://owner/repository[/path/to/file]@revision`: a file of the Hugging Face Hub, or a whole snapshot."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from servebench.infrastructure import InfrastructureError

SOURCE = re.compile(r"hf://(?P<owner>[^/@]+)/(?P<repository>[^/@]+)(?:/(?P<file>[^@]+))?(?:@(?P<revision>[^@]+))?")
# What a server loads; not the same weights again in another framework's format.
IGNORED = ("*.bin", "*.pth", "*.pt", "*.h5", "*.msgpack", "*.onnx", "original/*", "*.gguf")


@dataclass(frozen=True)
class Source:
    """The parts of an `hf://` source. `file` is None for a snapshot, `revision` None for whatever is newest."""

    repository: str
    file: str | None
    revision: str | None

    @property
    def directory(self) -> str:
        """A directory name that tells repository, revision and file apart."""
        name = f"{self.repository.replace('/', '--')}@{self.revision}"
        return f"{name}--{self.file.replace('/', '--')}" if self.file else name


def parse(source: str) -> Source:
    """Take an `hf://` source apart; raises `InfrastructureError`."""
    match = SOURCE.fullmatch(source)
    if match is None:
        raise InfrastructureError(f"{source}: is not of the form hf://owner/repository[/file]@revision")
    return Source(f"{match['owner']}/{match['repository']}", match["file"], match["revision"])


def fetch(source: str, into: Path, progress: Callable[[str], None]) -> Path:
    """Download the file or the snapshot into the directory `into`. A token is taken from HF_TOKEN and nowhere else."""
    from huggingface_hub import hf_hub_download, snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError

    wanted = parse(source)
    token: str | bool = os.environ.get("HF_TOKEN") or False
    progress(f"{source}: downloading")
    try:
        if wanted.file is None:
            snapshot_download(
                wanted.repository, revision=wanted.revision, local_dir=into, token=token, ignore_patterns=list(IGNORED)
            )
            return into
        found = hf_hub_download(wanted.repository, wanted.file, revision=wanted.revision, local_dir=into, token=token)
    except (HfHubHTTPError, LocalEntryNotFoundError, OSError) as error:
        remedy = "" if token else "; a gated model needs HF_TOKEN in the environment"
        raise InfrastructureError(f"{source}: {error}{remedy}") from error
    return Path(found).rename(into / Path(found).name)
