"""Say what may be concluded from an experiment's tables: `servebench conclude`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from servebench.faults import Fault

app = typer.Typer()


@app.command()
def conclude(
    results: Annotated[Path, typer.Option(help="results/<experiment>")],
    language: Annotated[str, typer.Option(help="en or ja.")] = "en",
) -> None:
    """Conclude from plan.json and tables/*.parquet alone: print the claims and write tables/verdicts.parquet."""
    import pyarrow.parquet as pq

    from servebench import claims, verdicts
    from servebench.plan import from_json
    from servebench.plan.layout import Layout
    from servebench.tables.files import read_all
    from servebench.words import LANGUAGES
    from servebench.words.claims import said

    if language not in LANGUAGES:
        raise Fault(f"--language: {language} is not one of {', '.join(LANGUAGES)}")
    layout = Layout(results)
    if not layout.plan.is_file():
        raise Fault(f"{layout.plan}: is missing; name the folder of an experiment that was run: results/<experiment>")
    found = verdicts.conclude(read_all(layout.tables), from_json(layout.plan.read_bytes()))
    part = layout.table("verdicts").with_suffix(".parquet.part")
    pq.write_table(claims.table(found), part, compression="zstd")
    part.replace(layout.table("verdicts"))
    for claim in found:
        print(said(claim)[language])
