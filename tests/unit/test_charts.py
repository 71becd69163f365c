"""The charts draw what the tables hold, in both languages, and say so when there is no data."""

from __future__ import annotations

import importlib
import importlib.util
import itertools
import math
import re
import string
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

import pyarrow as pa
import pytest
from scipy.stats import binomtest

import synthetic
import synthetic_answers
from servebench import charts, claims, schema, tables, verdicts, words
from servebench.charts import against_users, style, timeline, tradeoff
from servebench.charts.files import picture, save
from servebench.load.calibrate import VARIANTS
from servebench.marks import mark
from servebench.plan import Plan
from servebench.report import drawing, spoken
from servebench.tables import SCHEMAS
from servebench.words import numbers

PNG = b"\x89PNG\r\n\x1a\n"
EVALUATIONS = ("quality",)


def depth_row(prompt_tokens: int, **lows: float) -> dict[str, Any]:
    """A setting with such prompts; the larger round of each figure is 20 above the smaller."""
    place = {"run": f"main-{prompt_tokens}", "setting": f"np4-{prompt_tokens}", "users": 1, "marks": []}
    ends = {f"{name}_{end}": low + more for name, low in lows.items() for end, more in (("min", 0), ("max", 20))}
    series = {"series": "np4", "engine_kind": "llama-server", "prompt_tokens": prompt_tokens, "reply_tokens": "128"}
    return place | ends | series


DEPTH = tables.table(
    "depth",
    [
        depth_row(128, prompt_tokens_p50=128.0, prompt_tok_s=900.0, user_tok_s=55.0),
        depth_row(4096, prompt_tokens_p50=4096.0, prompt_tok_s=700.0, user_tok_s=41.0),
    ],
)


@cache
def small() -> tuple[dict[str, pa.Table], Plan]:
    cells = synthetic.quickstart_cells()
    plan = synthetic.plan_of(cells, "quickstart")
    records = list(synthetic.records_of(cells, plan, window_s=10, machine=synthetic.LAPTOP))
    made = synthetic.from_records(records, [], plan)
    return concluded(made | {"depth": DEPTH} | synthetic_answers.made()[1], plan), plan


def concluded(content: dict[str, pa.Table], plan: Plan) -> dict[str, pa.Table]:
    """Add what may be concluded from the tables to the tables."""
    return content | {"verdicts": claims.table(verdicts.conclude(content, plan))}


def drawn(name: str, language: str = "en") -> dict[str, Any]:
    content, plan = small()
    return charts.whole(name, content, style.Style(language=language), list(plan.runs)).to_dict()


def rows_drawn(specification: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [row for rows in specification["datasets"].values() for row in rows]


@pytest.mark.parametrize(
    ("name", "figure"),
    [
        ("output_by_users", "output_tok_s"),
        ("ttft_by_users", "ttft_p95_s"),
        ("user_by_users", "user_tok_s"),
    ],
)
def test_drawn_ranges_are_the_smaller_and_larger_of_the_table(name: str, figure: str) -> None:
    content, _ = small()
    wanted = {
        (row["setting"], row["users"], row[f"{figure}_min"], row[f"{figure}_max"])
        for row in content["settings"].to_pylist()
    }
    seen = {
        (row["setting"], row["users"], row["low"], row["high"])
        for row in rows_drawn(drawn(name))
        if {"setting", "low", "high"} <= row.keys()
    }
    assert seen == wanted
    middles = [(r["low"] + r["high"]) / 2 == r["middle"] for r in rows_drawn(drawn(name)) if "high" in r]
    assert middles
    assert all(middles)


@cache
def full() -> tuple[dict[str, pa.Table], Plan]:
    """Both runs of the H200 experiment, as far as charts need them that the small one has nothing for."""
    cells = [
        cell
        for cell in synthetic.h200_cells()
        if cell["run"] == "extra" or cell["setting"] in ("llama-np4", "llama-np16", "ollama-p4", "ollama-p16")
    ]
    plan = synthetic.plan_of(cells)
    made = synthetic.from_records(list(synthetic.records_of(cells, plan)), [], plan)
    return concluded(made | {"depth": DEPTH} | synthetic_answers.made()[1], plan), plan


def plots(specification: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    if "width" in specification:
        yield specification
    for inner in ("hconcat", "vconcat", "concat"):
        for part in specification.get(inner, ()):
            yield from plots(part)


@pytest.mark.parametrize("name", charts.CHARTS)
def test_configured_sizes_are_those_of_the_plots_and_panels_share_the_width(name: str) -> None:
    content, plan = full()
    usual, asked = (
        list(plots(charts.whole(name, content, style.Style.configured(sizes, plan), list(plan.runs)).to_dict()))
        for sizes in ({}, {"width": 1234, "height": 123})
    )
    assert len(usual) == len(asked) > 0
    beside = {"output_by_users": 2, "user_by_users": 2, "ttft_by_users": 2, "ttft_ecdf": 3, "depth": 2}
    assert {plot["width"] for plot in asked} == {1234 // beside.get(name, 1)}
    assert {plot["width"] for plot in usual}.isdisjoint({plot["width"] for plot in asked})
    for before, after in zip(usual, asked, strict=True):
        assert after["height"] == (before["height"] if isinstance(before["height"], dict) else 123)


TABLES = {"tradeoff": "settings", "quality": "comparisons", "ttft_ecdf": "ttft", "client_error": "calibration"}


def points_of(name: str) -> Iterator[tuple[Any, ...]]:
    """What the chart is to show, in the order (low, high) or (x, y), from the table alone."""
    made, _ = full()
    run = "extra" if name == "ratios" else "main"
    ours = [row for row in made["settings"].to_pylist() if row["run"] == run]
    table = TABLES.get(name, name)
    rows = [row for row in made[table].to_pylist() if row.get("run", run) == run]
    place = {(row["setting"], row["users"]): row for row in ours}
    if name == "tradeoff":
        yield from ((row["users"], row["user_tok_s_min"], row["output_tok_s_max"]) for row in ours)
    elif name == "ratios":
        for row in rows:
            if row["kind"] == "control" and row["figure"] == "output_tok_s":
                yield row["ratio_min"], row["ratio_max"]
    elif name == "slow_requests":
        for row in rows:
            queued = row["users"] > place[row["setting"], row["users"]]["slots"]
            if row["band_total"] and row["other_total"] and row["band_slow"] + row["other_slow"] and not queued:
                for kind in ("band", "other"):
                    ends = binomtest(row[f"{kind}_slow"], row[f"{kind}_total"]).proportion_ci(0.95)
                    yield 100 * ends.low, 100 * ends.high
    elif name == "memory":
        yield from ((row["measured_gib"],) for row in rows)
    elif name == "ttft_ecdf":
        for row in rows:
            total = len(row["ttft_s"]) + row["failures"]
            yield row["users"], row["round"], row["ttft_s"][-1], len(row["ttft_s"]) / total
    elif name == "quality":
        yield from ((row["target"], row["low"], row["high"]) for row in rows)
    elif name == "depth":
        yield from ((r["prompt_tokens"], r[f"{f}_min"], r[f"{f}_max"]) for r in made[name].to_pylist() for f in SPEEDS)
    elif name == "unstable":
        yield from ((min(1, row["ratio"]), max(1, row["ratio"])) for row in rows[:20])
    elif name == "client_error":
        yield from ((row["users"], 1000 * row["ttft_error_p99_s"]) for row in rows)
    elif name == "timeline":
        best = max((r for r in made["measurements"].to_pylist() if r["run"] == run), key=lambda r: r["output_tok_s"])
        own = [r for r in rows if all(r[n] == best[n] for n in ("setting", "users", "round"))]
        last = max(row["second"] for row in own)
        yield from ((r["second"], r["running"], r["output_tok_s"]) for r in own if r["second"] < last)


SPEEDS = ("prompt_tok_s", "user_tok_s")
SHOWN = {
    **dict.fromkeys(("ratios", "slow_requests", "unstable"), ("low", "high")),
    "tradeoff": ("users", "x_min", "y_max"),
    "quality": ("target", "low", "high"),
    "memory": ("measured",),
    "depth": ("prompt_tokens", "low", "high"),
    "ttft_ecdf": ("users", "round", "s", "share"),
    "client_error": ("users", "error"),
    "timeline": ("second", "running", "output_tok_s"),
}


@pytest.mark.parametrize("name", SHOWN)
def test_what_is_drawn_is_what_its_table_has(name: str) -> None:
    made, _ = full()
    shown = charts.whole(name, made, style.Style(), ["extra" if name == "ratios" else "main"]).to_dict()
    rows = [tuple(row[field] for field in SHOWN[name]) for row in rows_drawn(shown) if set(SHOWN[name]) <= row.keys()]
    if name == "ttft_ecdf":  # the last step of each measurement; the others are at ranks between
        ends: dict[Any, tuple[Any, ...]] = {}
        for row in rows_drawn(shown):
            if "s" in row:
                ends[row["setting"], row["users"], row["round"]] = tuple(row[field] for field in SHOWN[name])
        rows = list(ends.values())
    if name == "timeline":  # the last step ends where the next would begin
        rows = [row for row in rows if row[0] < max(r[0] for r in rows)]
    wanted = sorted(points_of(name))
    assert wanted
    assert len(set(rows)) == len(set(wanted)), name
    for one, other in zip(sorted(set(rows)), sorted(set(wanted)), strict=True):
        assert [v for v in one if isinstance(v, str)] == [v for v in other if isinstance(v, str)]
        numbers_ = [[v for v in row if not isinstance(v, str)] for row in (one, other)]
        assert numbers_[0] == pytest.approx(numbers_[1], abs=1e-4), name


def test_every_chart_is_checked_against_its_table() -> None:
    of_ranges = {"output_by_users", "ttft_by_users", "user_by_users", "output_bars"}
    assert set(SHOWN) | of_ranges == set(charts.CHARTS)


def test_bars_end_where_the_rounds_do_and_stand_by_engine_and_slots() -> None:
    content, _ = small()
    at_four = [row for row in content["settings"].to_pylist() if row["users"] == 4]
    at_four.sort(key=lambda row: (row["engine_kind"], row["slots"], row["rank"]))
    bars = rows_drawn(drawn("output_bars"))
    assert [(b["low"], b["high"]) for b in bars] == [(r["output_tok_s_min"], r["output_tok_s_max"]) for r in at_four]


def test_filled_points_and_discs_are_what_was_concluded() -> None:
    content, _ = full()
    met = {
        (claim.subjects[0], claim.users)
        for claim in claims.of(content, "main", "level")
        if claim.verdict == "met" and claim.values["valid"]
    }
    points = tradeoff.points(content, "main")
    assert {(p["setting"], p["users"]) for p in points if p["met"]} == met != set()
    choices = claims.of(content, "main", "choice")
    named = {(name, claim.users) for claim in choices for name in claim.values["choose"]}
    assert {(p["setting"], p["users"]) for p in tradeoff.chosen(content, "main", points)} == named != set()


def test_the_frontier_has_every_point_within_the_target_that_no_other_outdoes() -> None:
    def point(x: float, y: float, met: bool = True) -> dict[str, Any]:
        return {"x": x, "y": y, "met": met}

    best = [point(10, 400), point(20, 300), point(50, 100)]
    others = [point(15, 300), point(20, 250), point(5, 400), point(50, 99), point(60, 500, met=False)]
    assert tradeoff.frontier([*others, *best]) == best
    assert tradeoff.frontier([point(10, 1, met=False)]) == []
    assert tradeoff.frontier([point(3, 3), point(3, 3)]) == [point(3, 3)]


def test_the_more_slots_the_stronger_the_colour() -> None:
    content, plan = full()
    look = style.Style.configured({}, plan)
    slots = sorted({s.slots for s in plan.settings.values() if s.engine.kind == "llama-server"})
    paper = luminance(style.PAPER[0])
    gaps = [paper - luminance(look.shade("llama-server", number)) for number in slots]
    assert len(slots) > 1 and gaps == sorted(gaps) and gaps[0] < gaps[-1]
    assert look.shade("vllm", 7) == look.colour("vllm"), "no setting has this number"
    shown = rows_drawn(charts.whole("tradeoff", content, look, ["main"]).to_dict())
    own = {p["setting"]: p["slots"] for p in tradeoff.points(content, "main") if p["engine"] == "llama-server"}
    assert {row["shade"] for row in shown if row.get("setting") in own and "shade" in row} == {
        look.shade("llama-server", number) for number in own.values()
    }


def test_with_a_price_the_output_has_a_second_axis_in_dollars() -> None:
    content, _ = full()
    priced = content | {"cost": tables.cost(content["settings"], 3.6)}  # 0.001 USD a second
    for made, wanted in ((content, set()), (priced, {(500.0, "2.00"), (200.0, "5.00"), (100.0, "10.0")})):
        shown = charts.whole("tradeoff", made, style.Style(), ["main"]).to_dict()
        ticks = {(round(row["y"], 6), row["text"]) for row in rows_drawn(shown) if set(row) == {"y", "text"}}
        assert wanted <= ticks and bool(wanted) == bool(ticks)
        assert {row["usd"] is None for row in charts.values("tradeoff", made, "main")} == {not wanted}


def test_names_at_the_lines_ends_cover_neither_points_nor_each_other() -> None:
    content, _ = full()
    shown = charts.whole("tradeoff", content, style.Style(), ["main"]).to_dict()
    names = {row["setting"]: (row["align"], row["at"]) for row in rows_drawn(shown) if "align" in row}
    assert set(names) == {row["setting"] for row in tradeoff.points(content, "main")}
    assert len(set(names.values())) == len(names)


def test_the_forest_has_p_of_all_repeats_and_what_the_models_setting_gives_and_needs() -> None:
    content, _ = full()
    targets = [
        row | ({"model": "qwen3-14b-q4_k_m"} if row["target"] == "Q4_K_M" else {})
        for row in schema.rows(content["targets"])
    ]
    content = content | {"targets": tables.table("targets", targets)}
    asked = {row["target"]: row for row in targets}
    tested = {(row["measure"], row["target"]): row["combined_p_holm"] for row in content["comparisons"].to_pylist()}
    memory = {row["setting"]: row["measured_gib"] for row in content["memory"].to_pylist() if row["run"] == "main"}
    points = charts.values("quality", content, "main")
    assert {point["p"] for point in points} == {numbers.digits(p) for p in tested.values()}
    rows = [row for row in content["settings"].to_pylist() if row["run"] == "main"]
    for point in points:
        same = [row for row in rows if row["model"] == asked[point["target"]]["model"]]
        assert (point["setting"] is None) == (not same)
        if same:
            best = max((row for row in same if row["users"] == 16), key=lambda row: row["output_tok_s_min"])
            assert point["setting"] == best["setting"]
            assert point["gib"] == (numbers.digits(memory[best["setting"]]) if best["setting"] in memory else None)
            assert point["output_tok_s"] == numbers.span(best["output_tok_s_min"], best["output_tok_s_max"])
    assert {point["target"] for point in points if point["setting"]} == {"Q4_K_M"}
    shown = charts.whole("quality", content, style.Style(), ["main"]).to_dict()
    heads = {row["text"] for row in rows_drawn(shown) if "edge" in row and "target" not in row}
    assert heads == {"score", "p", "GiB", "tok/s"}


def test_a_kv_cache_that_is_full_before_the_slots_is_a_tick_on_its_line() -> None:
    content, _ = full()
    rows = [
        row | {"requests_fit": {"llama-np16": 8, "llama-np4": 4}.get(row["setting"])}
        for row in schema.rows(content["memory"])
    ]
    made = content | {"memory": tables.table("memory", rows)}
    points = charts.values("output_by_users", made, "main")
    assert {p["fit"] for p in points if p["setting"] == "llama-np4"} == {None}, "as many as there are slots"
    at_eight = next(p["middle"] for p in points if (p["setting"], p["users"]) == ("llama-np16", 8))
    shown = charts.whole("output_by_users", made, style.Style(), ["main"]).to_dict()
    ticks = [row for row in rows_drawn(shown) if set(row) == {"setting", "fit", "middle"}]
    assert ticks == [{"setting": "llama-np16", "fit": 8, "middle": pytest.approx(at_eight)}]
    assert "KV cache" in " ".join(shown["title"]["subtitle"])
    assert "KV cache" not in " ".join(drawn("output_by_users")["title"]["subtitle"])


def test_the_most_users_are_labelled_first() -> None:
    content, _ = full()
    made = charts.whole("output_by_users", content, style.Style(), ["extra"]).to_dict()
    shown = made["concat"][0]["layer"][0]["encoding"]["x"]["axis"]["values"]
    assert shown[-1] == 256 and 192 not in shown and set(shown) < {1, 2, 4, 8, 16, 64, 128, 192, 256}


def test_a_level_that_failed_breaks_its_line_and_is_drawn_as_a_cross() -> None:
    cells = [c for c in synthetic.h200_cells() if c["setting"] == "llama-np16"]
    plan = synthetic.plan_of(cells)
    records = [
        synthetic.failed(record, "out of memory") if record.identity.users == 8 else record
        for record in synthetic.records_of(cells, plan)
    ]
    content = concluded(synthetic.from_records(records, [], plan), plan)
    points = against_users.ranges(content, "output_tok_s", "main")
    segments = {p["users"]: p["segment"] for p in points}
    assert segments[1] == segments[2] == segments[4] != segments[16] == segments[32]
    assert [(p["users"], p["low"], p["failed"]) for p in points if p["failed"]] == [(8, None, True)]
    assert "out of memory" in str([p["marks"] for p in points if p["failed"]])
    made = charts.whole("output_by_users", content, style.Style(), ["main"]).to_dict()
    crosses = [layer["mark"] for layer in made["layer"] if layer["mark"].get("text") == "×"]
    assert len(crosses) == 1
    assert all(p["users"] != 8 for p in tradeoff.points(content, "main"))


def test_panels_have_one_axis_of_users() -> None:
    content, _ = full()
    made = charts.whole("output_by_users", content, style.Style(), ["main"]).to_dict()
    domains = {
        tuple(layer["encoding"]["x"]["scale"]["domain"])
        for panel in made["concat"]
        for layer in panel["layer"]
        if "domain" in layer["encoding"].get("x", {}).get("scale", {})
    }
    assert len(made["concat"]) == 2 and len(domains) == 1


@pytest.mark.parametrize("name", charts.CHARTS)
def test_the_table_below_a_chart_has_the_fields_that_it_names(name: str) -> None:
    content, _ = full()
    run = "extra" if name == "ratios" else "main"
    rows = charts.values(name, content, run)
    assert rows
    for row in rows:
        assert set(charts.CHARTS[name].columns) <= row.keys()


def test_a_row_with_a_mark_is_drawn_hollow_and_told() -> None:
    content, plan = small()
    rows = schema.rows(content["settings"])
    rows[0]["marks"] = [mark("unstable_rounds", figure="ttft_p95_s", first=0.1, second=0.3)]
    marked = content | {"settings": tables.table("settings", rows)}
    points = against_users.ranges(marked, "output_tok_s", plan.settings["llama-np1"].run)
    assert [point["trusted"] for point in points] == [False] + [True] * (len(points) - 1)
    made = charts.whole("output_by_users", marked, style.Style(language="ja"), ["main"]).to_dict()
    told = {row["marks"] for row in rows_drawn(made) if "marks" in row}
    assert told == {"–", "回ごとの差が 2 割以上：最初の文字まで 95% 点（秒）0.10 → 0.30"}


def test_what_is_said_of_a_point_is_in_the_language_of_the_chart() -> None:
    names = {text for texts in words.labels()["charts"]["tooltip"].values() for text in (texts["en"], texts["ja"])}
    names |= {words.words(f"charts.ttft_ecdf.{axis}")[code] for axis in "xy" for code in words.LANGUAGES}
    for name in charts.CHARTS:
        said = {
            code: [tip for tips in values_of(drawn(name, code), "tooltip") for tip in tips] for code in words.LANGUAGES
        }
        assert len(said["en"]) == len(said["ja"])
        for one, other in zip(said["en"], said["ja"], strict=True):
            assert {one["title"], other["title"]} <= names and one["title"] != other["title"], name


@pytest.mark.parametrize("language", words.LANGUAGES)
@pytest.mark.parametrize("name", charts.CHARTS)
def test_without_data_a_chart_says_so(name: str, language: str) -> None:
    nothing = {table: schema.empty_table() for table, schema in SCHEMAS.items()}
    for content in (nothing, {}):
        made = charts.whole(name, content, style.Style(language=language), ["main"]).to_dict()
        assert "encoding" not in made or "x" not in made["encoding"], "no axis without data"
        said = "".join(row["text"] for row in rows_drawn(made)).replace("\n", "")
        assert said.replace(" ", "") == words.words("charts.nothing")[language].replace(" ", "")
        assert made["title"]["subtitle"] == [words.words("charts.no_data")[language]]
        assert made["description"] == words.words("charts.nothing")[language]
        assert charts.runs_with_data(name, content, ["main"]) == []


@pytest.mark.parametrize("name", [n for n in charts.CHARTS if n not in EVALUATIONS])
def test_a_round_that_failed_draws_what_is_there(name: str) -> None:
    cells = synthetic.quickstart_cells()[:4]
    plan = synthetic.plan_of(cells, "quickstart")
    good = list(synthetic.records_of(cells, plan, window_s=10))
    records = [synthetic.failed(r, "out of memory") if n in (0, 1, 3) else r for n, r in enumerate(good)]
    content = synthetic.from_records(records, [], plan)
    made = charts.whole(name, content, style.Style(), ["main"]).to_dict()
    assert all(value is not None for row in rows_drawn(made) for key, value in row.items() if key in ("low", "high"))


def test_runs_are_never_in_one_plot() -> None:
    cells = [c for c in synthetic.h200_cells() if c["setting"] in ("llama-np16", "llama-np16-control")]
    plan = synthetic.plan_of(cells)
    content = synthetic.from_records(list(synthetic.records_of(cells, plan)), [], plan)
    made = charts.whole("output_by_users", content, style.Style(), list(plan.runs)).to_dict()
    assert len(made["vconcat"]) == 2
    settings = [{row["setting"] for row in rows if "setting" in row} for rows in made["datasets"].values()]
    assert {"llama-np16", "llama-np16-control"} not in settings
    assert any("extra" in line for line in made["vconcat"][1]["title"]["subtitle"])


def test_the_timeline_is_of_the_round_with_the_highest_output_without_its_last_part_of_a_second() -> None:
    cells = synthetic.quickstart_cells()[:1]  # the second round has the larger output
    plan = synthetic.plan_of(cells, "quickstart")
    content = concluded(synthetic.from_records(list(synthetic.records_of(cells, plan, window_s=10)), [], plan), plan)
    best = max(content["measurements"].to_pylist(), key=lambda row: row["output_tok_s"])
    last = max(row["second"] for row in content["timeline"].to_pylist() if row["round"] == best["round"])
    shown = timeline.points(content, best["run"])
    assert best["round"] == 2 and {row["round"] for row in shown} == {2}
    assert max(row["second"] for row in shown) == last - 1
    made = charts.whole("timeline", content, style.Style(), list(plan.runs)).to_dict()
    assert made["title"]["text"].endswith("round 2")
    seconds = {row["second"]: row["output_tok_s"] for row in rows_drawn(made) if "second" in row}
    assert max(seconds) == last and seconds[last] == seconds[last - 1]


def values_of(part: Any, name: str) -> Iterator[Any]:
    """All lists called `name` anywhere in a specification."""
    for key, value in part.items() if isinstance(part, dict) else enumerate(part):
        if key == name and isinstance(value, list):
            yield value
        elif isinstance(value, dict | list):
            yield from values_of(value, name)


def test_what_the_load_generator_was_measured_with_is_said_in_both_languages() -> None:
    assert set(words.labels()["charts"]["client_error"]["variants"]) == set(VARIANTS)
    for language, wanted in (("en", {"steady", "in lockstep"}), ("ja", {"一定の間隔", "全員同時"})):
        assert {row["variant"] for row in rows_drawn(drawn("client_error", language))} == wanted


def leaves(content: Mapping[str, Any], path: str = "") -> Iterator[tuple[str, Mapping[str, Any]]]:
    for key, value in content.items():
        if set(value) <= set(words.LANGUAGES):
            yield f"{path}{key}", value
        else:
            yield from leaves(value, f"{path}{key}.")


def test_every_word_is_there_in_both_languages_with_the_same_fields() -> None:
    found = dict(leaves(words.labels()))
    assert len(found) > 150
    for key, texts in found.items():
        assert set(texts) == set(words.LANGUAGES), key
        fields = [{name for _, name, _, _ in string.Formatter().parse(text) if name} for text in texts.values()]
        assert fields[0] == fields[1], key


def test_every_chart_has_title_subtitle_and_alternative_text() -> None:
    for name in charts.CHARTS:
        assert importlib.import_module(f"servebench.charts.{name}").__doc__
        for part in ("title", "subtitle", "alt"):
            assert words.words(f"charts.{name}.{part}")


# What a colour becomes for people who lack one kind of cone (Machado, Oliveira and Fernandes 2009, severity 1).
SEEN = {
    "normal": ((1.0, 0.0, 0.0), (0.0, 1.0, 0.0), (0.0, 0.0, 1.0)),
    "protanopia": ((0.152286, 1.052583, -0.204868), (0.114503, 0.786281, 0.099216), (-0.003882, -0.048116, 1.051998)),
    "deuteranopia": ((0.367322, 0.860646, -0.227968), (0.280085, 0.672501, 0.047413), (-0.011820, 0.042940, 0.968881)),
    "tritanopia": ((1.255528, -0.076749, -0.178779), (-0.078411, 0.930809, 0.147602), (0.004733, 0.691367, 0.303900)),
}


def linear(colour: str) -> list[float]:
    parts = [int(colour[n : n + 2], 16) / 255 for n in (1, 3, 5)]
    return [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]


def lab(colour: str, seen: str) -> list[float]:
    """CIELAB of a colour as it is seen."""
    rgb = [min(1.0, max(0.0, sum(a * b for a, b in zip(row, linear(colour), strict=True)))) for row in SEEN[seen]]
    xyz = ((0.4124564, 0.3575761, 0.1804375), (0.2126729, 0.7151522, 0.0721750), (0.0193339, 0.1191920, 0.9503041))
    white = (0.95047, 1.0, 1.08883)
    scaled = [sum(a * b for a, b in zip(row, rgb, strict=True)) / w for row, w in zip(xyz, white, strict=True)]
    x, y, z = (t ** (1 / 3) if t > 216 / 24389 else (24389 / 27 * t + 16) / 116 for t in scaled)
    return [116 * y - 16, 500 * (x - y), 200 * (y - z)]


def distance(one: str, other: str, seen: str) -> float:
    """CIEDE2000 of two colours as they are seen."""
    (l1, a1, b1), (l2, a2, b2) = lab(one, seen), lab(other, seen)
    mean_c = (math.hypot(a1, b1) + math.hypot(a2, b2)) / 2
    stretch = 1.5 - 0.5 * math.sqrt(mean_c**7 / (mean_c**7 + 25**7))
    a1, a2 = a1 * stretch, a2 * stretch
    c1, c2 = math.hypot(a1, b1), math.hypot(a2, b2)
    h1, h2 = (math.degrees(math.atan2(b, a)) % 360 for a, b in ((a1, b1), (a2, b2)))
    turn = (h2 - h1 + 180) % 360 - 180
    lightness, chroma, hue = (l1 + l2) / 2, (c1 + c2) / 2, (h1 + turn / 2) % 360
    waves = (-0.17, 1, -30), (0.24, 2, 0), (0.32, 3, 6), (-0.2, 4, -63)
    t = 1 + sum(w * math.cos(math.radians(n * hue + at)) for w, n, at in waves)
    s_l = 1 + 0.015 * (lightness - 50) ** 2 / math.sqrt(20 + (lightness - 50) ** 2)
    s_c, s_h = 1 + 0.045 * chroma, 1 + 0.015 * chroma * t
    bend = math.radians(60 * math.exp(-(((hue - 275) / 25) ** 2)))
    r_t = -2 * math.sqrt(chroma**7 / (chroma**7 + 25**7)) * math.sin(bend)
    d_c, d_h = (c2 - c1) / s_c, 2 * math.sqrt(c1 * c2) * math.sin(math.radians(turn / 2)) / s_h
    return math.sqrt(((l2 - l1) / s_l) ** 2 + d_c**2 + d_h**2 + r_t * d_c * d_h)


def luminance(colour: str) -> float:
    return sum(w * part for w, part in zip((0.2126, 0.7152, 0.0722), linear(colour), strict=True))


def test_colours_stand_out_from_the_paper_and_no_two_are_the_same() -> None:
    for theme in (0, 1):
        paper = luminance(style.PAPER[theme])
        for pair in [*style.ENGINES.values(), style.INK, style.MUTED, style.LINE]:
            light, dark = sorted((luminance(pair[theme]), paper), reverse=True)
            assert (light + 0.05) / (dark + 0.05) >= 4.5, pair
    for theme in (0, 1):  # lines and marks need less than text does
        for shade in [own[theme] for shades in style.SHADES.values() for own in shades]:
            light, dark = sorted((luminance(shade), luminance(style.PAPER[theme])), reverse=True)
            assert (light + 0.05) / (dark + 0.05) >= 3, shade
    light, dark = zip(*drawing.COLOURS, strict=True)
    assert len(set(light)) == len(light) and not set(light) & set(dark), "the page swaps colours by their name"
    assert set(style.SHADES) == set(style.ENGINES)


@pytest.mark.parametrize("seen", SEEN)
def test_engines_are_told_apart_by_their_colours_with_every_kind_of_colour_vision(seen: str) -> None:
    for theme in (0, 1):
        shades = [{pair[theme], *(own[theme] for own in style.SHADES[kind])} for kind, pair in style.ENGINES.items()]
        for first, second in itertools.combinations(shades, 2):
            for one, other in itertools.product(first, second):
                assert distance(one, other, seen) >= 10, (one, other)


def test_the_distance_of_colours_is_that_of_the_published_examples() -> None:
    assert distance("#ff0000", "#ff0000", "normal") == 0
    assert distance("#000000", "#ffffff", "normal") == pytest.approx(100, abs=0.01)
    assert distance("#ff0000", "#0000ff", "normal") == pytest.approx(52.88, abs=0.05)


def test_the_page_has_the_colours_of_the_charts() -> None:
    css = (spoken.HERE / "page.css").read_text(encoding="utf-8")
    light, dark = css.split(':root[data-theme="dark"]')
    for engine, pair in style.ENGINES.items():
        assert f"--{engine}: {pair[0]};" in light and f"--{engine}: {pair[1]};" in dark


def test_a_shape_belongs_to_a_number_of_bits() -> None:
    assert [style.bits(q) for q in ("Q4_K_M", "Q4_1", "Q8_0", "BF16", "F16", "Q6_K", None, "FP8")] == [
        *("4 bit", "4 bit", "8 bit", "16 bit", "16 bit", "6 bit", "other", "8 bit"),
    ]
    assert len(set(style.SHAPES.values())) == len(style.SHAPES)


def test_numbers_read_as_measured() -> None:
    assert [numbers.digits(v) for v in (None, 0, 0.04321, 3.14159, 27.94, 403.6, 3462.2)] == [
        *("–", "0", "0.04", "3.14", "27.9", "404", "3,462"),
    ]
    assert [numbers.digits(v) for v in (9.9999, 99.96, 0.09996, 0.00996)] == ["10.0", "100", "0.10", "0.01"]
    assert [numbers.digits(v) for v in (0.01, 0.0096, 0.00394, -0.00012)] == ["0.01", "0.0096", "0.0039", "-0.00012"]
    assert numbers.span(403.6, 412.9) == "404–413"
    assert numbers.span(82, 83) == "82–83"
    assert numbers.span(113.1, 113.2) == "113"
    assert numbers.span(None, None) == "–"


def test_lines_break_at_spaces_and_never_before_a_full_stop() -> None:
    assert style.lines("one two three", 7) == ["one two", "three"]
    assert style.lines("あいう。えお", 6) == ["あいう。", "えお"]


def test_japanese_without_a_font_is_refused_with_a_sentence(monkeypatch: pytest.MonkeyPatch, tmp_path) -> None:
    content, plan = small()
    chart = charts.whole("output_bars", content, style.Style(language="ja"), list(plan.runs))
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    html, svg = save(chart, tmp_path / "chart", "ja")
    assert "合計出力" in html.read_text(encoding="utf-8")
    with pytest.raises(style.FontMissing, match=r"Noto Sans JP.*install it, or draw in English only"):
        picture(svg)
    assert set(tmp_path.iterdir()) == {html, svg}
    english = charts.whole("output_bars", content, style.Style(), list(plan.runs))
    assert picture(save(english, tmp_path / "english")[1]).read_bytes()[:8] == PNG
    for sign in "。々Ａ":
        svg.write_text(f'<svg xmlns="http://www.w3.org/2000/svg"><text>{sign}</text></svg>', encoding="utf-8")
        with pytest.raises(style.FontMissing):
            picture(svg)


def test_files_are_whole_and_need_no_network(tmp_path) -> None:
    content, plan = small()
    chart = charts.whole("output_bars", content, style.Style(language="ja"), list(plan.runs))
    html, svg = save(chart, tmp_path / "output_bars", "ja")
    assert picture(svg).read_bytes()[:8] == PNG
    drawing = svg.read_text(encoding="utf-8")
    assert drawing.startswith("<svg")
    assert "合計出力" in drawing
    page = html.read_text(encoding="utf-8")
    assert "<script src=" not in page
    assert "合計出力" in page


@pytest.mark.parametrize(
    ("low", "high", "ticks"),
    [
        (15, 42, [15, 20, 30, 40]),
        (90, 6000, [100, 200, 500, 1000, 2000, 5000]),
        (0.01, 100, [0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30, 100]),
        (66, 108, [70, 80, 90, 100]),
    ],
)
def test_a_logarithmic_axis_is_labelled(low, high, ticks):
    assert style.log_ticks(low, high) == ticks


def test_one_user_is_no_users():
    assert words.spoken("page.line.users", users=1)["en"] == "1 user"
    assert words.spoken("page.line.users", users=11)["en"] == "11 users"
    lead = words.spoken("page.evaluated.lead", targets=1, questions=1, repeats=1, baseline="Q8_0")["en"]
    assert lead.startswith("Each of 1 model was asked 1 question, 1 time; Q8_0")


def test_whatever_is_counted_has_a_singular():
    never_one = {"tokens", "points", "machines", "ms", "series"}
    never_one |= {"is", "was", "has", "serves", "keeps", "misses", "costs"}
    for key, texts in leaves(words.labels()):
        counted = set(re.findall(r"\{[a-z_]+\} ([a-z]+s)\b(?!/)", texts["en"])) - never_one
        assert counted <= set(words.COUNTED), key


def test_what_is_predicted_at_most_is_a_thin_line_with_one_name() -> None:
    tables_, plan = small()
    for name, column in (("user_by_users", "stream_tok_s"), ("output_by_users", "output_tok_s")):
        points = against_users.ranges(tables_, name.replace("_by_users", "_tok_s"), "main")
        assert {point["predicted"] for point in points} == {None}, "the bandwidth of this CPU is not known"
        limits = [
            dict.fromkeys(SCHEMAS["predicted"].names)
            | {"run": "main"}
            | {"setting": point["setting"], "users": point["users"], column: 500.0}
            for point in points
        ]
        drawn = charts.chart(
            name, tables_ | {"predicted": tables.table("predicted", limits)}, style.Style.configured({}, plan), "main"
        )
        assert str(drawn.to_dict()).count("predicted at most") == 1
