"""`runtime.mirror`: a directory or an https:// address that is asked before a model's own source.

It holds `<sha256>/<file name>` or `<file name>`; a directory may hold snapshots as `<owner>/<repository>/`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

from servebench.infrastructure import InfrastructureError
from servebench.models import file, hf, https
from servebench.models.checking import Mismatch, Wanted, accept


def fetch(mirror: str, source: str, wanted: Wanted, into: Path, progress: Callable[[str], None]) -> Path | None:
    """What the mirror has of `source`, checked; None when it has nothing. A wrong file is said and passed over."""
    local = not mirror.startswith(("https://", "http://"))
    for candidate in candidates(source, wanted):
        at = f"{'' if '://' in mirror else 'file://'}{mirror.rstrip('/')}/{candidate}"
        if local and not Path(at.removeprefix("file://")).expanduser().exists():
            continue
        try:
            got = (
                file.fetch(f"file://{at.removeprefix('file://')}", into, progress)
                if local
                else https.fetch(at, into, progress)
            )
            accept(got, wanted)
        except InfrastructureError as error:
            progress(f"mirror: {error}")
        except Mismatch as mismatch:
            progress(f"mirror: {at}: {mismatch}")
            got.unlink()
        else:
            return got
    return None


def candidates(source: str, wanted: Wanted) -> Iterator[str]:
    """Where in a mirror the source may be, most certain first."""
    if source.startswith("hf://") and (parsed := hf.parse(source)).file is None:
        yield parsed.repository
        return
    name = source.split("@")[0].rpartition("/")[2] if source.startswith("hf://") else source.rpartition("/")[2]
    if wanted.sha256:
        yield f"{wanted.sha256}/{name}"
    yield name
