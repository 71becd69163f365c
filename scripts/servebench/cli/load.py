"""Turn the options of `load` and `calibrate` into an endpoint and a workload."""

from __future__ import annotations

from pathlib import Path
from secrets import randbits
from typing import Annotated, Any

import typer

from servebench.load import jsonl
from servebench.load.endpoint import Endpoint
from servebench.load.line import Line
from servebench.load.modes import MODES
from servebench.load.workload import LEAST, MOST, Workload

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
Option = typer.Option
# The values of options that are not given.
_LOAD, _LINE = Workload(), Line()


@app.command("load")
def load(
    url: Annotated[
        str, Option(help="Address of the server, e.g. http://127.0.0.1:8000, its API or its chat completions.")
    ],
    model: Annotated[str, Option(help="The model, as the server calls it.")],
    out: Annotated[Path, Option(help="Folder for requests.parquet, chunks.parquet and summary.json.")],
    users: Annotated[
        int, Option(min=1, help="Simulated people (open loop, trace: connections opened beforehand).")
    ] = 1,
    warmup: Annotated[float, Option(help="Seconds, and until every user's first request has ended.")] = _LOAD.warmup_s,
    window: Annotated[float, Option(help="Seconds of the measurement.")] = _LOAD.window_s,
    min_targets: Annotated[
        int | None, Option(help="Lengthen the window until this many requests were sent in it.")
    ] = None,
    requests: Annotated[int | None, Option(help="Instead of a window: this many requests, timed as a whole.")] = None,
    rate: Annotated[float | None, Option(help="Open loop: requests per second, whatever the server does.")] = None,
    arrivals: Annotated[str, Option(help="Open loop: poisson or constant.")] = _LOAD.arrivals,
    think: Annotated[
        str | None,
        Option(help="Pause before the next request: SECONDS, exp:MEAN, uniform:LOW,HIGH or lognormal:MEAN,SIGMA."),
    ] = None,
    turns: Annotated[int | None, Option(help="Hold conversations of this many turns with growing history.")] = None,
    trace: Annotated[Path | None, Option(help="JSONL of arrival_s, prompt or messages, max_tokens.")] = None,
    shared_prefix: Annotated[
        int | None, Option(help="About this many tokens of system prompt, the same for all.")
    ] = None,
    prompts: Annotated[
        str, Option(help="A built-in set, a folder with set.yaml, or a JSONL or ShareGPT file.")
    ] = _LOAD.prompts,
    system: Annotated[str | None, Option(help="System message instead of the set's.")] = None,
    instruction: Annotated[str | None, Option(help="Instruction instead of the set's.")] = None,
    max_tokens: Annotated[int, Option(min=1, help="Most output tokens of a reply.")] = _LOAD.max_tokens,
    temperature: float = _LOAD.temperature,
    top_p: float = _LOAD.top_p,
    seed: Annotated[
        int | None,
        Option(help="Seed of prompts, number lines, pauses, arrivals; default: new each time, so that no cache helps."),
    ] = None,
    timeout: Annotated[float, Option(help="Seconds from sending to the end of a reply.")] = _LOAD.timeout_s,
    idle_timeout: Annotated[float | None, Option(help="Seconds of silence in a reply; pings are silence.")] = None,
    connect_timeout: float = _LOAD.connect_timeout_s,
    spread: Annotated[
        float | None, Option(help="Seconds over which users start; default: one answer's length.")
    ] = None,
    processes: Annotated[int | None, Option(min=1, help="Worker processes; default: 1, from 32 users on 4.")] = None,
    extra: Annotated[str, Option(help="JSON object merged over the request's body; null removes a key.")] = "{}",
    header: Annotated[list[str] | None, Option(help="NAME: VALUE, sent with each request; may be repeated.")] = None,
    api_key_env: Annotated[str | None, Option(help="Environment variable that holds the bearer token.")] = None,
    tokenizer: Annotated[Path | None, Option(help="tokenizer.json, for servers that send no usage.")] = None,
    keep_text: Annotated[bool, Option(help="Keep the replies in requests.parquet.")] = False,
    line_ttft: Annotated[float, Option(help="The line: TTFT p95 at most, seconds.")] = _LINE.ttft_p95_s,
    line_speed: Annotated[float, Option(help="The line: tokens per second for one user at least.")] = _LINE.user_tok_s,
) -> None:
    """Load any OpenAI-compatible chat server and report what its users would get. Exit code 1 when a request failed."""
    from servebench.cli.load_report import run_load

    values: dict[str, Any] = {
        "prompts": prompts,
        "max_tokens": max_tokens,
        "temperature": temperature,
        "top_p": top_p,
        "warmup_s": warmup,
        "window_s": window,
        "timeout_s": timeout,
        "idle_timeout_s": idle_timeout,
        "connect_timeout_s": connect_timeout,
        "min_targets": min_targets,
        "requests": requests,
        "rate": rate,
        "arrivals": arrivals,
        "think": think,
        "turns": turns,
        "trace": None if trace is None else str(trace),
        "shared_prefix_tokens": shared_prefix,
        "system": system,
        "instruction": instruction,
        "tokenizer": None if tokenizer is None else str(tokenizer),
        "spread_s": spread,
        "keep_text": keep_text,
    }
    values["mode"] = _mode(values)
    endpoint = Endpoint(url=url, model=model, extra=_object(extra), api_key_env=api_key_env, headers=_headers(header))
    line = Line(ttft_p95_s=line_ttft, user_tok_s=line_speed)
    seed = randbits(32) if seed is None else seed
    raise typer.Exit(run_load(endpoint, Workload(**values), users, out, processes=processes, seed=seed, line=line))


def _mode(values: dict[str, Any]) -> str:
    """Return the mode whose option was given; a shared prefix goes with every mode, and is a mode only on its own."""
    asked = [name for name, way in MODES.items() if way.needs and values[way.needs] is not None]
    ways = [name for name in asked if name != "shared-prefix"]
    if len(ways) > 1:
        options = " and ".join(f"--{MODES[name].needs}" for name in ways)
        raise typer.BadParameter(f"{options} are different ways to load: give one")
    return next(iter([*ways, *asked]), "closed")


def _object(text: str) -> dict[str, Any]:
    found = jsonl.value("--extra", text.encode(errors="surrogatepass"), "give one JSON object")
    if not isinstance(found, dict):
        raise typer.BadParameter(f"--extra: {text!r} is not a JSON object")
    return found


def _headers(lines: list[str] | None) -> dict[str, str]:
    pairs = [line.partition(":") for line in lines or []]
    for name, colon, _ in pairs:
        if not colon:
            raise typer.BadParameter(f"--header: {name!r} is not NAME: VALUE")
    return {name.strip().lower(): value.strip() for name, _, value in pairs}


@app.command("calibrate")
def calibrate(
    out: Annotated[Path, Option(help="Folder for calibration.json.")],
    users: Annotated[str, Option(help="Numbers of users, separated by commas.")] = "1,16,64,128,256",
    window: Annotated[float, Option(help="Seconds of each measurement.")] = 5.0,
    processes: Annotated[int | None, Option(min=1, help="Worker processes; default: 1, from 32 users on 4.")] = None,
    cpus: Annotated[
        int | None, Option(min=1, help="CPUs for the load, as a setting's cpus: {load: N}; default: all.")
    ] = None,
) -> None:
    """Measure this client's timing error on this machine with a clock server. Exit code 1 beyond the bounds."""
    from servebench.cli.load_report import run_calibrate
    from servebench.machine.cpus import allot

    try:
        counts = [int(count) for count in users.split(",")]
    except ValueError:
        counts = []
    if not counts or min(counts) < 1:
        raise typer.BadParameter(f"--users: {users!r} is not positive integers separated by commas")
    if not LEAST <= window <= MOST:
        raise typer.BadParameter(f"--window: {window} is not from {LEAST:g} to {MOST:g} seconds")
    alone = allot({"load": cpus})["load"] if cpus else []
    raise typer.Exit(run_calibrate(counts, out, window_s=window, processes=processes, cpus=alone))
