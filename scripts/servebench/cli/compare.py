"""Compare two experiments side by side: `servebench compare`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from servebench.faults import Fault
from servebench.machine.untrusted import printable
from servebench.report.comparison import Comparison, compare, read
from servebench.verdicts.across import PARTS
from servebench.words.claims import said, said_pair
from servebench.words.numbers import digits


def command(first: str, second: str, out: Path | None, asked: Sequence[str] = ()) -> None:
    """Print the comparison, and write it to `out` as a page; `asked`: what may differ and still get a ratio."""
    if unknown := [name for name in asked if name not in PARTS]:
        raise Fault(f"--across: {unknown[0]!r} is not one of {', '.join(PARTS)}")
    if out is not None and out.suffix.lower() not in (".html", ".htm"):
        raise Fault(f"--html: {out} is a page, in HTML; name a file that ends with .html")
    found = compare(read(first), read(second), asked)
    console = Console(soft_wrap=False)
    if not console.is_terminal:
        console = Console(width=160)
    for size in found.sizes:
        console.print(said(size)["en"], markup=False, highlight=False)
    console.print(table(found))
    for line in notes(found):
        console.print(printable(line), markup=False)
    if out is not None:
        from servebench.report import comparison_page

        out.parent.mkdir(parents=True, exist_ok=True)
        part = out.with_name(f".{out.name}.part")  # not into the file itself, which may have other names
        part.write_text(comparison_page.page(found), encoding="utf-8")
        part.replace(out)
        console.print(f"the page is {out}", markup=False)


def table(found: Comparison) -> Table:
    """Make the table of pairs for a terminal."""
    made = Table(title=escape(f"A: {found.first.folder}   B: {found.second.folder}"), title_justify="left")
    for name in ("setting", "users", "figure", "A", "B", "B ÷ A", ""):
        made.add_column(name, justify="left" if name in ("setting", "figure", "") else "right")
    before: Any = None
    for pair in found.pairs:
        place = (pair.run, pair.setting, pair.users)
        mark = " *" if pair.marks else ""
        head = ("", "") if place == before else (f"{pair.run} {pair.setting}{mark}", str(pair.users))
        verdict = said_pair(pair.claim)["en"]
        made.add_row(*map(escape, (*head, pair.figure, pair.first, pair.second, digits(pair.ratio), verdict)))
        before = place
    return made


def notes(found: Comparison) -> Iterator[str]:
    """Yield the notes a reader of the table needs."""
    yield "Smaller to larger of the rounds; ratios are of geometric means over the rounds. Higher, lower: by more than"
    yield "repeats of all measurements of A and B differ (docs/verdicts.md)."
    if any(pair.marks for pair in found.pairs):
        yield "* a row with marks in A or B: see their pages."
    if any(found.only):
        yield f"Not compared: {found.only[0]} settings × users only measured in A, {found.only[1]} only in B."
    if found.evaluated:
        yield "Evaluated answers are not compared here: see the page of each experiment."
    for difference in found.differences:
        named = ", ".join(difference.settings)
        yield f"differs: {difference.what}: A {difference.first}, B {difference.second} ({named})"
    if not found.differences:
        yield "No recorded fact of machine, engine, model, setting or workload differs."
