"""What our rules conclude from the published figures of the H200 experiment, whose two rounds are published as ranges.

A row of a round takes one end of each published range: the first round the smaller ends, the second the larger ones. No
rule asks which round was which. That every request was in time where a round's TTFT p95 is, is not published, so the
confidence is an upper bound.

    python benchmarks/verdicts/published.py [--language ja]
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from servebench import configuration, verdicts
from servebench.claims import Claim
from servebench.plan import Plan
from servebench.tables import derived
from servebench.tables.catalogue import SCHEMAS
from servebench.tables.files import read_reference, table
from servebench.words.claims import said

ROOT = Path(__file__).parents[2]
FIGURES = ("output_tok_s", "user_tok_s", "ttft_p50_s", "ttft_p95_s", "target_requests")


def plan() -> Plan:
    return configuration.read([ROOT / "config" / "h200.yaml"])


def rows(experiment: Plan) -> Iterator[dict[str, Any]]:
    """Two rows of the table `measurements` for each published setting × users."""
    for cell in read_reference(ROOT / "config" / "references" / "h200-concurrency.csv"):
        own = experiment.settings[cell["setting"]]
        for number, end in ((1, "min"), (2, "max")):
            row: dict[str, Any] = dict.fromkeys(SCHEMAS["measurements"].names)
            row |= {"run": cell["run"], "setting": own.name, "rank": list(experiment.settings).index(own.name)}
            row |= {"engine": own.engine.key, "engine_kind": own.engine.kind, "slots": own.slots, "digest": ""}
            row |= {"model": own.model.key, "model_name": own.model.name, "quantization": own.model.quantization}
            row |= {"users": cell["users"], "round": number, "status": "ok", "reason": [], "invalid_reasons": []}
            row |= {"valid": True, "failures": 0, "foreign_unknown": 0, "telemetry_samples": 0}
            row |= {name: cell.get(f"{name}_{end}") for name in FIGURES}
            late = row["ttft_p95_s"] is None or row["ttft_p95_s"] > experiment.line.ttft_p95_s
            row["in_time_requests"] = 0 if late else row["target_requests"]
            yield row


def conclude() -> list[Claim]:
    experiment = plan()
    measured = table("measurements", rows(experiment))
    settings = derived.settings(measured, experiment.rounds)
    tables = {"measurements": measured, "settings": settings, "queueing": derived.queueing(settings)}
    return verdicts.conclude(tables, experiment)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--language", default="en", choices=("en", "ja"))
    language = parser.parse_args().language
    for claim in conclude():
        print(f"{claim.kind:8} {said(claim)[language]}")


if __name__ == "__main__":
    main()
