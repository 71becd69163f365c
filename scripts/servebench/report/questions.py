"""Answer people's questions from the data; where the data cannot answer a question, say so.

As in `answer`, overlapping ranges are not separated, nor are fewer than two rounds, no cause is stated, and every
figure comes with the rows it is based on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from servebench.charts.bars import usual_users
from servebench.plan import Plan
from servebench.report import content
from servebench.report.answer import Sentence, covered, met_at_most, named, sources, span_of, starred
from servebench.report.evaluated import compared_id
from servebench.report.ranges import separated
from servebench.tables.files import Row, rows_of
from servebench.words.numbers import digits, span

Answer = Iterator[Sentence]


@dataclass(frozen=True)
class Question:
    """Hold a question (a key under `page.questions`), its run (None: the whole experiment), and its answer."""

    key: str
    run: str | None
    answer: Sequence[Sentence]


def questions(tables: Mapping[str, pa.Table], plan: Plan) -> list[Question]:
    """List all questions that the experiment could answer, those of each run first."""
    of_run: dict[str, Callable[[Mapping[str, pa.Table], Plan, str], Answer]] = {
        "people": _people,
        "alone": _alone,
        "slots": lambda tables, plan, run: _changed(tables, run, "slots"),
        "speed": lambda tables, plan, run: _changed(tables, run, "quantization"),
        "queue": _queue,
        "slow": _slow,
        "energy": _energy,
        "cost": _cost,
    }
    made = [Question(key, run, list(tell(tables, plan, run))) for run in plan.runs for key, tell in of_run.items()]
    made.append(Question("answers", None, list(_answers(tables))))
    if plan.cost is None:
        made.append(Question("cost", None, [Sentence("question.cost_unknown")]))
    made.append(Question("memory", None, list(_memory(tables))))
    made.append(Question("sure", None, list(_sure(tables, plan))))
    made.append(Question("missing", None, list(_missing(tables, plan))))
    return [question for question in made if question.answer]


def _good(tables: Mapping[str, pa.Table], run: str) -> list[Row]:
    return [row for row in rows_of(tables, "settings", run) if row["rounds"]]


def _people(tables: Mapping[str, pa.Table], plan: Plan, run: str) -> Answer:
    """Say the most users at which any setting meets the line, and what a user stands for."""
    rows = _good(tables, run)
    if not any(row["meets_line_both_rounds"] is not None for row in rows):
        return
    best = met_at_most(rows)
    if not best:
        yield Sentence("question.people_none", {"users": min(row["users"] for row in rows), "rounds": plan.rounds})
    else:
        users, names = best[0]["users"], ", ".join(map(starred, best))
        yield Sentence("question.people", {"users": users, "settings": names, "rounds": plan.rounds}, sources(best))
        if users == max(row["users"] for row in rows):
            yield Sentence("question.people_more", {"users": users})
    workload = next(setting.workload for setting in plan.settings.values() if setting.run == run)
    if workload.get("think"):
        yield from _pauses(best or [row for row in rows if row["users"] == min(r["users"] for r in rows)], workload)
    elif workload.get("mode") == "closed":
        yield Sentence("question.no_pause")


def _pauses(rows: Sequence[Row], workload: Mapping[str, Any]) -> Answer:
    """Compute how many pausing people one endless stream stands for: users ÷ requests in flight, on average."""
    known = [row for row in rows if row["in_flight_mean_min"]]
    if known:
        users = known[0]["users"]
        streams = [row[f"in_flight_mean_{end}"] for row in known for end in ("min", "max")]
        people = span(users / max(streams), users / min(streams))
        values = {"think": workload["think"], "users": users, "people": people}
        yield Sentence("question.pause", values | {"streams": span(min(streams), max(streams))}, sources(known))


def _alone(tables: Mapping[str, pa.Table], plan: Plan, run: str) -> Answer:
    rows = [row for row in _good(tables, run) if row["users"] == 1 and row["user_tok_s_min"] is not None]
    if not rows:
        yield Sentence("question.alone_not")
        return
    rows.sort(key=lambda row: -(row["user_tok_s_min"] + row["user_tok_s_max"]))
    close = [row for row in rows[1:] if not separated(rows[0], row, "user_tok_s")]
    values = {"setting": starred(rows[0]), "range": span_of(rows[0], "user_tok_s")}
    yield Sentence("question.alone", values, sources(rows[:1]))
    if close:
        yield Sentence("question.alone_close", {"settings": named(close, "user_tok_s")}, sources(close))
    weights = {row["quantization"] for row in rows} - {None}
    if len(weights) > 1:
        yield Sentence("question.weights", {"weights": ", ".join(sorted(weights))})


def _changed(tables: Mapping[str, pa.Table], run: str, kind: str) -> Answer:
    """Compare the output of settings that differ in one thing, at the number of users that most of them have."""
    pairs = [row for row in rows_of(tables, "ratios", run) if row["kind"] == kind and row["figure"] == "output_tok_s"]
    users = usual_users(pairs)
    rows = {row["setting"]: row for row in _good(tables, run) if row["users"] == users}
    for pair in pairs:
        one, base = rows.get(pair["setting"]), rows.get(pair["baseline"])
        if pair["users"] != users or one is None or base is None:
            continue
        values = {
            "users": users,
            "setting": f"{starred(one)} ({_what(one, kind)})",
            "base": f"{starred(base)} ({_what(base, kind)})",
            "range": span_of(one, "output_tok_s"),
            "base_range": span_of(base, "output_tok_s"),
            "ratio": span(pair["ratio_min"], pair["ratio_max"]),
        }
        apart = separated(one, base, "output_tok_s")
        higher = one["output_tok_s_min"] > base["output_tok_s_min"]
        key = ("higher" if higher else "lower") if apart else "same"
        yield Sentence(f"question.changed_{key}", values, sources([one, base]))


def _what(row: Row, kind: str) -> str:
    return str(row["slots"] if kind == "slots" else row["quantization"] or "?")


def _queue(tables: Mapping[str, pa.Table], plan: Plan, run: str) -> Answer:
    """Compare TTFT with as many users as slots and with more, over the settings measured with both."""
    rows = [row for row in rows_of(tables, "queueing", run) if row["ttft_p50_s_min"] is not None]
    alone = {row["setting"]: row for row in rows if row["multiple"] == 1}
    for multiple in sorted({row["multiple"] for row in rows} - {1}):
        more = [row for row in rows if row["multiple"] == multiple and row["setting"] in alone]
        if not more or multiple not in (2, 4):
            continue
        base = [alone[row["setting"]] for row in more]
        values = {
            "multiple": f"{multiple:g}",
            "settings": len(more),
            "range": _over(more, "ttft_p50_s"),
            "base": _over(base, "ttft_p50_s"),
        }
        yield Sentence("question.queue", values, sources([*more, *base]))


def _slow(tables: Mapping[str, pa.Table], plan: Plan, run: str) -> Answer:
    """Count requests whose first token took over 1 s, by micro-batch, and prompts whose evaluation took over 1 s."""
    if not _good(tables, run):
        return
    bands = [row for row in rows_of(tables, "slow_requests", run) if row["band_low"] is not None]
    groups = rows_of(tables, "slow_by_micro_batch", run)
    told = groups if bands else []
    for row in (row for row in told if row["band_total"]):
        values = {name: row[name] for name in ("engine_kind", "micro_batch", "users_most", "other_slow", "other_total")}
        values |= {"settings": ", ".join(row["settings"]), "band": _band(bands[0])}
        values |= {"slow": row["band_slow"], "total": row["band_total"]}
        yield Sentence("question.slow", values, sources(_with_slow(bands, row)))
    empty = [row for row in told if not row["band_total"]]
    if empty:
        values = {name: sum(row[name] for row in empty) for name in ("other_slow", "other_total")}
        values |= {"settings": ", ".join(name for row in empty for name in row["settings"]), "band": _band(bands[0])}
        values |= {"users_most": empty[0]["users_most"]}
        yield Sentence(
            "question.slow_band_empty", values, sources([one for row in empty for one in _with_slow(bands, row)])
        )
    if not bands or not groups:
        yield Sentence("question.slow_unknown")
    prefills = rows_of(tables, "slow_prefills", run)
    if not prefills:
        yield Sentence("question.prefills_unknown")
        return
    counts = {name: sum(row[name] for row in prefills) for name in ("slow", "total")}
    key = "prefills" if counts["total"] else "prefills_none"
    slow = [row for row in prefills if row["slow"]]
    yield Sentence(f"question.{key}", counts | {"band": _band(prefills[0])}, sources(slow))


def _with_slow(rows: Sequence[Row], group: Row) -> list[Row]:
    """List the combinations of a group of `slow_by_micro_batch` in which some request was slow."""
    own = [row for row in rows if row["setting"] in group["settings"] and row["users"] <= group["users_most"]]
    return [row for row in own if row["band_slow"] or row["other_slow"]]


def _band(row: Row) -> str:
    return f"{row['band_low']}–{row['band_high']}"


def _energy(tables: Mapping[str, pa.Table], plan: Plan, run: str) -> Answer:
    """Say the run's lowest and highest energy of the server's GPUs per output token."""
    rows = _good(tables, run)
    known = [row for row in rows if row["joules_per_token_min"] is not None]
    if known:
        least, most = _ends(known, "joules_per_token")
        counts = {"known": len(known), "all": len(rows)}
        yield Sentence("question.energy", counts | _from_to(least, most, "joules_per_token"), sources([least, most]))
    elif rows:
        yield Sentence("question.energy_unknown")


def _cost(tables: Mapping[str, pa.Table], plan: Plan, run: str) -> Answer:
    """Say the run's lowest and highest cost of a million output tokens, and the cost of serving nobody."""
    if plan.cost is None:
        return
    price = f"{plan.cost['price_per_hour']:g}"
    rows = rows_of(tables, "cost", run)
    if rows:
        least, most = _ends(rows, "usd_per_million_tokens")
        values = {"price": price} | _from_to(least, most, "usd_per_million_tokens")
        yield Sentence("question.cost", values, sources([least, most]))
    idle = rows_of(tables, "paid_idle", run)
    starts = [row for row in idle if row["usd_start_min"] is not None]
    if starts:
        took = {"seconds": _over(starts, "first_token_s"), "range": _over(starts, "usd_start")}
        ends = dict.fromkeys(row["setting"] for row in _ends(starts, "first_token_s"))
        yield Sentence(
            "question.cost_start", took | {"settings": len(starts)}, [(content.start(run, name), name) for name in ends]
        )
    elif idle:
        yield Sentence("question.cost_start_unknown")
    if idle and idle[0]["usd_idle"] is not None:
        values = {"minutes": f"{idle[0]['idle_after_min']:g}", "usd": digits(idle[0]["usd_idle"])}
        yield Sentence("question.cost_idle", values, [("file-paid_idle.parquet", "paid_idle.parquet")])
    elif idle:
        yield Sentence("question.cost_idle_unknown")


def _ends(rows: Sequence[Row], figure: str) -> tuple[Row, Row]:
    """Find where the smallest and the largest of a figure were measured."""
    return min(rows, key=lambda row: row[f"{figure}_min"]), max(rows, key=lambda row: row[f"{figure}_max"])


def _from_to(least: Row, most: Row, figure: str) -> dict[str, str]:
    return {
        "low": digits(least[f"{figure}_min"]),
        "high": digits(most[f"{figure}_max"]),
        "least": f"{least['setting']} · {least['users']}",
        "most": f"{most['setting']} · {most['users']}",
    }


def _over(rows: Sequence[Row], figure: str) -> str:
    return span(min(row[f"{figure}_min"] for row in rows), max(row[f"{figure}_max"] for row in rows))


def _answers(tables: Mapping[str, pa.Table]) -> Answer:
    """Say whether a difference to the baseline's answers was found; a difference not found may still exist."""
    rows = rows_of(tables, "comparisons")
    if not rows:
        yield Sentence("question.answers_not")
        return
    found = [row for row in rows if row["verdict"] == "difference"]
    for row in found:
        values = {name: row[name] for name in ("target", "baseline", "measure", "repeat", "n")}
        figures = {name: f"{row[name]:+.1f}" for name in ("difference", "low", "high")}
        yield Sentence("question.answers_differ", values | figures | {"p": digits(row["p_holm"])}, _compared([row]))
    rest = [row for row in rows if row["verdict"] != "difference"]
    if rest:
        low, high = min(row["low"] for row in rest), max(row["high"] for row in rest)
        values = {"count": len(rest), "all": len(rows), "low": f"{low:+.1f}", "high": f"{high:+.1f}"}
        yield Sentence("question.answers_none", values, _compared(rest))
    shown = [row for row in rows if row["equivalent"]]
    if shown:
        yield Sentence("question.answers_equivalent", {"count": len(shown), "all": len(rows)}, _compared(shown))


def _compared(rows: Sequence[Row]) -> list[tuple[str, str]]:
    """List where on the page each measure's comparisons are."""
    return [(compared_id(measure), measure) for measure in dict.fromkeys(row["measure"] for row in rows)]


def _memory(tables: Mapping[str, pa.Table]) -> Answer:
    """Say the smallest and the largest memory of the server's processes over all settings."""
    rows = [row for row in rows_of(tables, "memory") if row["measured_gib"] is not None]
    for kind in sorted({row["memory_kind"] or "host" for row in rows}):
        own = sorted((r for r in rows if (r["memory_kind"] or "host") == kind), key=lambda row: row["measured_gib"])
        values = {"least": own[0]["setting"], "most": own[-1]["setting"], "settings": len(own)}
        figures = {"low": digits(own[0]["measured_gib"]), "high": digits(own[-1]["measured_gib"])}
        rows_there = [(content.start(row["run"], row["setting"]), row["setting"]) for row in (own[0], own[-1])]
        yield Sentence(f"question.memory_{kind}", values | figures, list(dict.fromkeys(rows_there)))


def _sure(tables: Mapping[str, pa.Table], plan: Plan) -> Answer:
    rows = [row for run in plan.runs for row in _good(tables, run)]
    if not rows:
        return
    full = sum(row["rounds"] >= plan.rounds for row in rows)
    short = sources([row for row in rows if row["rounds"] < plan.rounds])
    yield Sentence("question.sure_rounds", {"rounds": plan.rounds, "full": full, "all": len(rows)}, short)
    yield covered(plan)
    judged = [row for row in rows if row["unstable"] is not None]
    unstable = [row for row in judged if row["unstable"]]
    if judged:
        values = {"unstable": len(unstable), "judged": len(judged)}
        yield Sentence("question.sure_unstable", values, sources(unstable))
    marked = [row for row in rows if row["marks"]]
    yield Sentence("question.sure_marked", {"marked": len(marked), "all": len(rows)}, sources(marked))


def _missing(tables: Mapping[str, pa.Table], plan: Plan) -> Answer:
    gaps = content.missing(tables, plan)
    failed = sum(bool(gap["reason"]) for gap in gaps)
    yield Sentence("question.missing", {"wanted": plan.measurements, "there": plan.measurements - len(gaps)})
    if failed:
        yield Sentence("question.missing_failed", {"count": failed})
    if len(gaps) > failed:
        yield Sentence("question.missing_absent", {"count": len(gaps) - failed})
    thrown = len(rows_of(tables, "discarded"))
    if thrown:
        yield Sentence("question.discarded", {"count": thrown})
