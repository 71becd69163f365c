"""Say how many requests waited over a second for their first token, by the length of their prompts. Pure.

These claims state counts; none compares the lengths.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import pyarrow as pa

from servebench.claims import Claim
from servebench.plan import Plan
from servebench.tables.files import rows_of
from servebench.verdicts.levels import caveats, cells, is_valid, settings_rows, weighing


def slow(tables: Mapping[str, pa.Table], plan: Plan) -> Iterator[Claim]:
    """Yield the counts of each setting × users at which nobody queued for a slot and some request was slow.

    Where a schedule sends the requests, any number of them may queue.
    """
    measured, rows = cells(tables), settings_rows(tables)
    for row in rows_of(tables, "slow_requests"):
        place = row["run"], row["setting"], row["users"]
        found = row["other_slow"] + (row["band_slow"] or 0)
        if row["setting"] in plan.settings and plan.settings[row["setting"]].paced:
            continue
        if not row["band_total"] or not row["other_total"] or not found or row["users"] > rows[place]["slots"]:
            continue
        marks = caveats(measured[place], rows[place])
        counts = {name: row[name] for name in ("band_slow", "band_total", "other_slow", "other_total")}
        band = [row["band_low"], row["band_high"]]
        yield Claim(
            kind="slow",
            verdict="counted",
            run=row["run"],
            subjects=[row["setting"]],
            users=row["users"],
            values={**counts, "band": band, "valid": is_valid(measured[place], marks)},
            rounds=len(measured[place]),
            requests=row["band_total"] + row["other_total"],
            caveats=weighing(marks),
            rows=["/".join(map(str, place))],
        )
