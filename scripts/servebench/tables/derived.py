"""Derive tables from `measurements` and `sessions`: ranges over the rounds, the line, ratios, cost. Pure functions.

Every comparison stays within one run, and every ratio within one run and round; only `drift` crosses runs, and shows
how large the error of such a crossing can be.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from fractions import Fraction
from itertools import permutations
from statistics import median
from typing import Any

import pyarrow as pa

from servebench import schema
from servebench.engines import ADAPTERS
from servebench.marks import Mark, mark
from servebench.models.kv_cache import Cache, types_known
from servebench.plan import Plan, Setting
from servebench.plan.differences import differences
from servebench.tables.catalogue import FIGURES, SCHEMAS
from servebench.tables.expected import as_text, compare
from servebench.tables.files import Row, table

STABLE_FROM, STABLE_TO = 0.8, 1.2
MOST_SLOW_USERS = 4
_ENERGY = ("joules_per_token_min", "joules_per_token_max")
RATIO_FIGURES = ("output_tok_s", "user_tok_s", "ttft_p95_s")
_PLACE = ("run", "setting", "users")
# The mark of each column that must not vary between the rounds of a setting or the sessions of a target.
MIXED = {
    "engine_version": "mixed_engine_versions",
    "engine_build": "mixed_engine_builds",
    "engine_pin": "mixed_engine_pins",
    "model_sha256": "mixed_model_files",
}
_SETTING = [n for n in SCHEMAS["queueing"].names if n in SCHEMAS["measurements"].names and n != "users"]


def settings(measurements: pa.Table, rounds: int = 2, prompt_lengths: pa.Table | None = None) -> pa.Table:
    """Make one row per run × setting × users: smaller and larger of the rounds, the line in all of them, marks.

    `rounds` is the number the experiment plans; with a round missing or failed, `meets_line_both_rounds` is null. By
    `prompt_lengths` a setting whose server makes other prompts than that of the run's first setting is marked.
    Ranges cover the rounds that were measured; a round without output does not count as a round, but as a missed line.
    """
    machines = _machine_of_run(measurements)
    other = _other_prompts(measurements, prompt_lengths) if prompt_lengths else {}
    return table("settings", (_setting_row(rows, rounds, machines, other) for rows in _groups(measurements, _PLACE)))


def _other_prompts(measurements: pa.Table, prompt_lengths: pa.Table) -> dict[tuple[str, str], Mark]:
    """Mark settings (run, setting) whose prompts have other numbers of tokens than those of the run's first setting.

    A server adds its chat template to each document. The same template gives the same number of tokens, but for number
    lines, whose digits some tokenizers join: their differences have a median of 0.
    """
    lengths: dict[tuple[str, str], dict[str, float]] = defaultdict(dict)
    for row in prompt_lengths.to_pylist():
        lengths[row["run"], row["setting"]][row["prompt_id"]] = row["tokens_mean"]
    found, first = {}, dict[str, str]()
    for run, setting in dict.fromkeys(zip(*(measurements[name].to_pylist() for name in _PLACE[:2]), strict=True)):
        own, than = lengths.get((run, setting)), first.get(run, setting)
        if not own:
            continue
        first[run] = than
        theirs = lengths[run, than]
        more = [tokens - theirs[prompt] for prompt, tokens in own.items() if prompt in theirs]
        if more and abs(median(more)) >= 1:
            found[run, setting] = mark("other_prompt_tokens", than=than, tokens=median(more))
    return found


def _setting_row(
    rows: Sequence[Row],
    rounds: int,
    machines: Mapping[str, str | None],
    other_prompts: Mapping[tuple[str, str], Mark],
) -> Row:
    first, measured = rows[0], [row for row in rows if row["status"] == "ok"]
    good = [row for row in measured if row["output_tok_s"] is not None]
    change, met = largest_change(good), [row["meets_line"] for row in measured]
    failures = [reason for row in rows if row not in good for reason in row["reason"] or row["invalid_reasons"]]
    result: Row = {name: first[name] for name in (*_SETTING, "users")}
    for figure in FIGURES:
        result[f"{figure}_min"], result[f"{figure}_max"] = _range(row[figure] for row in measured)
    unstable = None if len(good) < 2 else change is not None and _is_unstable(change["ratio"])
    return result | {
        "rounds": len(good),
        "memory_gib_max": _range(row["memory_gib"] for row in good)[1],
        "meets_line_both_rounds": all(met) if len(measured) == rounds else None,
        **dict(zip(_ENERGY, _range(row["joules_per_token"] for row in good), strict=True)),
        "line_confidence_min": _range(row["line_confidence"] for row in measured)[0],
        "unstable": unstable,
        "largest_change": change and change["change"],
        "reference_only": any(row["reference_only"] for row in good) if good else None,
        "marks": [
            *dict.fromkeys(_marks(good, rounds, change, machines)),
            *filter(None, [other_prompts.get((first["run"], first["setting"]))]),
        ],
        "failure": list(dict.fromkeys(failures)),
    }


def _marks(good: Sequence[Row], rounds: int, change: Row | None, machines: Mapping[str, str | None]) -> Iterator[Mark]:
    """Yield the reasons not to trust a row fully."""
    if good and len(good) < rounds:
        yield mark("missing_round", measured=len(good), rounds=rounds)
    if any(row["reference_only"] for row in good):
        yield mark("few_requests", requests=min(row["target_requests"] for row in good))
    if change and _is_unstable(change["ratio"]):
        yield mark("unstable_rounds", **{name: change[name] for name in ("figure", "first", "second")})
    if any(row["fingerprint"] != machines[row["run"]] for row in good):
        yield mark("mixed_machines")
    devices = list(dict.fromkeys(row["device"] for row in good if row["device"]))
    if len(devices) > 1:
        yield mark("mixed_devices", devices=devices)
    for column, kind in MIXED.items():
        served = list(dict.fromkeys(row[column] for row in good))
        if len(served) > 1:
            yield mark(kind, found=served)
            break  # a change of version changes the build and the pin as well
    if any(row["foreign_samples"] is None for row in good):
        yield mark("foreign_use_unknown")
    for row in filter(_partly_unknown, good):
        samples = row["telemetry_samples"]
        yield mark("foreign_use_partly_unknown", known=samples - row["foreign_unknown"], samples=samples)
    for row in good:
        yield from row["invalid_reasons"]


def _partly_unknown(row: Row) -> bool:
    """Return whether the unknown samples could make the measurement invalid, where other samples are known."""
    return row["foreign_samples"] is not None and row["foreign_unknown"] >= row["foreign_limit"]


def _machine_of_run(measurements: pa.Table) -> dict[str, str | None]:
    """Find the machine each run began on."""
    started = sorted(measurements.to_pylist(), key=lambda row: row["started_at"] or "")
    return {row["run"]: row["fingerprint"] for row in reversed(started)}


def largest_change(rounds: Sequence[Row]) -> Row | None:
    """Find the figure that changed most between rounds: `figure, first, second, ratio, change`, or None.

    Of output tok/s, user tok/s and TTFT p95, the one with the largest |later ÷ earlier − 1| over all pairs of rounds.
    """
    changes = []
    for n, earlier in enumerate(rounds):
        for later in rounds[n + 1 :]:
            for figure in RATIO_FIGURES:
                first, second = earlier[figure], later[figure]
                if first and second is not None:
                    ratio = second / first
                    changes.append(
                        {"figure": figure, "first": first, "second": second, "ratio": ratio, "change": abs(ratio - 1)}
                    )
    return max(changes, key=lambda change: change["change"], default=None)


def _is_unstable(ratio: float) -> bool:
    return ratio <= STABLE_FROM or ratio >= STABLE_TO


def unstable(measurements: pa.Table) -> pa.Table:
    """List the pairs of rounds in which a figure is at most 0.8 or at least 1.2 times the earlier, largest first."""
    rows = []
    for group in _groups(measurements, _PLACE):
        good = [row for row in group if row["status"] == "ok"]
        change = largest_change(good)
        if change and _is_unstable(change["ratio"]):
            place = {name: group[0][name] for name in _PLACE}
            rows.append({**place, **change, "target_requests_min": _range(r["target_requests"] for r in good)[0]})
    return table("unstable", sorted(rows, key=lambda row: -row["change"]))


def queueing(settings_table: pa.Table) -> pa.Table:
    """List TTFT where the users are as many as the slots, or more."""
    columns = SCHEMAS["queueing"].names
    rows = [row | {"multiple": row["users"] / row["slots"]} for row in schema.rows(settings_table)]
    return table("queueing", ({name: row[name] for name in columns} for row in rows if row["multiple"] >= 1))


def slow_by_micro_batch(slow_requests: pa.Table, sessions: pa.Table) -> pa.Table:
    """Count the slow requests of at most 4 users by the server's micro-batch, in the runs that have a band.

    More users queue behind each other's prompts, which is a different effect. Servers with an unknown micro-batch are
    left out.
    """
    told: dict[tuple[str, str], tuple[str, int]] = {}
    for launch in sessions.to_pylist():
        size = (json.loads(launch["facts"]) if launch["facts"] else {}).get("n_ubatch")
        if size is None and launch["argv"]:
            size = ADAPTERS[launch["engine_kind"]].micro_batch(launch["argv"])
        if size is not None:
            told[launch["run"], launch["setting"]] = launch["engine_kind"], size
    groups: dict[tuple[str, str, int], list[Row]] = defaultdict(list)
    for row in slow_requests.to_pylist():
        if (row["run"], row["setting"]) in told and row["band_low"] is not None and row["users"] <= MOST_SLOW_USERS:
            groups[row["run"], *told[row["run"], row["setting"]]].append(row)
    counts = ("band_slow", "band_total", "other_slow", "other_total")
    return table(
        "slow_by_micro_batch",
        (
            {"run": run, "engine_kind": kind, "micro_batch": size, "users_most": MOST_SLOW_USERS}
            | {"settings": list(dict.fromkeys(row["setting"] for row in rows))}
            | {name: sum(row[name] for row in rows) for name in counts}
            for (run, kind, size), rows in groups.items()
        ),
    )


def ratios(measurements: pa.Table, settings_table: pa.Table, plan: Plan) -> pa.Table:
    """Compute ratios between settings that differ in one thing, within a round, as their range over the rounds.

    control: every setting of a run that names a control, over the control. engine, slots, quantization: the one
    difference. drift: the same setting in a later run over an earlier one.
    """
    at: dict[tuple[str, str], dict[tuple[int, int], Row]] = defaultdict(dict)
    for row in measurements.to_pylist():
        if row["status"] == "ok":
            at[row["run"], row["setting"]][row["users"], row["round"]] = row
    marks = {tuple(row[name] for name in _PLACE): row["marks"] for row in schema.rows(settings_table)}
    rows: list[Row] = []
    for one, base in permutations(plan.settings.values(), 2):
        for kind in _kinds(one, base, plan):
            for row in _ratio_rows(kind, one, base, at[one.run, one.name], at[base.run, base.name]):
                both = [found for s in (one, base) for found in marks[s.run, s.name, row["users"]]]
                rows.append(row | {"marks": list(dict.fromkeys(both))})
    return table("ratios", sorted(rows, key=lambda row: (row["kind"], row["run"])))


def _kinds(one: Setting, base: Setting, plan: Plan) -> Iterator[str]:
    """Yield the kinds of a comparison of `one` over `base`; none when they differ in more than one thing."""
    order = list(plan.settings)
    later = order.index(one.name) > order.index(base.name)
    differ = differences(one, base)
    if one.run != base.run:
        if later and all(name.startswith("workload.") for name in differ):
            yield "drift"
        return
    if plan.runs[one.run].get("control") == base.name:
        yield "control"
    if one.engine.kind != base.engine.kind and one.slots == base.slots and one.model.key == base.model.key and later:
        yield "engine"
    if differ == ["slots"] and one.slots > base.slots:
        yield "slots"
    if differ in (["model"], ["model_file"], ["quantization"]) and later:
        yield "quantization"


def _ratio_rows(kind: str, one: Setting, base: Setting, ours: dict[Any, Row], theirs: dict[Any, Row]) -> Iterator[Row]:
    both = sorted(set(ours) & set(theirs))
    for users in sorted({users for users, _ in both}):
        for figure in RATIO_FIGURES:
            pairs = [(ours[at][figure], theirs[at][figure]) for at in both if at[0] == users]
            values = [a / b for a, b in pairs if a is not None and b]
            if values:
                yield {
                    "kind": kind,
                    "run": one.run,
                    "setting": one.name,
                    "baseline_run": base.run,
                    "baseline": base.name,
                    "users": users,
                    "figure": figure,
                    "ratio_min": min(values),
                    "ratio_max": max(values),
                    "rounds": len(values),
                }


def expected(sessions: pa.Table, plan: Plan) -> pa.Table:
    """Compare the published facts of each setting with those its launches reported (expected.py)."""
    rows = []
    for launch in sessions.to_pylist():
        facts = json.loads(launch["facts"]) if launch["facts"] else {}
        place = {name: launch[name] for name in ("run", "setting", "round", "session_id")}
        for fact in compare(plan.settings[launch["setting"]].expect, facts):
            said = {"what": fact.what, "published": as_text(fact.expected), "found": as_text(fact.got), "met": fact.met}
            rows.append(place | said)
    return table("expected", rows)


def memory(
    sessions: pa.Table, measurements: pa.Table, caches: Mapping[str, Cache], settings: Mapping[str, Setting]
) -> pa.Table:
    """Compare measured memory with weights and predicted KV cache, one row per setting that has a session.

    `caches` is by model key; a model without an entry has no prediction. `settings` are the settings as configured.
    """
    lengths = _request_tokens(measurements)
    rows = []
    for group in _groups(sessions, ("run", "setting")):
        first = group[0]
        measured = _range(row["memory_gib"] for row in group)[1]
        size = first["model_size_bytes"]
        tokens, request_tokens = _kv_cache_tokens(group), lengths.get((first["run"], first["setting"]))
        weights = None if size is None else size / 2**30
        cache = _kv_cache_gib(caches.get(first["model"]), tokens, settings[first["setting"]])
        known = measured is not None and weights is not None and cache is not None
        rows.append(
            {name: first[name] for name in _SETTING}
            | {
                "measured_gib": measured,
                "memory_kind": first["memory_kind"],
                "weights_gib": weights,
                "kv_cache_tokens": tokens,
                "kv_cache_gib": cache,
                "rest_gib": measured - weights - cache if known else None,
                "request_tokens": request_tokens,
                "requests_fit": requests_fit(tokens, request_tokens),
            }
        )
    return table("memory", rows)


def _kv_cache_gib(cache: Cache | None, tokens: int | None, setting: Setting) -> float | None:
    """Predict the cache of all slots, each with its share of the tokens, in the configured types; None where unknown.

    It is unknown for a pool of tokens with sliding windows: how an engine counts these tokens changes with its version.
    """
    engine = ADAPTERS[setting.engine.kind]
    types = engine.cache_types(setting)
    if cache is None or tokens is None or not types_known(types) or (cache.windowed and engine.fills_device):
        return None
    return float(setting.slots * cache.exact(Fraction(tokens, setting.slots), *types)) / 2**30


def requests_fit(kv_cache_tokens: int | None, request_tokens: float | None) -> int | None:
    """Compute how many whole requests (prompt and answer) a KV cache has room for; None with either unknown."""
    return int(kv_cache_tokens / request_tokens) if kv_cache_tokens is not None and request_tokens else None


def _kv_cache_tokens(launches: Sequence[Row]) -> int | None:
    """Return the smallest cache that a launch reported; else the configured cache: context × slots."""
    told = [json.loads(launch["facts"]).get("kv_cache_tokens") for launch in launches if launch["facts"]]
    context, slots = launches[0]["context"], launches[0]["slots"]
    smallest: int | None = _range(told)[0]
    return smallest if smallest is not None else None if context is None else context * slots


def _request_tokens(measurements: pa.Table) -> dict[tuple[str, str], float]:
    """Average the tokens of a request, prompt and answer, by run and setting; settings without a count are absent."""
    found: dict[tuple[str, str], list[float]] = defaultdict(list)
    for row in measurements.to_pylist():
        if row["prompt_tokens_p50"] is not None and row["output_tokens_mean"] is not None:
            found[row["run"], row["setting"]].append(row["prompt_tokens_p50"] + row["output_tokens_mean"])
    return {place: sum(values) / len(values) for place, values in found.items()}


def cost(settings_table: pa.Table, price_per_hour: float) -> pa.Table:
    """Compute USD for a million output tokens = price ÷ 3600 ÷ output tok/s × 10⁶, at a price in USD an hour."""
    rows = []
    for row in settings_table.to_pylist():
        low, high = row["output_tok_s_min"], row["output_tok_s_max"]
        if low and high:
            rows.append(
                {name: row[name] for name in _PLACE}
                | {
                    "price_per_hour": price_per_hour,
                    "usd_per_million_tokens_min": usd_per_million_tokens(price_per_hour, high),
                    "usd_per_million_tokens_max": usd_per_million_tokens(price_per_hour, low),
                    "tokens_per_s_per_usd_h_min": low / price_per_hour,
                    "tokens_per_s_per_usd_h_max": high / price_per_hour,
                    **{name: row[name] for name in _ENERGY},
                }
            )
    return table("cost", rows)


def paid_idle(sessions: pa.Table, price_per_hour: float, idle_after_min: float | None) -> pa.Table:
    """Compute what a machine costs while it serves nobody: from launch to the first token, and until it is given back.

    A server at a URL is not launched by servebench and has no start cost.
    """
    rows = []
    for group in _groups(sessions, ("run", "setting")):
        low, high = _range(row["first_token_s"] for row in group if row["engine_kind"] != "url")
        rows.append(
            {
                "run": group[0]["run"],
                "setting": group[0]["setting"],
                "price_per_hour": price_per_hour,
                "first_token_s_min": low,
                "first_token_s_max": high,
                "usd_start_min": None if low is None else usd(price_per_hour, low),
                "usd_start_max": None if high is None else usd(price_per_hour, high),
                "idle_after_min": idle_after_min,
                "usd_idle": None if idle_after_min is None else usd(price_per_hour, 60 * idle_after_min),
            }
        )
    return table("paid_idle", rows)


def usd(price_per_hour: float, seconds: float) -> float:
    """Compute USD for a number of seconds at this price (USD an hour)."""
    return price_per_hour / 3600 * seconds


def usd_per_million_tokens(price_per_hour: float, output_tok_s: float) -> float:
    """Compute USD for a million output tokens at this price (USD an hour) and speed (tokens/s)."""
    return price_per_hour / 3600 / output_tok_s * 1e6


def reproduction(settings_table: pa.Table, published: Iterable[Mapping[str, Any]]) -> pa.Table:
    """Put our ranges beside those of `published`: rows of `run, setting, users`, `<figure>_min`, `<figure>_max`."""
    ours = {tuple(row[n] for n in _PLACE): row for row in settings_table.to_pylist()}
    rows = []
    for cell in published:
        mine = ours.get((cell["run"], cell["setting"], cell["users"]), {})
        for figure in FIGURES:
            low, high = cell.get(f"{figure}_min"), cell.get(f"{figure}_max")
            if low is None or high is None:
                continue
            a, b = mine.get(f"{figure}_min"), mine.get(f"{figure}_max")
            known = a is not None and b is not None
            rows.append(
                {name: cell[name] for name in _PLACE}
                | {
                    "figure": figure,
                    "published_min": low,
                    "published_max": high,
                    "measured_min": a,
                    "measured_max": b,
                    "ratio": (a + b) / (low + high) if known and low + high else None,
                    "overlap": a <= high and low <= b if known else None,
                }
            )
    return table("reproduction", rows)


def _range(values: Iterable[Any]) -> tuple[Any, Any]:
    """Return the smallest and the largest of the values that are not None; (None, None) without any."""
    there = [value for value in values if value is not None]
    return (min(there), max(there)) if there else (None, None)


def _groups(content: pa.Table, names: Sequence[str]) -> Iterator[list[Row]]:
    """Group rows that agree in `names`, in order of round, groups in the order of the experiment."""
    groups: dict[Hashable, list[Row]] = defaultdict(list)
    key: Callable[[Row], Any] = lambda row: (row["rank"], row.get("users") if "users" in names else 0)  # noqa: E731
    for row in sorted(schema.rows(content), key=lambda row: (*key(row), row["round"])):
        groups[tuple(row[name] for name in names)].append(row)
    yield from groups.values()
