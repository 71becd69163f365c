"""Say what may be concluded from an experiment's tables: `servebench conclude`."""

from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq

from servebench import claims, verdicts
from servebench.cli.messages import say
from servebench.faults import Fault
from servebench.plan import read
from servebench.plan.layout import Layout
from servebench.tables.files import read_all
from servebench.words import LANGUAGES
from servebench.words.claims import said


def command(results: Path, language: str) -> None:
    """Print the claims in `language` (en or ja), and write tables/verdicts.parquet."""
    if language not in LANGUAGES:
        raise Fault(f"--language: {language} is not one of {', '.join(LANGUAGES)}")
    layout = Layout(results)
    if not layout.plan.is_file():
        raise Fault(f"{layout.plan}: is missing; name the folder of an experiment that was run: results/<experiment>")
    found = verdicts.conclude(read_all(layout.tables), read(layout.plan))
    part = layout.table("verdicts").with_suffix(".parquet.part")
    pq.write_table(claims.table(found), part, compression="zstd")
    part.replace(layout.table("verdicts"))
    for claim in found:
        say(said(claim)[language])
