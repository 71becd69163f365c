"""Read folders of `servebench load` as tables of an experiment with one setting and one round. Pure but for reading."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from servebench.faults import Fault
from servebench.load.line import Line
from servebench.marks import Mark
from servebench.plan import Engine, Model, Plan, Setting
from servebench.tables import derived
from servebench.tables.catalogue import SCHEMAS
from servebench.tables.files import Row, table

RUN, SETTING = "main", "load"
LINE = Line()


def folders(folder: Path) -> list[Path]:
    """List the folders of measurements in `folder`: itself, or those of its numbers of users; [] without one."""
    found = [folder, *sorted(folder.glob("users-*"))]
    return [one for one in found if (one / "summary.json").is_file()]


def read(folder: Path, line: Line = LINE, name: str | None = SETTING) -> tuple[Plan, dict[str, pa.Table]]:
    """Read the measurements of a folder, made with this line, as `tables_of` gives them.

    Raises Fault for a summary of another shape.
    """
    return tables_of(list(_summaries(folder)), folder.name, line, name)


def tables_of(
    summaries: Sequence[Mapping[str, Any]], experiment: str, line: Line = LINE, name: str | None = SETTING
) -> tuple[Plan, dict[str, pa.Table]]:
    """Return the plan and the tables of measurements of one load, given as the content of their summary.json.

    name: of the one setting; the same for all loads, so that they can be compared. None: the model's.
    """
    setting = _setting(summaries, name)
    plan = Plan(
        experiment=experiment,
        title=experiment,
        rounds=1,
        line=line,
        models={setting.model.key: setting.model},
        engines={"url": setting.engine},
        settings={setting.name: setting},
        runs={RUN: {}},
    )
    measurements = table("measurements", [_row(setting, summary) for summary in summaries])
    return plan, {"measurements": measurements, "settings": derived.settings(measurements, plan.rounds)}


def searched(summaries: Mapping[tuple[int, int], Mapping[str, Any]]) -> tuple[Setting, list[Row]]:
    """Return the setting of a search for the capacity, and its rows of `measurements`.

    summaries: the content of each summary.json by (level, round). Levels are users, or steps of a rate.
    """
    setting = _setting(list(summaries.values()), None)
    rows = [_row(setting, one) | {"users": level, "round": round_} for (level, round_), one in summaries.items()]
    return setting, rows


def _setting(summaries: Sequence[Mapping[str, Any]], name: str | None) -> Setting:
    meta = summaries[0]["meta"]
    target = meta["target"]
    return Setting(
        name=name or target["model"],
        run=RUN,
        engine=Engine(key="url", kind="url", url=target["url"]),
        model=Model(key=target["model"], name=target["model"]),
        slots=1,
        request=target["extra"],
        users=tuple(sorted({summary["meta"]["users"] for summary in summaries})),
        workload=meta["workload"],
    )


def _summaries(folder: Path) -> Iterator[dict[str, Any]]:
    for one in folders(folder):
        path = one / "summary.json"
        try:
            summary = json.loads(path.read_bytes())
            _ = summary["meta"]["target"]["model"], summary["meta"]["workload"], summary["meta"]["users"]
        except (ValueError, KeyError, TypeError) as error:
            raise Fault(f"{path}: is no summary of a load ({error!r}); load again") from None
        yield summary


def _row(setting: Setting, summary: Mapping[str, Any]) -> dict[str, Any]:
    meta = summary["meta"]
    row: dict[str, Any] = {name: summary.get(name) for name in SCHEMAS["measurements"].names}
    row |= {
        "run": RUN,
        "setting": setting.name,
        "rank": 0,
        "users": meta["users"],
        "round": 1,
        "status": "ok",
        "reason": [],
    }
    row |= {"engine": setting.engine.key, "engine_kind": setting.engine.kind, "slots": setting.slots, "digest": ""}
    row |= {"model": setting.model.key, "model_name": setting.model.name, "protocol": meta["protocol"]}
    row |= {"engine_version": meta["target"].get("version")}
    row |= {"started_at": meta["started_at"], "foreign_unknown": 0, "telemetry_samples": 0}
    return row | {"invalid_reasons": [Mark(mark["kind"], mark["values"]) for mark in summary["invalid_reasons"]]}
