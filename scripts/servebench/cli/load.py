"""Load a server, write the files and print a summary: `servebench load`."""

from __future__ import annotations

import csv
import dataclasses
import json
import shlex
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from secrets import randbits
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import typer
from rich import box
from rich.console import Console
from rich.progress import BarColumn, TextColumn
from rich.progress import Progress as Bar
from rich.table import Table

from servebench.claims import Claim
from servebench.faults import Fault
from servebench.load import calibrate, figures, jsonl, software
from servebench.load import line as line_
from servebench.load.calibration import Calibration, Level
from servebench.load.endpoint import Endpoint
from servebench.load.lengths import Lengths
from servebench.load.measurement import LoadMeta, Measurement
from servebench.load.modes import MODES
from servebench.load.records import check_chunks, check_requests, write_measurement
from servebench.load.run import Progress, measure
from servebench.load.turns import by_turn
from servebench.load.workload import Workload
from servebench.machine import cache
from servebench.machine.infrastructure import writable
from servebench.machine.priority import allow_pandas
from servebench.machine.untrusted import printable
from servebench.words import claims, spoken

# Rows of the printed summary, in order: figure, its name, format.
_SHOWN = (
    ("output_tok_s", "output tok/s", "{:,.1f}"),
    ("user_tok_s", "user tok/s (median)", "{:.1f}"),
    ("ttft_p50_s", "TTFT p50", "{:.3f} s"),
    ("ttft_p95_s", "TTFT p95", "{:.3f} s"),
    ("ttft_p95_all_s", "TTFT p95, failures as +∞", "{:.3f} s"),
    ("e2e_p50_s", "whole reply p50", "{:.2f} s"),
    ("inter_chunk_p99_s", "gap between chunks p99", "{:.3f} s"),
    ("target_requests", "target requests", "{}"),
    ("failures", "failures among them", "{}"),
    ("other_failures", "failures outside the window", "{}"),
    ("reasoning_replies", "replies with reasoning", "{}"),
    ("prompt_tokens_p50", "prompt tokens (median)", "{:.0f}"),
    ("prompt_tok_s", "prompt tok/s until the first token", "{:,.0f}"),
    ("cached_tokens_mean", "of them cached (mean)", "{:.0f}"),
    ("output_tokens_mean", "output tokens (mean)", "{:.1f}"),
    ("in_flight_mean", "streams at once (mean)", "{:.1f}"),
    ("backlog_end", "backlog at the end", "{}"),
    ("line_confidence", "confidence in the target's p95", "{:.1%}"),
)
_CLIENT = (
    ("client_cpu_ratio", "CPU of the busiest process", "{:.1%}"),
    ("client_loop_lag_p99_s", "event-loop lag p99", "{:.4f} s"),
    ("send_delay_p99_s", "sent later than due p99", "{:.4f} s"),
)


def command(
    endpoint: Endpoint,
    workload: Workload,
    users: Sequence[int],
    out: Path,
    *,
    processes: int | None,
    seed: int | None,
    line: line_.Line,
    html: Path | None = None,
    table: Path | None = None,
) -> int:
    """Load a server with one number of users, or with several in turn; write the measurements and print the figures.

    A measurement is requests.parquet, chunks.parquet and summary.json, in `out` or, for several numbers of users, in
    `out/users-N` beside sweep.csv. Those of a sweep that are there already are not made again. `html` and `table` name
    files for a page and for the figures as CSV. Returns the exit status: 1 when any request failed, else 0. Raises
    Fault where another measurement, or a file, would be overwritten.
    """
    writable(out, "--out")
    check_files(html, table)
    folders = {count: out if len(users) == 1 else out / f"users-{count}" for count in users}
    sweep = len(users) > 1
    kept = {count: whole for count, place in folders.items() if (whole := read_kept(place))}
    for count, measured in kept.items():
        if not sweep or not is_of(measured.meta, endpoint, workload, count) or seed not in (None, measured.meta.seed):
            what = "a measurement already" if not sweep else "a measurement of another load"
            raise Fault(f"--out: {folders[count]} holds {what}; name another folder, or remove it")
    if seed is None:
        seed = next((one.meta.seed for one in kept.values() if one.meta.seed is not None), randbits(32))
    known = calibrate.known(cache.root(), processes=processes)
    summaries = []
    for count, folder in folders.items():
        if count in kept:
            Console(stderr=True).print(f"{counted(count, workload.mode)}: measured already, {folder}", highlight=False)
            measured = kept[count]
        else:
            # By the users, not by the place in the sweep: a later call with more of them shares its seed, and what one
            # of them sent may be in the server's cache.
            measured = measured_now(endpoint, workload, count, processes=processes, seed=seed, number_seed=seed + count)
        found = figures.measurement_figures(
            measured.requests,
            measured.chunks,
            measured.meta,
            line,
            calibrated_users=known.max_users if known else None,
        )
        summary = {**found, "turns": by_turn(measured.requests), "meta": measured.meta, "calibration": known}
        summaries.append(msgspec.to_builtins(summary))
        if count not in kept:
            write_measurement(folder, measured.requests, measured.chunks, summary)
        if not sweep:
            _print_summary(Console(), endpoint.model, measured, found, known, processes)
    from servebench.verdicts.levels import enough_requests  # not before the load: importing takes time

    levels, once = judged(summaries, out.name, line)
    no_figures = ("turns", "meta", "calibration")
    rows = [
        {name: value for name, value in summary.items() if name not in no_figures}
        | {"users": count, "verdict": verdict}
        for count, summary, verdict in zip(users, summaries, (level.verdict for level in levels), strict=True)
    ]
    if sweep:
        _write_csv(out / "sweep.csv", rows)
        Console().print(_sweep_table(f"{endpoint.model} · {workload.mode}", rows))
    Console().print(spoken("load.target", **vars(line))["en"], highlight=False, soft_wrap=True)
    for claim in (*levels, once) if sweep else levels:
        Console().print(printable(claims.said(claim)["en"]), markup=False, highlight=False, soft_wrap=True)
    for step, values in enough_requests(levels, workload.mode).items():
        Console().print(spoken(f"page.next.{step}", **values)["en"], markup=False, highlight=False, soft_wrap=True)
    names = "sweep.csv, users-*/" if sweep else "summary.json, requests.parquet, chunks.parquet"
    Console().print(f"written to {out}/: {names}", highlight=False, soft_wrap=True)
    if table is not None:
        _write_csv(table, rows)
        Console().print(f"the figures are {table}", highlight=False, soft_wrap=True)
    if html is not None:
        allow_pandas()  # charts need it
        from servebench.report import load_page
        from servebench.tables import loaded

        plan, tables = loaded.tables_of(summaries, out.name, line, name=None)
        html.write_text(load_page.page(plan, tables), encoding="utf-8")
        Console().print(f"the page is {html}", highlight=False, soft_wrap=True)
    return 1 if any(map(_failed, rows)) else 0


def check_files(html: Path | None, table: Path | None) -> None:
    """Raise Fault for a file that cannot be made, before anything is measured."""
    for path, option, endings in ((html, "--html", (".html", ".htm")), (table, "--csv", (".csv",))):
        if path is None:
            continue
        if path.suffix.lower() not in endings:
            raise Fault(f"{option}: {path} does not end with {endings[0]}; name a file that does")
        if path.exists():
            raise Fault(f"{option}: {path} is there already; name another file, or remove it")
        writable(path.parent, option)
    if html and not all(map(find_spec, ("jinja2", "altair"))):
        raise Fault(
            "--html: needs the packages of the workflow, which are not installed:"
            f" {shlex.quote(sys.executable)} -m pip install 'servebench[workflow]'"
        )


def read_kept(folder: Path) -> Measurement | None:
    """Read a measurement; None where there is none. Raises Fault for files of no whole measurement."""
    path = folder / "summary.json"
    if not path.exists():
        return None
    try:
        meta = msgspec.convert(json.loads(path.read_bytes())["meta"], LoadMeta)
        requests = check_requests(pq.read_table(folder / "requests.parquet"))
        chunks = check_chunks(pq.read_table(folder / "chunks.parquet"), requests)
        return Measurement(requests, chunks, meta)
    except (ValueError, TypeError, LookupError, OSError, pa.ArrowException) as error:
        raise Fault(f"--out: {folder} holds files of no whole measurement ({error}); name another folder") from None


def is_of(meta: LoadMeta, endpoint: Endpoint, workload: Workload, users: int) -> bool:
    """Return whether a measurement is one of this load."""
    made = Workload().to_dict() | meta.workload  # keys that were added since have their defaults
    asked = (users, workload.to_dict(), endpoint.url, endpoint.model, endpoint.extra)
    target = (meta.target.url, meta.target.model, meta.target.extra) if meta.target else (None, None, None)
    return asked == (meta.users, made, *target)


def measured_now(
    endpoint: Endpoint, workload: Workload, users: int, *, processes: int | None, seed: int, number_seed: int
) -> Measurement:
    """Ask the server for its version, measure once, and draw the progress."""
    said = software.version(endpoint)
    with drawn(Console(stderr=True), expected(workload, users)) as progress:
        made = measure(
            endpoint, workload, users, processes=processes, seed=seed, number_seed=number_seed, progress=progress
        )
    target = made.meta.target and msgspec.structs.replace(made.meta.target, version=said)
    return dataclasses.replace(made, meta=msgspec.structs.replace(made.meta, target=target))


def _write_csv(path: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    """Write the figures, a line for each number of users; what was not measured is empty."""
    plain = [{name: value for name, value in row.items() if name != "invalid_reasons"} for row in rows]
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(plain[0]))
        writer.writeheader()
        writer.writerows(plain)


# Columns of a sweep's table: figure, heading, format.
_SWEPT = (
    ("users", "users", "{}"),
    ("output_tok_s", "output\ntok/s", "{:,.1f}"),
    ("user_tok_s", "user\ntok/s", "{:.1f}"),
    ("ttft_p50_s", "TTFT\np50 s", "{:.3f}"),
    ("ttft_p95_s", "TTFT\np95 s", "{:.3f}"),
    ("e2e_p50_s", "reply\np50 s", "{:.2f}"),
    ("target_requests", "requests", "{}"),
    ("failures", "failed", "{}"),
    ("verdict", "target", "{}"),
)


def _sweep_table(title: str, rows: Sequence[Mapping[str, Any]]) -> Table:
    table = Table(title=title, title_justify="left", box=box.SIMPLE, padding=(0, 1, 0, 0))
    for name, heading, _ in _SWEPT:
        table.add_column(heading, justify="left" if name == "verdict" else "right", no_wrap=True)
    for row in rows:
        shown = {**row, "verdict": spoken(f"load.state.{row['verdict']}")["en"]}
        table.add_row(*("–" if shown[name] is None else form.format(shown[name]) for name, _, form in _SWEPT))
    return table


@contextmanager
def drawn(console: Console, first: str) -> Iterator[Progress]:
    """Print `first`, then draw each report of a load's progress as a bar.

    Nothing is drawn between two reports, about a second apart: a thread that draws would take the core from the load.
    """
    tell = phases(console)
    tell(first)
    columns = (TextColumn("{task.fields[phase]}"), BarColumn(), TextColumn("{task.fields[counts]}"))
    with Bar(*columns, console=console, transient=True, auto_refresh=False) as bar:
        task = bar.add_task("load", total=None, phase="starting", counts="")

        def show(state: dict[str, Any]) -> None:
            counts = f"{state['elapsed_s']:.0f} s, {state['running']} running, {state['finished']} finished"
            if state["failures"]:
                counts += f", [red]{state['failures']} failed"
            tell(state["phase"], f": {counts}")
            bar.update(task, completed=state["elapsed_s"], total=state["total_s"], phase=state["phase"], counts=counts)
            bar.refresh()

        yield show


def expected(workload: Workload, count: int) -> str:
    """Announce the load and, where it is known, its duration."""
    whole = workload.way.ends_itself
    sent = f", {workload.min_targets} requests" if workload.min_targets else ""
    takes = f": at least {workload.warmup_s + workload.window_s:.0f} s{sent}, and until the last reply"
    takes = "" if whole else takes
    return f"loading with {counted(count, workload.mode)}{takes}"


def phases(console: Console) -> Callable[..., None]:
    """Make a function that prints the first message of each phase, for consoles that cannot draw a bar."""
    said: set[str] = set()

    def tell(phase: str, more: str = "") -> None:
        if not console.is_terminal and phase not in said:
            said.add(phase)
            console.print(f"{phase}{more}", highlight=False)

    return tell


def counted(count: int, mode: str = "closed") -> str:
    """Count users in words: "1 user", "4 users"; those of an open loop or a trace are connections."""
    one = "user" if MODES[mode].by_users else "connection"
    return f"{count} {one}{'' if count == 1 else 's'}"


def judged(summaries: Sequence[Mapping[str, Any]], experiment: str, line: line_.Line) -> tuple[list[Claim], Claim]:
    """Conclude whether each measurement of a load met the line, and what they come to.

    summaries: the content of each summary.json.
    """
    from servebench.tables import loaded  # not before the load: importing takes time
    from servebench.verdicts.levels import levels, once

    plan, tables = loaded.tables_of(summaries, experiment, line, name=None)
    found = {claim.users: claim for claim in levels(tables, plan)}
    return [found[summary["meta"]["users"]] for summary in summaries], once(plan, list(found.values()))


def _failed(found: dict[str, Any]) -> int:
    return int(found["failures"]) + int(found["other_failures"])


def _print_summary(
    console: Console,
    model: str,
    measured: Measurement,
    found: dict[str, Any],
    known: Calibration | None,
    processes: int | None,
) -> None:
    meta = measured.meta
    window = f"{found['window_s']:.1f} s" if found["window_s"] else "nothing"
    think = (meta.workload or {}).get("think")
    way = f"{meta.mode}, think {think}" if think else meta.mode
    title = f"{model} · {way} · {counted(meta.users, meta.mode)} · {window}"
    table = Table(title=title, min_width=56)
    table.add_column("figure")
    table.add_column("value", justify="right")
    _rows(table, found, tuple(row for row in _SHOWN if row[0] != "ttft_p95_all_s" or found["failures"]))
    for name in sorted(found):
        if name.startswith("failures_") and found[name]:
            table.add_row(f"  {name.removeprefix('failures_')}", f"[red]{found[name]}")
    table.add_section()
    table.add_row("[bold]this client", "")
    _rows(table, found, _CLIENT)
    for words, value in client_error(known, meta.users):
        table.add_row(words, value)
    console.print(table)
    if remedy := calibrating(known, meta.users, processes):
        console.print(f"this client's error is measured, once, by: {remedy}", highlight=False, soft_wrap=True)
    if turns := by_turn(measured.requests):
        console.print(_turns_table(turns))
    if meta.prompts and meta.prompts.skipped:
        words = "requests that had failed" if meta.mode == "trace" else "conversations without a question"
        console.print(f"[yellow]{meta.prompts.name}: {meta.prompts.skipped} {words} were skipped")
    evidence = [error for error in measured.requests.filter(_broken(measured))["error"].to_pylist() if error]
    if evidence:
        console.print("first failure:", style="red")
        console.print(printable(evidence[0]), markup=False, highlight=False)


def _turns_table(turns: Sequence[Mapping[str, Any]]) -> Table:
    """Show how the context of conversations grows, and how much of it the server's cache has."""
    shown = (("turn", "{}"), ("requests", "{}"), ("prompt_tokens_mean", "{:.0f}"), ("cached_share", "{:.0%}"))
    columns = (*shown, ("ttft_p50_s", "{:.3f}"))
    table = Table(title="by turn")
    for heading in ("turn", "requests", "prompt tokens (mean)", "of them cached", "TTFT p50 s"):
        table.add_column(heading, justify="right")
    for one in turns:
        table.add_row(*("–" if one[name] is None else form.format(one[name]) for name, form in columns))
    return table


def _broken(measured: Measurement) -> Any:
    return [status not in ("ok", "cancelled") for status in measured.requests["status"].to_pylist()]


def _rows(table: Table, found: dict[str, Any], shown: tuple[tuple[str, str, str], ...]) -> None:
    for name, words, form in shown:
        value = found.get(name)
        if value is not None:
            table.add_row(words, form.format(value))


def client_error(known: Calibration | None, users: int) -> list[tuple[str, str]]:
    """Return (words, value) of the client's own error on this machine.

    It is the error at the smallest calibrated number of users that is not below `users`.
    """
    levels = [level for level in known.levels if level.users >= users] if known else []
    if not levels:
        return [("its error", "unknown")]
    level = min(levels, key=lambda one: one.users)
    return [
        (f"TTFT error p50/p99 (ms) at {level.users} users", pair_ms(level, "ttft_error")),
        (f"arrival error p50/p99 (ms) at {level.users} users", pair_ms(level, "arrival_error")),
    ]


def calibrating(known: Calibration | None, users: int, processes: int | None) -> str | None:
    """Return the command that measures the client's own error with so many users; None where it is known."""
    if known and any(level.users >= users for level in known.levels):
        return None
    divided = f" --processes {processes}" if processes else ""
    return f"servebench calibrate --users {users}{divided} --out calibration"


def pair_ms(level: Level, name: str) -> str:
    """Format the median and the 99th percentile of an error in ms: "0.12/0.80"."""
    values = (getattr(level, f"{name}_{percentile}_s") for percentile in ("p50", "p99"))
    return "/".join("–" if value is None else f"{value * 1e3:.2f}" for value in values)


def mode(values: dict[str, Any]) -> str:
    """Return the mode whose option was given; a shared prefix goes with every mode, and is a mode only on its own."""
    asked = [name for name, way in MODES.items() if way.needs and values[way.needs] is not None]
    ways = [name for name in asked if name != "shared-prefix"]
    if len(ways) > 1:
        options = " and ".join(_option(MODES[name].needs) for name in ways)
        raise typer.BadParameter(f"{options} are different ways to load: give one")
    found = next(iter([*ways, *asked]), "closed")
    for key in MODES[found].ignores:
        if values[key] != _DEFAULTS[key]:
            uses = [_option(way.needs) for way in MODES.values() if key not in way.ignores and way.needs]
            needs = MODES[found].needs
            why = f"with {_option(needs)}" if needs and len(uses) != 1 else f"without {' or '.join(uses)}"
            raise typer.BadParameter(f"{_option(key)} has no effect {why}; leave it out")
    return found


# Options that are not named as their keys, and the values of keys whose option is not given.
_OPTIONS = {"shared_prefix_tokens": "shared-prefix", "trace_speed": "speed", "trace_first_s": "first"}
_DEFAULTS = {**vars(Workload()), "min_targets": line_.Line.min_targets}


def _option(key: str | None) -> str:
    return f"--{_OPTIONS.get(key or '', (key or '').replace('_', '-'))}"


def tokens(option: str, given: str | None) -> int | str | None:
    """Read `--input-tokens` or `--output-tokens`: a number, or the name of a distribution. Raises Fault for a list."""
    if given is None:
        return None
    if all(part.strip().isdecimal() for part in given.split(",")) and "," in given:
        grid = "give one of them, or run a grid of lengths with config/lengths.yaml"
        raise Fault(f"{option}: {given!r} are several numbers of tokens; {grid}")
    Lengths.parse(option, given)
    return int(given) if given.isdecimal() else given


def seconds(given: str | None) -> float | None:
    """Read `--first`: "90", "90s", "10m" or "1h"."""
    if given is None:
        return None
    number, unit = (given[:-1], given[-1]) if given[-1:] in _UNITS else (given, "s")
    try:
        return float(number) * _UNITS[unit]
    except ValueError:
        raise typer.BadParameter(f"--first: {given!r} is not a time; write 90s, 10m or 1h") from None


_UNITS = {"s": 1, "m": 60, "h": 3600}


def json_object(text: str) -> dict[str, Any]:
    """Read the JSON object of `--extra`."""
    found = jsonl.value("--extra", text.encode(errors="surrogatepass"), "give one JSON object")
    if not isinstance(found, dict):
        raise typer.BadParameter(f"--extra: {text!r} is not a JSON object")
    return found


def headers(lines: list[str] | None) -> dict[str, str]:
    """Split each `NAME: VALUE` of `--header`; names in lower case."""
    pairs = [line.partition(":") for line in lines or []]
    for name, colon, _ in pairs:
        if not colon:
            raise typer.BadParameter(f"--header: {name!r} is not NAME: VALUE")
    return {name.strip().lower(): value.strip() for name, _, value in pairs}
