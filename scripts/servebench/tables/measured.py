"""Make tables from the raw records, each in one pass. Pure functions."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from servebench.engines import ADAPTERS
from servebench.load.figures import measurement_figures
from servebench.load.line import Line
from servebench.load.modes import MODES
from servebench.load.turns import by_turn
from servebench.machine.identity import Machine
from servebench.store.measurements import Discarded, Record
from servebench.store.records import SessionFacts
from servebench.tables.catalogue import DETAILS, FIGURES, SCHEMAS, SETTING
from servebench.tables.files import Row, table
from servebench.tables.logged import completed, unsaid
from servebench.tables.watched import in_window, shared, slowed

SLOW_S, SLOW_AFTER_S = 1.0, 5.0
BAND_WIDTH = 20
_ROUND_TRIP = ("round_trip_p50_s", "round_trip_min_s", "round_trip_max_s")


def measurements(records: Sequence[Record], line: Line) -> pa.Table:
    """Make one row per run × setting × users × round, in the experiment's order; figures of a failed one are null."""
    return table("measurements", (_measurement_row(record, line) for record in sorted(records, key=order)))


def _measurement_row(record: Record, line: Line) -> Row:
    identity, session, provenance = record.identity, record.session, record.provenance
    rule, seen = record.foreign_use, record.telemetry.get("foreign_utilisation", ())
    model = provenance.model
    row: Row = dict.fromkeys(SCHEMAS["measurements"].names)
    row |= _setting(record)
    row |= {"users": identity.users, "round": identity.round, "digest": identity.digest}
    row |= {"status": record.status, "reason": record.reason, "invalid_reasons": [], "telemetry_samples": len(seen)}
    row |= {"foreign_samples": rule.exceeded(seen), "foreign_unknown": sum(value is None for value in seen)}
    if record.status == "ok":
        row["foreign_limit"] = rule.samples
        figures = _figures(record, line)
        row |= {name: figures[name] for name in (*FIGURES, *DETAILS, *_JUDGEMENTS)}
        row |= _energy(record, row["output_tok_s"])
        row["utilisation"] = _mean_in_window(record, "utilisation")
        row["invalid_reasons"] = figures["invalid_reasons"]
    return (
        row
        | {
            "memory_gib": session.memory_gib,
            "memory_kind": session.memory_kind,
            "session_id": session.session_id,
            "server_age_s": session.server_age_s,
            "users_before": session.users_before,
            "started_at": provenance.started_at,
            "engine_pin": provenance.engine.pin,
            "servebench_version": provenance.servebench.version,
            "protocol": provenance.servebench.protocol,
            "model_sha256": model.sha256 if model else None,
        }
        | _server(session)
        | _machine(provenance.machine)
    )


def _energy(record: Record, output_tok_s: float | None) -> Row:
    """Compute the devices' mean power over the window, and energy per token; null if any sample is unknown."""
    power_w = _mean_in_window(record, "power_w")
    return {"power_w": power_w, "joules_per_token": power_w / output_tok_s if power_w and output_tok_s else None}


def _mean_in_window(record: Record, name: str) -> float | None:
    values = in_window(record, name)
    return sum(values) / len(values) if values and None not in values else None


_JUDGEMENTS = ("window_s", "meets_line", "in_time_requests", "line_confidence", "reference_only", "valid")


def _figures(record: Record, line: Line) -> Mapping[str, Any]:
    calibration = record.provenance.calibration
    return measurement_figures(
        completed(record),
        record.chunks,
        record.loaded,
        line,
        calibrated_users=calibration.max_users if calibration else None,
        seen=[*slowed(record), *unsaid(record), *shared(record)],
    )


def order(record: Record) -> tuple[int, int, int]:
    """Return a record's sort key in the experiment's order: setting, users, round."""
    return record.identity.rank, record.identity.users, record.identity.round


def _setting(record: Record) -> Row:
    return {name: getattr(record.identity, name) for name in SETTING}


def _server(session: SessionFacts) -> Row:
    names = ("engine_version", "engine_build", "argv", "device")
    return {name: getattr(session, name) for name in names}


def _machine(machine: Machine) -> Row:
    return {"machine": machine.name, "fingerprint": machine.fingerprint}


def sessions(records: Sequence[Record]) -> pa.Table:
    """Make one row per launch of a server: cold start, facts, memory, and which numbers of users it served."""
    launches: dict[str, list[Record]] = defaultdict(list)
    for record in sorted(records, key=lambda r: (r.identity.rank, r.identity.round, r.identity.users)):
        launches[record.session.session_id].append(record)
    return table("sessions", (_session_row(session_id, group) for session_id, group in launches.items()))


def _session_row(session_id: str, group: Sequence[Record]) -> Row:
    last, provenance = group[-1].session, group[-1].provenance
    cold, facts, model = last.cold_start_s, last.facts or {}, provenance.model
    sizes = [r.session.memory_gib for r in group if r.session.memory_gib is not None]
    return (
        _setting(group[0])
        | {
            "round": group[0].identity.round,
            "session_id": session_id,
            "launched_at": last.launched_at,
            **{name: getattr(cold, name) for name in ("process_s", "healthy_s", "first_token_s")},
            **{name: facts.get(name) for name in _ROUND_TRIP},
            "memory_gib": max(sizes, default=None),
            "memory_kind": last.memory_kind,
            "engine_pin": provenance.engine.pin,
            "env": _json(last.env),
            **_computing(facts),
            "facts": _json(last.facts),
            "users": [r.identity.users for r in group if r.status == "ok"],
            "model_sha256": model.sha256 if model else None,
            "model_size_bytes": model.size_bytes if model else None,
            "model_fetch_s": model.fetch_s if model else None,
            "cores": provenance.machine.cores,
            "machine_memory_gib": provenance.machine.memory_gib,
            "log": last.log,
        }
        | _server(last)
        | _machine(provenance.machine)
    )


def _computing(facts: Mapping[str, Any]) -> Row:
    """Return a server's CPUs, and the threads it reports, which may be as many as the whole machine has CPUs."""
    given = facts.get("cpus")
    return {"cpus": None if given is None else len(given), "threads": facts.get("threads")}


def _json(value: Any) -> str | None:
    return None if value is None else json.dumps(value, ensure_ascii=False, sort_keys=True)


def reference_bands(records: Sequence[Record], control: Mapping[str, str | None]) -> dict[str, tuple[int, int]]:
    """Find for each run the band of prompt lengths just over the micro-batch behind the shared head: (first, last).

    The reference is the run's control, else its first llama-server setting: the micro-batch it was launched with, and
    the most frequent number of prompt tokens it took from its cache. A run without either has no band.
    """
    bands = {}
    for run, reference in references(records, control).items():
        heads = [n for r in reference for n in r.requests["cached_tokens"].to_pylist() if n]
        size = micro_batch(reference[0])
        if heads and size is not None:
            bands[run] = band(size, max(sorted(set(heads)), key=heads.count))
    return bands


def references(records: Sequence[Record], control: Mapping[str, str | None]) -> dict[str, list[Record]]:
    """List the good records of each run's reference: its control, else its first llama-server setting."""
    found = {}
    for run in dict.fromkeys(record.identity.run for record in records):
        ours = [r for r in records if r.identity.run == run and r.identity.engine_kind == "llama-server"]
        name = control.get(run) or next((r.identity.setting for r in sorted(ours, key=order)), None)
        good = [r for r in ours if r.identity.setting == name and r.status == "ok"]
        if good:
            found[run] = good
    return found


def micro_batch(record: Record) -> int | None:
    """Return the server's micro-batch, in prompt tokens, from its command line; None if the command line has none."""
    return ADAPTERS[record.identity.engine_kind].micro_batch(record.session.argv or ())


def band(micro_batch_tokens: int, shared_head_tokens: int) -> tuple[int, int]:
    """Return the 20 prompt lengths just over the micro-batch after a cached head: (first, last) tokens."""
    first = micro_batch_tokens + shared_head_tokens + 1
    return first, first + BAND_WIDTH - 1


def slow_requests(records: Sequence[Record], bands: Mapping[str, tuple[int, int]]) -> pa.Table:
    """Count requests with a TTFT over 1 s, in the run's band of prompt lengths and outside of it, over all rounds.

    Only requests sent more than 5 s after the load began count; in an open loop or a trace both times are from when
    a request was due, as in the figures. Warm-up requests count; cancelled and failed requests do not, nor those sent
    after the window. In a run without a band, every request is outside.
    """
    counts: dict[tuple[str, str, int], npt.NDArray[np.int64]] = {}
    for record in sorted((r for r in records if r.status == "ok"), key=order):
        place = record.identity.run, record.identity.setting, record.identity.users
        counts[place] = counts.get(place, np.zeros(4, np.int64)) + _slow(record, bands.get(place[0]))
    rows = []
    for (run, setting, users), (band_slow, band_total, other_slow, other_total) in counts.items():
        low, high = bands.get(run, (None, None))
        rows.append(
            {
                "run": run,
                "setting": setting,
                "users": users,
                "band_low": low,
                "band_high": high,
                "band_slow": None if low is None else int(band_slow),
                "band_total": None if low is None else int(band_total),
                "other_slow": int(other_slow),
                "other_total": int(other_total),
            }
        )
    return table("slow_requests", rows)


def _slow(record: Record, limits: tuple[int, int] | None) -> npt.NDArray[np.int64]:
    """Count (slow, all) in the band, (slow, all) outside."""
    requests, start_ns = record.requests, record.loaded.load_start_ns
    counted = pc.and_(pc.equal(requests["status"], "ok"), pc.not_equal(requests["phase"], "after"))
    since = _since(record)
    requests = requests.filter(pc.and_(counted, pc.greater(requests[since], start_ns + int(SLOW_AFTER_S * 1e9))))
    ttft_s = (requests["first_token_ns"].to_numpy() - requests[since].to_numpy()) / 1e9
    length = pc.fill_null(requests["prompt_tokens"], -1).to_numpy()
    inside = np.zeros(len(length), bool) if limits is None else (length >= limits[0]) & (length <= limits[1])
    slow = ttft_s > SLOW_S
    return np.array([(slow & inside).sum(), inside.sum(), (slow & ~inside).sum(), (~inside).sum()], np.int64)


def prompt_lengths(records: Sequence[Record]) -> pa.Table:
    """List the tokens of each prompt as the server of a setting counts them, over all rounds and numbers of users."""
    counts: dict[tuple[str, str, str], list[int]] = defaultdict(list)
    for record in sorted((r for r in records if r.status == "ok"), key=order):
        good = record.requests.filter(pc.equal(record.requests["status"], "ok"))
        for prompt_id, tokens in zip(good["prompt_id"].to_pylist(), good["prompt_tokens"].to_pylist(), strict=True):
            name, _, turn = prompt_id.rpartition(" turn ")
            if tokens is not None and turn in ("1", prompt_id):
                counts[record.identity.run, record.identity.setting, name or prompt_id].append(tokens)
    names = ("run", "setting", "prompt_id")
    return table(
        "prompt_lengths",
        (
            dict(zip(names, place, strict=True)) | {"requests": len(own), "tokens_mean": sum(own) / len(own)}
            for place, own in counts.items()
        ),
    )


def ttft(records: Sequence[Record]) -> pa.Table:
    """List the TTFT of every target request per measurement, ascending, for its distribution.

    In an open loop or a trace TTFT counts from when a request was due, as in the figures.
    """
    return table("ttft", (_ttft_row(record) for record in sorted(records, key=order) if record.status == "ok"))


def turns(records: Sequence[Record]) -> pa.Table:
    """List each turn of the conversations of a measurement: its context, what the cache had of it, its TTFT."""
    return table(
        "turns",
        (
            record.identity.place | turn
            for record in sorted(records, key=order)
            if record.status == "ok"
            for turn in by_turn(completed(record))
        ),
    )


def _ttft_row(record: Record) -> Row:
    requests = record.requests
    targets = requests.filter(
        pc.and_(pc.equal(requests["phase"], "window"), pc.not_equal(requests["status"], "cancelled"))
    )
    good = targets.filter(pc.equal(targets["status"], "ok"))
    seconds = (good["first_token_ns"].to_numpy() - good[_since(record)].to_numpy()) / 1e9
    return record.identity.place | {"ttft_s": sorted(seconds.tolist()), "failures": len(targets) - len(good)}


def _since(record: Record) -> str:
    """Name the stamp from which a latency counts: when due in an open loop and a trace, else when sent."""
    return "scheduled_ns" if MODES[record.loaded.mode].scheduled else "sent_ns"


def timeline(records: Sequence[Record]) -> pa.Table:
    """List each second of each measurement, from the window's start: requests in flight, tokens, foreign use."""
    good = (record for record in sorted(records, key=order) if record.status == "ok")
    return table("timeline", (row for record in good for row in _seconds(record)))


def _seconds(record: Record) -> Iterator[Row]:
    meta, zero = record.loaded, record.loaded.window_start_ns
    first, last = (meta.load_start_ns - zero) // 10**9, -(-(meta.load_end_ns - zero) // 10**9)
    edges = zero + np.arange(first, last + 1) * 10**9
    tokens, _ = np.histogram(record.chunks["arrival_ns"].to_numpy(), edges, weights=record.chunks["tokens"].to_numpy())
    sent, end = _spans(record.requests)
    running = _overlap(sent, end, edges)
    foreign = _largest(record.telemetry, edges)
    for n, second in enumerate(range(first, last)):
        yield record.identity.place | {
            "second": second,
            "running": float(running[n]),
            "output_tok_s": float(tokens[n]),
            "foreign_utilisation": foreign.get(n),
        }


def _spans(requests: pa.Table) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Return the begin and end (ns) of each request that was sent and has ended."""
    done = requests.filter(pc.and_(pc.is_valid(requests["sent_ns"]), pc.is_valid(requests["end_ns"])))
    return done["sent_ns"].to_numpy(), done["end_ns"].to_numpy()


def _overlap(
    begin: npt.NDArray[np.int64], end: npt.NDArray[np.int64], edges: npt.NDArray[np.int64]
) -> npt.NDArray[np.float64]:
    """Average the number of open spans [begin, end) in each interval between two edges."""
    open_until = [np.clip(edges - b, 0, None) for b in begin]
    closed = [np.clip(edges - e, 0, None) for e in end]
    area = np.sum(open_until, axis=0) - np.sum(closed, axis=0) if len(begin) else np.zeros(len(edges))
    mean: npt.NDArray[np.float64] = np.diff(area) / np.diff(edges)
    return mean


def _largest(telemetry: Mapping[str, Sequence[Any]], edges: npt.NDArray[np.int64]) -> dict[int, float]:
    """Find the largest foreign use in each interval, percent; an interval without a sample is absent."""
    found: dict[int, float] = {}
    samples: Iterable[tuple[int, Any]] = zip(
        telemetry.get("time_ns", ()), telemetry.get("foreign_utilisation", ()), strict=False
    )
    for time_ns, value in samples:
        place = int(np.searchsorted(edges, time_ns, "right")) - 1
        if value is not None and 0 <= place < len(edges) - 1:
            found[place] = max(found.get(place, 0.0), 100 * float(value))
    return found


def telemetry(records: Sequence[Record]) -> pa.Table:
    """List each sample of the machine during the load, in seconds from the window's start; missing values are null."""
    good = (record for record in sorted(records, key=order) if record.status == "ok")
    return table("telemetry", (row for record in good for row in _samples(record)))


def _samples(record: Record) -> Iterator[Row]:
    zero = record.loaded.window_start_ns
    names, told = SCHEMAS["telemetry"].names[5:], dict(record.telemetry)
    for name in ("memory", "device_memory", "host_memory"):
        sizes = told.get(f"{name}_bytes", ())
        told[f"{name}_gib"] = [None if size is None else size / 2**30 for size in sizes]
    for n, time_ns in enumerate(told.get("time_ns", ())):
        sample = {name: told[name][n] if told.get(name) else None for name in names}
        yield record.identity.place | {"second": (time_ns - zero) / 1e9} | sample


def calibration(records: Sequence[Record]) -> pa.Table:
    """List the load generator's own errors from the latest calibration of each machine of a run."""
    rows: dict[tuple[Any, ...], Row] = {}
    known = [(r.identity.run, r.provenance.calibration) for r in sorted(records, key=order)]
    calibrated = [(run, one) for run, one in known if one]
    for run, one in sorted(calibrated, key=lambda pair: pair[1].created_at or ""):
        common = {"run": run, "created_at": one.created_at, "max_users": one.max_users}
        names = [name for name in SCHEMAS["calibration"].names if name not in common]
        for level in one.levels:
            place = run, str(one.machine), one.processes, level.variant, level.users
            rows[place] = common | {name: getattr(level, name) for name in names}
    return table("calibration", rows.values())


def discarded(thrown_out: Iterable[Discarded]) -> pa.Table:
    """List the discarded measurements with their reasons, oldest first."""
    return table("discarded", map(_discarded_row, thrown_out))


def _discarded_row(entry: Discarded) -> Row:
    known = entry.metadata
    return entry.place | {
        "why": entry.why,
        "discarded_at": entry.discarded_at,
        "started_at": known.provenance.started_at if known else None,
        "session_id": known.session.session_id if known else None,
    }
