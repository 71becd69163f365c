"""Look for models in `runtime.mirror`, a folder or an https:// address, before asking their own source.

It is laid out as the folder `models` of a cache: `<sha256>/<file name>`; `hf/<owner>--<repository>@<revision>/` for a
snapshot and `hf/<owner>--<repository>@<revision>--<file>/<file name>` for a file that no SHA-256 pins; `ollama/` as
Ollama's own store. Files put there by hand may also be `<file name>` or `<owner>/<repository>/`.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

from servebench.machine.infrastructure import InfrastructureError
from servebench.models import file, hf, https, ollama
from servebench.models.checking import Mismatch, Wanted, accept


def fetch(mirror: str, source: str, wanted: Wanted, into: Path, progress: Callable[[str], None]) -> Path | None:
    """Fetch `source` from the mirror, checked; None when the mirror lacks it. A wrong file is reported and skipped."""
    local = not mirror.startswith(("https://", "http://"))
    if not local and source.startswith("hf://") and hf.parse(source).file is None:
        progress(f"mirror: {mirror} cannot hold {source}: a snapshot is a folder of files, and no address lists one")
        return None
    for candidate in candidates(source, wanted):
        at = f"{'' if '://' in mirror else 'file://'}{mirror.rstrip('/')}/{candidate}"
        if local and not file.path_of(at).exists():
            continue
        try:
            got = _taken(source, at, into, progress)
            accept(got, wanted)
        except InfrastructureError as error:
            progress(f"mirror: {error}")
        except Mismatch as mismatch:
            progress(f"mirror: {at}: {mismatch}")
            if got.is_dir():
                shutil.rmtree(got)
                got.mkdir()
            elif not source.startswith("ollama://"):  # a complete blob of the store: another tag may mean it
                got.unlink()
        else:
            return got
    return None


def unverified(mirror: str, source: str, wanted: Wanted) -> str | None:
    """Say why the mirror's file cannot be known to be the source's; None where a digest pins it."""
    if wanted.sha256 or (source.startswith("ollama://") and ollama.parse(source).digest):
        return None
    return f"taken from {mirror} by its name alone: no SHA-256 says that it is {source}"


def _taken(source: str, at: str, into: Path, progress: Callable[[str], None]) -> Path:
    if source.startswith("ollama://"):
        return ollama.copy(source, at, into, progress)
    return file.fetch(at, into, progress) if at.startswith("file://") else https.fetch(at, into, progress)


def candidates(source: str, wanted: Wanted) -> Iterator[str]:
    """Yield where in a mirror the source may be, most certain first; for an Ollama model, the store."""
    if source.startswith("ollama://"):
        yield from ([wanted.sha256] if wanted.sha256 else [])
        yield "ollama"
    elif source.startswith("hf://"):
        parsed = hf.parse(source)
        name = f"/{Path(parsed.file).name}" if parsed.file else ""
        if wanted.sha256:
            yield f"{wanted.sha256}{name}"
        yield f"hf/{parsed.directory}{name}"
        yield name.removeprefix("/") or parsed.repository
    else:
        name = source.rpartition("/")[2]
        if wanted.sha256:
            yield f"{wanted.sha256}/{name}"
        yield name
