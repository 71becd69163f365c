"""The published JSON: complete, honest about what is missing, and documented key by key."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from datetime import datetime, timedelta
from functools import cache
from typing import Any

import jsonschema
import msgspec
import pyarrow as pa
import pytest

import servebench
import synthetic
from servebench import schema, tables
from servebench.load.line import Line
from servebench.plan import Plan
from servebench.tables import published
from servebench.tables.published import concurrency, form, quantization

CELLS = synthetic.h200_cells()


@cache
def made() -> tuple[dict[str, pa.Table], Plan]:
    plan = synthetic.plan_of(CELLS)
    records = list(synthetic.records_of(CELLS, plan))
    records[1] = synthetic.failed(records[1], "out of memory")
    records[2].telemetry["power_w"] = [600.0] * len(records[2].telemetry["time_ns"])
    told = {"round_trip_p50_s": 0.02, "round_trip_min_s": 0.01, "round_trip_max_s": 0.09}
    for record in records:
        if record.session.session_id == "main-ollama-p1-2":
            record.session.facts.update(told)
    measured = tables.measurements(records, Line())
    settings, sessions = tables.settings(measured), tables.sessions(records)
    slow = tables.slow_requests(records, tables.reference_bands(records, {}))
    prefills = {"band_low": 513, "band_high": 530, "slow": 3, "total": 12}
    return {
        "measurements": measured,
        "settings": settings,
        "sessions": sessions,
        "ratios": tables.ratios(measured, settings, plan),
        "slow_requests": slow,
        "slow_by_micro_batch": tables.slow_by_micro_batch(slow, sessions),
        "slow_prefills": tables.table(
            "slow_prefills", [{"run": "extra", "setting": "llama-np16-control", "users": 8} | prefills]
        ),
        "cost": tables.cost(settings, 3.6),
        "paid_idle": tables.paid_idle(sessions, 3.6, 10),
    }, msgspec.structs.replace(plan, cost={"price_per_hour": 3.6, "idle_after_min": 10})


def test_each_run_has_its_own_file_with_all_its_cells(tmp_path) -> None:
    content, plan = made()
    paths = published.write(content, plan, tmp_path)
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
    result = concurrency.concurrency(content, plan, "main")["results"][0]
    assert result["meets_line_both_rounds"] is None
    why = [{"kind": "failed", "values": {"reason": "out of memory"}}]
    assert (result["failure"], result["by_round"][1]["reason"]) == (why, why)
    assert (result["by_round"][0]["reason"], result["by_round"][0]["invalid_reasons"]) == ([], [])
    assert result["by_round"][1]["status"] == "failed"
    assert result["by_round"][1]["output_tok_s"] is None
    assert result["output_tok_s"][0] == result["output_tok_s"][1]


def test_a_range_is_the_smaller_and_the_larger_of_its_rounds() -> None:
    content, plan = made()
    for result in concurrency.concurrency(content, plan, "main")["results"]:
        for figure in ("output_tok_s", "ttft_p95_s"):
            rounds = [r[figure] for r in result["by_round"] if r[figure] is not None]
            assert result[figure] == [min(rounds), max(rounds)]


def test_power_energy_and_price_stand_with_the_result_they_belong_to() -> None:
    content, plan = made()
    first, second = concurrency.concurrency(content, plan, "main")["results"][:2]
    known, unknown = second["by_round"]
    assert (known["power_w"], unknown["power_w"], first["joules_per_token"]) == (600.0, None, None)
    assert second["joules_per_token"] == pytest.approx([600 / known["output_tok_s"]] * 2, rel=1e-5)
    low, high = second["output_tok_s"]
    assert second["usd_per_million_tokens"] == pytest.approx([1000 / high, 1000 / low], rel=1e-5)
    assert second["tokens_per_s_per_usd_h"] == pytest.approx([low / 3.6, high / 3.6], rel=1e-5)


def test_starts_round_trips_and_paid_idle_time_are_published_and_null_where_unknown() -> None:
    content, plan = made()
    main = concurrency.concurrency(content, plan, "main")
    assert (main["price_per_hour"], len(main["sessions"])) == (3.6, 18)
    first, second = main["sessions"][:2]
    assert (first["setting"], first["round"], first["first_token_s"], first["round_trip_p50_s"]) == (
        *("ollama-p1", 1, 4.5, None),
    )
    assert [second[f"round_trip_{name}_s"] for name in ("p50", "min", "max")] == [0.02, 0.01, 0.09]
    assert main["paid_idle"][0] == {
        "setting": "ollama-p1",
        "first_token_s": [4.5, 4.5],
        "usd_start": pytest.approx([0.0045, 0.0045]),
        "idle_after_min": 10,
        "usd_idle": pytest.approx(0.6),
    }
    without = concurrency.concurrency(
        {name: content[name] for name in ("measurements", "settings")}, synthetic.plan_of(CELLS), "main"
    )
    assert (without["price_per_hour"], without["paid_idle"], without["slow_prefills"]) == (None, [], [])
    assert without["results"][1]["usd_per_million_tokens"] is None


def test_what_was_slow_is_published_in_its_run() -> None:
    content, plan = made()
    main, extra = (concurrency.concurrency(content, plan, run) for run in ("main", "extra"))
    assert main["slow_prefills"] == []
    assert extra["slow_prefills"] == [
        {"setting": "llama-np16-control", "users": 8, "band_low": 513, "band_high": 530, "slow": 3, "total": 12}
    ]
    group = next(row for row in extra["slow_by_micro_batch"] if row["micro_batch"] == 2048)
    assert (group["engine_kind"], group["settings"], group["users_most"]) == ("llama-server", ["llama-np16-ub2048"], 4)
    own = [r for r in extra["slow_requests"] if r["setting"] == "llama-np16-ub2048" and r["users"] <= 4]
    for name in ("band_slow", "band_total", "other_slow", "other_total"):
        assert group[name] == sum(row[name] for row in own)


def test_the_schema_takes_further_keys_and_refuses_what_lacks_or_is_another_version() -> None:
    content, plan = made()
    good = concurrency.concurrency(content, plan, "main")
    jsonschema.validate(good | {"speed": 1}, concurrency.SCHEMA)
    for wrong in ({"schema": "servebench.concurrency/2"}, {"results": [{"setting": "np4"}]}, {"rounds": "two"}):
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate(good | wrong, concurrency.SCHEMA)


def test_a_file_says_by_itself_what_was_measured_where_and_when() -> None:
    content, plan = made()
    plan = msgspec.structs.replace(plan, license="CC0-1.0")
    made_ = concurrency.concurrency(content, plan, "main")
    assert (made_["license"], made_["servebench_version"]) == ("CC0-1.0", servebench.__version__)
    assert datetime.fromisoformat(made_["created_at"]).utcoffset() == timedelta(0)
    assert [(one["machine"], one["cores"]) for one in made_["machines"]] == [("NVIDIA H200", 96)]
    for setting in made_["settings"]:
        assert (setting["workload"]["window_s"], setting["prompts_sha256"]) == (60, "0" * 64)
        assert all(server["protocol"] and server["servebench_version"] for server in setting["servers"])


def test_a_server_is_listed_once_whatever_port_its_launches_chose() -> None:
    content, plan = made()

    def servers(*own: list[str]) -> int:
        rows = [row | {"argv": own[row["round"] % 2]} for row in schema.rows(content["measurements"])]
        changed = content | {"measurements": tables.table("measurements", rows)}
        return max(len(one["servers"]) for one in concurrency.concurrency(changed, plan, "main")["settings"])

    docker = ["docker", "run", "--name", "{}", "--publish", "127.0.0.1:{}:{}", "vllm", "--port", "{}"]
    assert servers(["llama", "--port", "8001", "-c", "64"], ["llama", "--port", "8002", "-c", "64"]) == 1
    assert servers(*([part.replace("{}", port) for part in docker] for port in ("8001", "8002"))) == 1
    assert servers(["llama", "--port", "8001", "-c", "64"], ["llama", "--port", "8001", "-c", "65"]) == 2


def test_numbers_are_short_and_paths_are_not_those_of_a_machine() -> None:
    content = {
        "a": [1 / 3, 12345678.9, 7, None, True],
        "argv": ["/home/me/.cache/servebench/envs/x/bin/python", "--log=/home/me/run/a.log", "-m", "../models/a.gguf"],
        "b": {
            "file": "file:///home/me/models/a.gguf",
            "mount": "/home/me/cache/models:/models:ro",
            "json": '{"f": "/a/b/c"}',
        },
        "home": ["/home/me/a.gguf", "/Users/me/My Models/a.gguf", "/Users/me/b/c/d"],
        "kept too": "http://h/home/a/b",
        "kept": [
            "http://127.0.0.1:8000/v1/chat/completions",
            "hf://a/b/c",
            "/dev/shm",
            "tok/s/user",
            "1/2/3",
        ],
    }
    assert form.finished(content, {}) == {
        "a": [0.333333, 12345700.0, 7, None, True],
        "argv": ["bin/python", "--log=run/a.log", "-m", "../models/a.gguf"],
        "b": {"file": "file://models/a.gguf", "mount": "cache/models:/models:ro", "json": '{"f": "b/c"}'},
        "home": ["~/a.gguf", "~/My Models/a.gguf", "c/d"],
        "kept too": content["kept too"],
        "kept": content["kept"],
    }


def keys(form_: object) -> Iterator[tuple[str, dict[str, Any]]]:
    """Every key that a JSON Schema names, with what the schema says of it."""
    if isinstance(form_, dict):
        yield from form_.get("properties", {}).items()
        for value in form_.values():
            yield from keys(value)


@pytest.mark.parametrize("kind", [concurrency, quantization])
def test_every_key_is_documented(kind) -> None:
    docs = synthetic.ROOT / "docs"
    text = "".join((docs / name).read_text(encoding="utf-8") for name in ("json.md", "tables.md"))
    found = dict(keys(kind.SCHEMA))
    assert found.keys() - set(re.findall(r"`([a-z0-9_]+)`", text)) == set()
    assert [name for name, node in keys(kind.SCHEMA) if len(node.get("description", "")) < 5] == []


def test_the_schema_files_are_what_is_checked() -> None:
    for path, text in published.schemas().items():
        assert path.read_text(encoding="utf-8") == text, "make schema"


def test_a_file_holds_no_key_that_its_schema_does_not_name() -> None:
    content, plan = made()

    def unnamed(value: Any, node: dict[str, Any]) -> set[str]:
        if isinstance(value, list):
            return set().union(*(unnamed(one, node.get("items", {})) for one in value))
        if not isinstance(value, dict) or "properties" not in node:
            return set()
        inner = (unnamed(one, node["properties"].get(name, {})) for name, one in value.items())
        return (value.keys() - node["properties"].keys()).union(*inner)

    for run in ("main", "extra"):
        assert unnamed(concurrency.concurrency(content, plan, run), dict(concurrency.SCHEMA)) == set()
