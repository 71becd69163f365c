"""Tables of measurements as a test wants them, and what is concluded from them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec
import pyarrow as pa

import synthetic
from servebench import verdicts
from servebench.claims import Claim
from servebench.plan import Plan
from servebench.tables import derived
from servebench.tables.catalogue import SCHEMAS
from servebench.tables.cost import cost
from servebench.tables.files import table

GOOD = {"output_tok_s": 100.0, "user_tok_s": 40.0, "ttft_p50_s": 0.5, "ttft_p95_s": 1.0, "target_requests": 60}


def plan_of(levels: Mapping[str, Iterable[int]], rounds: int = 2) -> Plan:
    """Make the plan of these settings and numbers of users."""
    cells = [{"run": "main", "setting": name, "users": n} for name, users in levels.items() for n in users]
    return msgspec.structs.replace(synthetic.plan_of(cells), rounds=rounds)


def row(plan: Plan, setting: str, users: int, round_: int, **figures: Any) -> dict[str, Any]:
    """Make the row of a good measurement, changed by `figures`."""
    own = plan.settings[setting]
    found: dict[str, Any] = dict.fromkeys(SCHEMAS["measurements"].names)
    found |= {"run": "main", "setting": setting, "rank": list(plan.settings).index(setting), "users": users}
    found |= {"engine": own.engine.key, "engine_kind": own.engine.kind, "model": own.model.key, "slots": own.slots}
    found |= {"model_name": own.model.name, "quantization": own.model.quantization, "round": round_}
    found |= {"status": "ok", "reason": [], "invalid_reasons": [], "valid": True, "failures": 0, "digest": "d"}
    found |= {
        "foreign_unknown": 0,
        "telemetry_samples": 0,
        "output_tokens_mean": 130.0,
        "fingerprint": "m",
        "machine": "H200",
    }
    found |= GOOD | figures
    line, targets = plan.line, found["target_requests"]
    if found["status"] != "ok":
        return found | dict.fromkeys((*GOOD, "failures", "valid", "output_tokens_mean"))
    in_time = found["ttft_p95_s"] is not None and found["ttft_p95_s"] <= line.ttft_p95_s
    speed = found["user_tok_s"] is not None and found["user_tok_s"] >= line.user_tok_s
    found["in_time_requests"] = figures.get("in_time_requests", targets if in_time else 0)
    found["reference_only"] = targets < line.min_targets
    found["meets_line"] = in_time and speed and not found["failures"] and not found["reference_only"]
    return found


def tables_of(plan: Plan, rows: Iterable[dict[str, Any]]) -> dict[str, pa.Table]:
    """Make the tables that claims on levels are drawn from."""
    measured = table("measurements", rows)
    settings = derived.settings(measured, plan.rounds)
    made = {"measurements": measured, "settings": settings, "queueing": derived.queueing(settings)}
    if plan.cost:
        made["cost"] = cost(settings, plan.cost["price_per_hour"])
    return made


def concluded(plan: Plan, rows: Iterable[dict[str, Any]], **others: pa.Table) -> list[Claim]:
    return verdicts.conclude(tables_of(plan, rows) | others, plan)


def only(found: Iterable[Claim], kind: str, **where: Any) -> Claim:
    """Return the only claim of this kind about these subjects."""
    (claim,) = [c for c in found if c.kind == kind and all(getattr(c, name) == value for name, value in where.items())]
    return claim


def both(plan: Plan, setting: str, users: int, **figures: Any) -> list[dict[str, Any]]:
    """Both rounds alike."""
    return [row(plan, setting, users, n, **figures) for n in range(1, plan.rounds + 1)]
