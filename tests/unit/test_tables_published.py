"""The published JSON: complete, honest about what is missing, and documented key by key."""

from __future__ import annotations

import json
import re
from functools import cache

import jsonschema
import pyarrow as pa
import pytest

import synthetic
from servebench import publish, tables
from servebench.figures import Line
from servebench.plan import Plan

CELLS = synthetic.h200_cells()


@cache
def made() -> tuple[dict[str, pa.Table], Plan]:
    plan = synthetic.plan_of(CELLS)
    records = list(synthetic.records_of(CELLS, plan))
    records[1] = synthetic.failed(records[1], "out of memory")
    measured = tables.measurements(records, Line())
    return {
        "measurements": measured,
        "settings": tables.settings(measured),
        "sessions": tables.sessions(records),
        "ratios": tables.ratios(measured, plan),
        "slow_requests": tables.slow_requests(records, tables.reference_bands(records, {})),
    }, plan


def test_each_run_has_its_own_file_with_all_its_cells(tmp_path) -> None:
    content, plan = made()
    paths = publish.write(content, plan, tmp_path)
    assert [p.name for p in paths] == ["concurrency.json", "extra_concurrency.json"]
    main, extra = (json.loads(p.read_text(encoding="utf-8")) for p in paths)
    assert (len(main["results"]), len(extra["results"])) == (53, 21)
    assert (len(main["settings"]), len(extra["settings"])) == (9, 7)
    assert all(len(result["by_round"]) == 2 for result in main["results"] + extra["results"])
    assert not {r["setting"] for r in main["results"]} & {r["setting"] for r in extra["results"]}
    assert {r["kind"] for r in main["ratios"]} == {"engine", "slots", "quantization"}
    assert "control" in {r["kind"] for r in extra["ratios"]}


def test_a_failed_round_is_null_with_its_reason() -> None:
    content, plan = made()
    result = publish.concurrency(content, plan, "main")["results"][0]
    assert result["meets_line_both_rounds"] is None
    assert result["failure"] == "out of memory"
    assert result["by_round"][1]["status"] == "failed"
    assert result["by_round"][1]["output_tok_s"] is None
    assert result["output_tok_s"][0] == result["output_tok_s"][1]


def test_a_range_is_the_smaller_and_the_larger_of_its_rounds() -> None:
    content, plan = made()
    for result in publish.concurrency(content, plan, "main")["results"]:
        for figure in ("output_tok_s", "ttft_p95_s"):
            rounds = [r[figure] for r in result["by_round"] if r[figure] is not None]
            assert result[figure] == [min(rounds), max(rounds)]


def test_the_schema_refuses_what_it_does_not_know() -> None:
    content, plan = made()
    good = publish.concurrency(content, plan, "main")
    with pytest.raises(jsonschema.ValidationError, match="speed"):
        jsonschema.validate(good | {"speed": 1}, publish.SCHEMA)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({**good, "schema": "servebench.concurrency/0"}, publish.SCHEMA)


def keys(schema: object) -> set[str]:
    if isinstance(schema, dict):
        own = set(schema.get("properties", {}))
        return own.union(*(keys(value) for value in schema.values()))
    if isinstance(schema, list):
        return set().union(*(keys(value) for value in schema))
    return set()


def test_every_key_is_documented() -> None:
    text = (synthetic.ROOT / "docs" / "json.md").read_text(encoding="utf-8")
    assert keys(dict(publish.SCHEMA)) - set(re.findall(r"`([a-z0-9_]+)`", text)) == set()
