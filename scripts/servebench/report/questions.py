"""Questions people ask, answered from the data; where it cannot answer, that is the answer.

As in `answer`: ranges that overlap are not told apart, fewer than two rounds tell nothing apart, no cause is stated,
and every figure comes with the rows it is from.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa

from servebench.charts.bars import usual_users
from servebench.charts.style import Row, digits, rows_of, span
from servebench.plan import Plan
from servebench.report import content
from servebench.report.answer import Sentence, met_at_most, separated, sources, span_of

Answer = Iterator[Sentence]


@dataclass(frozen=True)
class Question:
    """A question (a key under `page.questions`), of one run or of the whole experiment (None), and its answer."""

    key: str
    run: str | None
    answer: Sequence[Sentence]


def questions(tables: Mapping[str, pa.Table], plan: Plan) -> list[Question]:
    """All questions that the experiment could answer, those of each run first."""
    of_run: dict[str, Callable[[Mapping[str, pa.Table], Plan, str], Answer]] = {
        "people": _people,
        "alone": _alone,
        "slots": lambda tables, plan, run: _changed(tables, run, "slots"),
        "speed": lambda tables, plan, run: _changed(tables, run, "quantization"),
        "queue": _queue,
    }
    made = [Question(key, run, list(tell(tables, plan, run))) for run in plan.runs for key, tell in of_run.items()]
    made.append(Question("answers", None, list(_answers(tables))))
    made.append(Question("memory", None, list(_memory(tables))))
    made.append(Question("sure", None, list(_sure(tables, plan))))
    made.append(Question("missing", None, list(_missing(tables, plan))))
    return [question for question in made if question.answer]


def _good(tables: Mapping[str, pa.Table], run: str) -> list[Row]:
    return [row for row in rows_of(tables, "settings", run) if row["rounds"]]


def _people(tables: Mapping[str, pa.Table], plan: Plan, run: str) -> Answer:
    """The most users with which some setting meets the line, and what a user is here."""
    rows = _good(tables, run)
    if not any(row["meets_line_both_rounds"] is not None for row in rows):
        return
    best = met_at_most(rows)
    if not best:
        yield Sentence("question.people_none", {"users": min(row["users"] for row in rows)})
    else:
        users, names = best[0]["users"], ", ".join(row["setting"] for row in best)
        yield Sentence("question.people", {"users": users, "settings": names}, sources(best))
        if users == max(row["users"] for row in rows):
            yield Sentence("question.people_more", {"users": users})
    own = [setting for setting in plan.settings.values() if setting.run == run]
    if all(s.workload.get("mode") == "closed" and not s.workload.get("think") for s in own):
        yield Sentence("question.no_pause")


def _alone(tables: Mapping[str, pa.Table], plan: Plan, run: str) -> Answer:
    rows = [row for row in _good(tables, run) if row["users"] == 1 and row["user_tok_s_min"] is not None]
    if not rows:
        yield Sentence("question.alone_not")
        return
    rows.sort(key=lambda row: -(row["user_tok_s_min"] + row["user_tok_s_max"]))
    close = [row for row in rows[1:] if not separated(rows[0], row, "user_tok_s")]
    values = {"setting": rows[0]["setting"], "range": span_of(rows[0], "user_tok_s")}
    yield Sentence("question.alone", values, sources(rows[:1]))
    if close:
        named = ", ".join(f"{row['setting']} ({span_of(row, 'user_tok_s')})" for row in close)
        yield Sentence("question.alone_close", {"settings": named}, sources(close))
    weights = {row["quantization"] for row in rows} - {None}
    if len(weights) > 1:
        yield Sentence("question.weights", {"weights": ", ".join(sorted(weights))})


def _changed(tables: Mapping[str, pa.Table], run: str, kind: str) -> Answer:
    """Output of settings that differ in one thing alone, at the number of users most of them have."""
    pairs = [row for row in rows_of(tables, "ratios", run) if row["kind"] == kind and row["figure"] == "output_tok_s"]
    users = usual_users(pairs, None)
    rows = {row["setting"]: row for row in _good(tables, run) if row["users"] == users}
    for pair in pairs:
        one, base = rows.get(pair["setting"]), rows.get(pair["baseline"])
        if pair["users"] != users or one is None or base is None:
            continue
        values = {
            "users": users,
            "setting": f"{pair['setting']} ({_what(one, kind)})",
            "base": f"{pair['baseline']} ({_what(base, kind)})",
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
    """TTFT with as many users as slots, and with more: over the settings that were measured with both."""
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


def _over(rows: Sequence[Row], figure: str) -> str:
    return span(min(row[f"{figure}_min"] for row in rows), max(row[f"{figure}_max"] for row in rows))


def _answers(tables: Mapping[str, pa.Table]) -> Answer:
    """Whether a difference to the baseline's answers was found; none found is not the same as none."""
    rows = rows_of(tables, "comparisons")
    if not rows:
        yield Sentence("question.answers_not")
        return
    found = [row for row in rows if row["verdict"] == "difference"]
    for row in found:
        values = {name: row[name] for name in ("target", "baseline", "measure", "repeat", "n")}
        figures = {name: f"{row[name]:+.1f}" for name in ("difference", "low", "high")}
        yield Sentence("question.answers_differ", values | figures | {"p": digits(row["p_holm"])})
    rest = [row for row in rows if row["verdict"] != "difference"]
    if rest:
        low, high = min(row["low"] for row in rest), max(row["high"] for row in rest)
        values = {"count": len(rest), "all": len(rows), "low": f"{low:+.1f}", "high": f"{high:+.1f}"}
        yield Sentence("question.answers_none", values)
    shown = [row for row in rows if row["equivalent"]]
    if shown:
        yield Sentence("question.answers_equivalent", {"count": len(shown), "all": len(rows)})


def _memory(tables: Mapping[str, pa.Table]) -> Answer:
    """Memory of the server's processes: the least and the most of all settings."""
    rows = [row for row in rows_of(tables, "memory") if row["measured_gib"] is not None]
    for kind in sorted({row["memory_kind"] or "host" for row in rows}):
        own = sorted((r for r in rows if (r["memory_kind"] or "host") == kind), key=lambda row: row["measured_gib"])
        values = {"least": own[0]["setting"], "most": own[-1]["setting"], "settings": len(own)}
        figures = {"low": digits(own[0]["measured_gib"]), "high": digits(own[-1]["measured_gib"])}
        yield Sentence(f"question.memory_{kind}", values | figures)


def _sure(tables: Mapping[str, pa.Table], plan: Plan) -> Answer:
    rows = [row for run in plan.runs for row in _good(tables, run)]
    if not rows:
        return
    full = sum(row["rounds"] >= plan.rounds for row in rows)
    yield Sentence("question.sure_rounds", {"rounds": plan.rounds, "full": full, "all": len(rows)})
    if plan.rounds == 2:
        yield Sentence("question.sure_half")
    judged = [row for row in rows if row["unstable"] is not None]
    unstable = [row for row in judged if row["unstable"]]
    if judged:
        values = {"unstable": len(unstable), "judged": len(judged)}
        yield Sentence("question.sure_unstable", values, sources(unstable[:6]))
    marked = [row for row in rows if row["marks"]]
    yield Sentence("question.sure_marked", {"marked": len(marked), "all": len(rows)}, sources(marked[:6]))


def _missing(tables: Mapping[str, pa.Table], plan: Plan) -> Answer:
    gaps = content.missing(tables, plan)
    failed = sum(gap["reason"] is not None for gap in gaps)
    values = {"wanted": plan.measurements, "there": plan.measurements - len(gaps)}
    yield Sentence("question.missing", values | {"failed": failed, "absent": len(gaps) - failed})
    thrown = len(rows_of(tables, "discarded"))
    if thrown:
        yield Sentence("question.discarded", {"count": thrown})
