"""Speed by the length of the prompt: which settings make a series, which values a row has. By hand."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

import synthetic
from servebench import ROOT, configuration, tables
from servebench.marks import mark
from servebench.plan import Setting
from servebench.tables.depth import depth
from servebench.tables.measured import turns


def setting(name: str, prompt_tokens: Any, reply_tokens: int = 128, slots: int = 4) -> Setting:
    made = synthetic.setting_of("llama-np4", "main", (1, 8))
    load = {"mode": "closed", "prompts": "en-short", "prompt_tokens": prompt_tokens, "reply_tokens": reply_tokens}
    load = {key: value for key, value in load.items() if value is not None}
    return replace(made, name=name, slots=slots, workload={"max_tokens": 256, **load})


def row(setting: Setting, users: int, prefill: float | None, decode: float | None) -> dict[str, Any]:
    values: dict[str, Any] = dict.fromkeys(tables.SCHEMAS["settings"].names)
    ends = {"prompt_tok_s": prefill, "user_tok_s": decode, "prompt_tokens_p50": None if prefill is None else 1000.0}
    for figure, value in ends.items():
        values |= {f"{figure}_min": value, f"{figure}_max": None if value is None else value + 1}
    values |= {"run": setting.run, "setting": setting.name, "rank": 0, "users": users, "rounds": 2, "slots": 4}
    values |= {"engine": "llama", "engine_kind": "llama-server", "model": "m", "model_name": "M", "marks": []}
    return values | {"failures_max": 0, "failure": []}


def made(*settings: Setting, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return depth(tables.table("settings", rows), {one.name: one for one in settings}).to_pylist()


def test_settings_that_differ_in_the_prompts_length_alone_make_a_series_in_its_order() -> None:
    long, short = setting("now-4096-128", 4096), setting("now-128-128", 128)
    other = setting("now-128-1024", 128, reply_tokens=1024)  # alone with its replies' length
    chat = setting("chat", None)
    rows = [row(long, 8, 5.0, 5.0), row(long, 1, 400.0, 20.0), row(short, 1, 300.0, 30.0)]
    rows += [row(other, 1, 1.0, 1.0), row(chat, 1, 1.0, 1.0)]
    found = made(long, short, other, chat, rows=rows)
    columns = ("series", "setting", "users", "prompt_tokens", "reply_tokens", "prompt_tok_s_min", "user_tok_s_max")
    assert [tuple(one[name] for name in columns) for one in found] == [
        ("now", "now-128-128", 1, 128, "128", 300.0, 31.0),
        ("now", "now-4096-128", 1, 4096, "128", 400.0, 21.0),
    ]


def test_each_run_has_its_own_series() -> None:
    settings = [setting(f"a-{length}", length) for length in (128, 1024)]
    control = [replace(one, name=f"{one.name}-control", run="control") for one in settings]
    found = made(*settings, *control, rows=[row(one, 1, 10.0, 10.0) for one in (*settings, *control)])
    assert [(one["run"], one["prompt_tokens"]) for one in found] == [
        *(("main", length) for length in (128, 1024)),
        *(("control", length) for length in (128, 1024)),
    ]


def test_the_runs_that_a_matrix_makes_of_lengths_are_one_series_for_each_length_of_replies() -> None:
    plan = configuration.read([ROOT / "config" / "lengths.yaml"])
    found = made(*plan.settings.values(), rows=[row(one, 1, 10.0, 10.0) for one in plan.settings.values()])
    lengths = [128, 1024, 2048, 4096, 8192, 16384, 32768]
    assert [(one["reply_tokens"], one["prompt_tokens"]) for one in found] == [
        (replies, length) for replies in ("128", "1024") for length in lengths
    ]


def test_a_matrix_of_two_runs_makes_two_series() -> None:
    settings = [replace(setting(f"a-{n}", n), run=f"{run}-{n}") for run in ("main", "control") for n in (128, 1024)]
    named = [replace(one, name=f"{one.name}-{one.run}") for one in settings]
    found = made(*named, rows=[row(one, 1, 10.0, 10.0) for one in named])
    assert [one["run"] for one in found] == ["main-128", "main-1024", "control-128", "control-1024"]


def test_settings_with_other_slots_are_another_series() -> None:
    settings = [setting(f"np-{slots}-{length}", length, slots=slots) for slots in (1, 4) for length in (128, 1024)]
    found = made(*settings, rows=[row(one, 1, 10.0, 10.0) for one in settings])
    assert [one["series"] for one in found] == ["np-1", "np-1", "np-4", "np-4"]


def test_a_distribution_of_lengths_is_no_length_and_what_was_not_measured_has_no_row() -> None:
    spread, short, long = setting("a-u", "uniform:1,9"), setting("a-128", 128), setting("a-1024", 1024)
    found = made(spread, short, long, rows=[row(spread, 1, 1.0, 1.0), row(short, 1, None, None)])
    assert [(one["setting"], one["prompt_tok_s_min"]) for one in found] == [("a-128", None)]


def test_marks_are_those_of_the_setting() -> None:
    short, long = setting("a-128", 128), setting("a-1024", 1024)
    marked = row(short, 1, 10.0, 10.0) | {
        "marks": [mark("unstable_rounds", figure="user_tok_s", first=1.0, second=2.0)]
    }
    found = depth(tables.table("settings", [marked, row(long, 1, 9.0, 9.0)]), {"a": short, "b": long})
    assert [bool(marks) for marks in found["marks"].to_pylist()] == [True, False]


def test_each_turn_of_a_measurement_has_a_row() -> None:
    """Of a record's requests of prompt "a turn 1" and "a turn 2" in turn, each half is a turn's."""
    cells = synthetic.quickstart_cells()[:1]
    record = next(iter(synthetic.records_of(cells, synthetic.plan_of(cells, "quickstart"), window_s=10)))
    ids = [f"a turn {1 + n % 2}" for n in range(len(record.requests))]
    place = record.requests.schema.get_field_index("prompt_id")
    field = record.requests.schema.field("prompt_id")
    talking = replace(record, requests=record.requests.set_column(place, field, [ids]))
    good = [
        (name, phase == "window" and status == "ok")
        for name, phase, status in zip(ids, *(record.requests[c].to_pylist() for c in ("phase", "status")), strict=True)
    ]
    found = turns([talking]).to_pylist()
    assert [(one["setting"], one["round"], one["turn"]) for one in found] == [
        (record.identity.setting, 1, 1),
        (record.identity.setting, 1, 2),
    ]
    assert [one["requests"] for one in found] == [good.count((f"a turn {turn}", True)) for turn in (1, 2)]
    assert turns([record]).num_rows == 0
