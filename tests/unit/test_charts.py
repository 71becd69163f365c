"""The charts draw what the tables hold, in both languages, and say so when there is no data."""

from __future__ import annotations

import importlib
import importlib.util
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
from servebench import charts, schema, tables, words
from servebench.charts import against_users, spans, style, timeline
from servebench.charts.files import picture, save
from servebench.load.calibrate import VARIANTS
from servebench.marks import mark
from servebench.plan import Plan
from servebench.tables import SCHEMAS
from servebench.words import numbers

PNG = b"\x89PNG\r\n\x1a\n"
EVALUATIONS = ("scores", "differences", "agreement")


@cache
def small() -> tuple[dict[str, pa.Table], Plan]:
    cells = synthetic.quickstart_cells()
    plan = synthetic.plan_of(cells, "quickstart")
    records = list(synthetic.records_of(cells, plan, window_s=10, machine=synthetic.LAPTOP))
    made = synthetic.from_records(records, [], plan)
    return made | synthetic_answers.made()[1] | {"cost": tables.cost(made["settings"], 1.42)}, plan


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
    return made | {"cost": tables.cost(made["settings"], 3.5)} | synthetic_answers.made()[1], plan


def points_of(name: str) -> Iterator[tuple[Any, ...]]:
    """What the chart is to show, in the order (low, high) or (x, y), from the table alone."""
    made, _ = full()
    run = "extra" if name == "ratios" else "main"
    ours = [row for row in made["settings"].to_pylist() if row["run"] == run]
    rows = [row for row in made[charts.CHARTS[name].table].to_pylist() if row.get("run", run) == run]
    place = {(row["setting"], row["users"]): row for row in ours}
    if name == "speed_bars":
        fewest = min(row["users"] for row in ours)
        yield from ((r["user_tok_s_min"], r["user_tok_s_max"]) for r in ours if r["users"] == fewest)
    elif name == "queueing":
        rows = [row for row in made[name].to_pylist() if row["run"] == run]
        beyond = {row["setting"] for row in rows if row["multiple"] in (2, 4)}
        for row in rows:
            if row["multiple"] in (1, 2, 4) and row["setting"] in beyond:
                yield row["ttft_p50_s_min"], row["ttft_p50_s_max"]
    elif name == "slots":
        compared = [row for row in made["ratios"].to_pylist() if row["kind"] == "slots" and row["run"] == run]
        levels = [row["users"] for row in compared if row["figure"] == "output_tok_s"]
        users = max(levels, key=lambda level: (levels.count(level), level))
        names = {row[side] for row in compared if row["users"] == users for side in ("setting", "baseline")}
        yield from ((place[n, users]["output_tok_s_min"], place[n, users]["output_tok_s_max"]) for n in names)
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
    elif name == "cost":
        yield from ((row["usd_per_million_tokens_min"], row["usd_per_million_tokens_max"]) for row in rows)
    elif name == "memory":
        yield from ((row["measured_gib"],) for row in rows)
    elif name == "ttft_ecdf":
        for row in rows:
            total = len(row["ttft_s"]) + row["failures"]
            yield row["users"], row["round"], row["ttft_s"][-1], len(row["ttft_s"]) / total
    elif name == "scores":
        yield from ((100 * row["low"], 100 * row["high"]) for row in rows if row["headline"])
    elif name == "differences":
        yield from ((row["low"], row["high"]) for row in rows)
    elif name == "agreement":
        yield from ((100 * row["low"], 100 * row["high"]) for row in rows)
    elif name == "unstable":
        yield from ((min(1, row["ratio"]), max(1, row["ratio"])) for row in rows[:20])
    elif name == "client_error":
        yield from ((row["users"], 1000 * row["ttft_error_p99_s"]) for row in rows)
    elif name == "timeline":
        best = max((r for r in made["measurements"].to_pylist() if r["run"] == run), key=lambda r: r["output_tok_s"])
        own = [r for r in rows if all(r[n] == best[n] for n in ("setting", "users", "round"))]
        last = max(row["second"] for row in own)
        yield from ((r["second"], r["running"], r["output_tok_s"]) for r in own if r["second"] < last)


SHOWN = {
    **dict.fromkeys(("speed_bars", "queueing", "slots", "ratios", "slow_requests"), ("low", "high")),
    **dict.fromkeys(("scores", "differences", "agreement", "unstable", "cost"), ("low", "high")),
    "memory": ("measured",),
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
        assert one == pytest.approx(other, abs=1e-4), name


def test_every_chart_is_checked_against_its_table() -> None:
    of_ranges = {"output_by_users", "ttft_by_users", "user_by_users", "output_bars"}
    assert set(SHOWN) | of_ranges == set(charts.CHARTS)


def test_bars_end_where_the_rounds_do() -> None:
    content, _ = small()
    at_four = [row for row in content["settings"].to_pylist() if row["users"] == 4]
    bars = rows_drawn(drawn("output_bars"))
    assert [(b["low"], b["high"]) for b in bars] == sorted(
        [(r["output_tok_s_min"], r["output_tok_s_max"]) for r in at_four], key=lambda ends: -sum(ends)
    )


def test_a_row_with_a_mark_is_drawn_hollow_and_told() -> None:
    content, plan = small()
    rows = schema.rows(content["settings"])
    rows[0]["marks"] = [mark("unstable_rounds", figure="ttft_p95_s", first=0.1, second=0.3)]
    marked = content | {"settings": tables.table("settings", rows)}
    points = against_users.ranges(marked, "output_tok_s", plan.settings["llama-np1"].run)
    assert [point["trusted"] for point in points] == [False] + [True] * (len(points) - 1)
    tables_of = marked | {"cost": tables.cost(marked["settings"], 1.42)}
    for name in ("speed_bars", "output_by_users", "cost"):
        shown = style.Style(language="ja")
        told = {
            row["marks"]
            for row in rows_drawn(charts.whole(name, tables_of, shown, ["main"]).to_dict())
            if "marks" in row
        }
        assert told == {"–", "巡によって 2 割以上違う：最初の文字まで 95% 点（秒） 0.1 → 0.3"}


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
    content["cost"] = tables.cost(content["settings"], 1.0)
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
    content = synthetic.from_records(list(synthetic.records_of(cells, plan, window_s=10)), [], plan)
    best = max(content["measurements"].to_pylist(), key=lambda row: row["output_tok_s"])
    last = max(row["second"] for row in content["timeline"].to_pylist() if row["round"] == best["round"])
    shown = timeline.points(content, best["run"])
    assert best["round"] == 2 and {row["round"] for row in shown} == {2}
    assert max(row["second"] for row in shown) == last - 1
    made = charts.whole("timeline", content, style.Style(), list(plan.runs)).to_dict()
    assert made["title"]["text"].endswith("round 2")
    seconds = {row["second"]: row["output_tok_s"] for row in rows_drawn(made) if "second" in row}
    assert max(seconds) == last and seconds[last] == seconds[last - 1]


def test_an_axis_of_percentages_ends_at_100() -> None:
    shown = {(0.0, 100.0): 20, (62.0, 97.0): 10, (93.0, 100.0): 2, (99.0, 100.0): 1}
    for (low, high), step in shown.items():
        assert list(spans.percent_ticks([{"low": low, "high": high}])) == list(range(0, 101, step))
    row = {"target": "q4", "task": "mgsm", "same_answer_share": 0.96, "low": 0.93, "high": 0.98}
    content = {"agreement": tables.table("agreement", [dict.fromkeys(SCHEMAS["agreement"].names, 0) | row])}
    made = charts.whole("agreement", content, style.Style(), ["main"]).to_dict()
    assert max(tick for ticks in values_of(made, "values") for tick in ticks) == 100


def values_of(part: Any, name: str) -> Iterator[Any]:
    """All lists called `name` anywhere in a specification."""
    for key, value in part.items() if isinstance(part, dict) else enumerate(part):
        if key == name and isinstance(value, list):
            yield value
        elif isinstance(value, dict | list):
            yield from values_of(value, name)


def test_what_the_load_generator_was_measured_with_is_said_in_both_languages() -> None:
    assert set(words.labels()["charts"]["client_error"]["variants"]) == set(VARIANTS)
    for language, wanted in (("en", {"steady", "in lockstep"}), ("ja", {"一定の間隔", "全員いっせい"})):
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


def luminance(colour: str) -> float:
    parts = [int(colour[n : n + 2], 16) / 255 for n in (1, 3, 5)]
    linear = [p / 12.92 if p <= 0.03928 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def test_colours_stand_out_from_the_paper_and_no_two_are_the_same() -> None:
    for theme in (0, 1):
        paper = luminance(style.PAPER[theme])
        for pair in [*style.ENGINES.values(), style.INK, style.MUTED, style.LINE]:
            light, dark = sorted((luminance(pair[theme]), paper), reverse=True)
            assert (light + 0.05) / (dark + 0.05) >= 3, pair
    every = [
        pair[0] for pair in [*style.ENGINES.values(), style.INK, style.FAINT, style.MUTED, style.PAPER, style.LINE]
    ]
    assert len(set(every)) == len(every), "the page swaps colours by their name"


def test_a_shape_belongs_to_a_number_of_bits() -> None:
    assert [style.bits(q) for q in ("Q4_K_M", "Q4_1", "Q8_0", "BF16", "F16", "Q6_K", None, "FP8")] == [
        *("4 bit", "4 bit", "8 bit", "16 bit", "16 bit", "6 bit", "other", "8 bit"),
    ]
    assert len(set(style.SHAPES.values())) == len(style.SHAPES)


def test_numbers_read_as_measured() -> None:
    assert [numbers.digits(v) for v in (None, 0, 0.04321, 3.14159, 27.94, 403.6, 3462.2)] == [
        *("–", "0", "0.04", "3.14", "27.9", "404", "3,462"),
    ]
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
    assert "全体の出力" in html.read_text(encoding="utf-8")
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
    assert "全体の出力" in drawing
    page = html.read_text(encoding="utf-8")
    assert "<script src=" not in page
    assert "全体の出力" in page


@pytest.mark.parametrize(
    ("low", "high", "ticks"),
    [
        (15, 42, [15, 20, 30, 40]),
        (90, 6000, [100, 200, 500, 1000, 2000, 5000]),
        (0.01, 100, [0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30, 100]),
    ],
)
def test_a_logarithmic_axis_is_labelled(low, high, ticks):
    assert style.log_ticks(low, high) == ticks


def test_one_user_is_no_users():
    assert words.spoken("page.line.users", users=1)["en"] == "1 user"
    assert words.spoken("page.line.users", users=11)["en"] == "11 users"
    lead = words.spoken("page.evaluated.lead", targets=1, questions=1, repeats=1, baseline="Q8_0")["en"]
    assert lead.startswith("Each of 1 target was asked 1 question, 1 time; Q8_0")


def test_whatever_is_counted_has_a_singular():
    never_one = {"tokens", "points", "machines", "is", "was", "has", "serves", "keeps", "costs", "ms"}
    for key, texts in leaves(words.labels()):
        counted = set(re.findall(r"\{[a-z_]+\} ([a-z]+s)\b(?!/)", texts["en"])) - never_one
        assert counted <= set(words.COUNTED), key
