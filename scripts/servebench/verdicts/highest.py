"""Say which single measurement had the highest output, so that its course can be shown. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import pyarrow as pa

from servebench.claims import Claim
from servebench.plan import Plan
from servebench.tables.files import Row, rows_of
from servebench.verdicts.levels import load_of

_PLACE = ("run", "setting", "users", "round")


def highest(tables: Mapping[str, pa.Table], plan: Plan) -> Iterator[Claim]:
    """Yield for each run the measurement with the highest output among those whose seconds are known.

    One that is not valid is named only where no valid one is. This ranks measurements, not settings.
    """
    if "timeline" not in tables:
        return
    places = tables["timeline"].select(_PLACE).group_by(_PLACE).aggregate([]).to_pylist()
    known = {tuple(row[name] for name in _PLACE) for row in places}
    for run in plan.runs:
        rows = [row for row in rows_of(tables, "measurements", run) if row["output_tok_s"] is not None]
        rows = [row for row in rows if tuple(row[name] for name in _PLACE) in known and row["setting"] in plan.settings]
        if rows:
            yield _claim(max(rows, key=lambda row: (bool(row["valid"]), row["output_tok_s"])), plan)


def _claim(row: Row, plan: Plan) -> Claim:
    setting = plan.settings[row["setting"]]
    values = {"output_tok_s": row["output_tok_s"], "round": row["round"], "valid": bool(row["valid"])}
    return Claim(
        kind="highest",
        verdict="measured",
        run=row["run"],
        subjects=[setting.name],
        users=row["users"],
        figure="output_tok_s",
        values=values | load_of(setting),
        rounds=1,
        requests=row["target_requests"],
        rows=[f"{row['run']}/{setting.name}/{row['users']}"],
    )
