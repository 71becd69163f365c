"""Define the options and help of every verb a user types; the module named like the verb does the work.

That module is imported only when its verb is called, so `load` and `calibrate` run where only the base dependencies are
installed.
"""

from __future__ import annotations

import logging
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any

import typer
from typer import Argument, Option

import servebench
from servebench.capacity.search import Search
from servebench.cli.messages import say, start
from servebench.faults import Fault
from servebench.load.endpoint import Endpoint
from servebench.load.line import Line
from servebench.load.workload import LEAST, MOST, Workload
from servebench.plan.layout import RESULTS

app = typer.Typer()
_PROCESSES = "Worker processes; default: one for every 64 users, for half of the CPUs at most."

# The values of options that are not given.
_LOAD, _LINE = Workload(), Line()

ConfigFiles = Annotated[list[Path] | None, Option("--configfile", help="As for snakemake; default: the quick start.")]
Overrides = Annotated[
    list[str] | None, Option("--config", metavar="KEY=VALUE", help="As for snakemake, over the files.")
]


def _by_configuration(given: str | None) -> None:
    if given is not None:
        raise typer.BadParameter(
            "is not how this verb finds an experiment; give its configuration, --configfile FILE (none: the quick"
            " start), whose `experiment` is the folder's name under results/"
        )


# For those who look for an experiment by its results, as `conclude` does: it says which option to give instead.
ByConfiguration = Annotated[str | None, Option("--results", hidden=True, callback=_by_configuration)]


@app.command()
def version() -> None:
    """Print the version."""
    print(servebench.__version__)


@app.command()
def pull(configfile: ConfigFiles = None, config: Overrides = None) -> None:
    """Pull the container images of an experiment for apptainer, by digest; needs internet access."""
    from servebench.engines import images, runtime
    from servebench.machine import cache

    start(None)
    plan = read_plan(configfile, config)
    for engine in plan.engines.values():
        if engine.runtime == "container":
            progress = logging.getLogger("servebench").info
            print(images.pull(runtime.image(engine), cache.ready(plan.runtime.cache), progress))


@app.command("plan")
def show_plan(
    configfile: ConfigFiles = None,
    config: Overrides = None,
    language: Annotated[str, Option(help="en or ja, for the texts of the configuration.")] = "en",
    results: ByConfiguration = None,
) -> None:
    """Show what an experiment measures, takes, needs and lacks. Starts nothing. Exit code 1 when something lacks."""
    from servebench.cli import plan as plan_command

    raise typer.Exit(plan_command.command(read_plan(configfile, config), language, configfile or ()))


@app.command()
def init(
    out: Annotated[Path, Option(help="The file to write; its name is the experiment's. Never overwritten.")] = Path(
        "config/mine.yaml"
    ),
    url: Annotated[
        str | None, Option(help="Measure a server that is already running; --model is then the model's name there.")
    ] = None,
    model: Annotated[
        str | None, Option(help="qwen3-14b, smollm2, a GGUF file, a folder, hf://… or ollama://…; asked unless given.")
    ] = None,
    engines: Annotated[
        str | None, Option(help="Of llama-server, ollama, vllm; asked unless given. For SGLang see docs/engines.md.")
    ] = None,
    context: Annotated[
        int | None, Option(min=1, help="Tokens of one request, prompt and reply; asked unless given.")
    ] = None,
    users: Annotated[int | None, Option(min=1, max=4096, help="Users at once, at most; asked unless given.")] = None,
) -> None:
    """Write a configuration for this machine's GPU, or CPU, with slots and memory shares that fit. Starts nothing."""
    from servebench.cli import init

    given = init.Answers(url=url, model=model, engines=engines, context=context, users=users)
    raise typer.Exit(init.command(out, given))


@app.command("kv-cache")
def show_kv_cache(
    model: Annotated[str, Option(help="A GGUF file, a config.json, or hf://owner/repository@revision.")],
    tokens: Annotated[int | None, Option(help="Tokens of each stream.")] = None,
    streams: Annotated[int, Option(help="Number of streams; with --gib they share the tokens.")] = 1,
    gib: Annotated[str | None, Option(help="Calculate how many tokens fit into this many GiB.")] = None,
    key_type: Annotated[str, Option(help="Type of the keys: f16, q8_0, ...")] = "f16",
    value_type: Annotated[str, Option(help="Type of the values.")] = "f16",
) -> None:
    """Calculate the memory of the KV cache: bytes = 2 x layers x KV heads x head size x tokens x bytes per element."""
    from servebench.cli import kv_cache

    found = kv_cache.report(model, tokens=tokens, streams=streams, gib=gib, key_type=key_type, value_type=value_type)
    for name, value in found.items():
        if value not in (None, []):
            say(f"{name}: {', '.join(value) if isinstance(value, list) else value}")


@app.command()
def status(configfile: ConfigFiles = None, config: Overrides = None, results: ByConfiguration = None) -> None:
    """Report what is measured, failed or discarded, and how to redo it. Exit code 1 when a measurement failed."""
    from servebench.cli import status

    lines, failed = status.report(read_plan(configfile, config), RESULTS, configfile or ())
    say("\n".join(lines))
    raise typer.Exit(1 if failed else 0)


@app.command()
def verify(configfile: ConfigFiles = None, config: Overrides = None, results: ByConfiguration = None) -> None:
    """Read all that is kept, to the last bit: store, links, replies, models. Exit code 1 when something is wrong."""
    from servebench.cli import verify

    lines, wrong = verify.report(read_plan(configfile, config), RESULTS, configfile or ())
    say("\n".join(lines))
    raise typer.Exit(1 if wrong else 0)


@app.command()
def watch(
    configfile: ConfigFiles = None,
    config: Overrides = None,
    once: Annotated[bool, Option("--once", help="Print the present state and exit.")] = False,
    results: ByConfiguration = None,
) -> None:
    """Watch an experiment while it runs: running jobs, finished measurements, time left."""
    from servebench.cli import watch

    plan = read_plan(configfile, config)
    with suppress(KeyboardInterrupt):
        watch.command(plan, RESULTS / plan.experiment, once=once)


@app.command()
def compare(
    first: Annotated[str, Argument(metavar="A", help="An experiment's name, or its folder of results.")],
    second: Annotated[str, Argument(metavar="B")],
    out: Annotated[Path | None, Option("--html", "--out", help="Also write a page to this file.")] = None,
    across: Annotated[
        list[str] | None, typer.Option(help="Give ratios even where this differs: model, prompts or workload.")
    ] = None,
) -> None:
    """Compare two experiments side by side: another machine, another version, another day."""
    from servebench.cli import compare

    compare.command(first, second, out, across or ())


@app.command()
def discard(
    run: Annotated[str, Argument()],
    setting: Annotated[str, Argument()],
    why: Annotated[str, Option(help="The reason, kept with the record.")],
    round_: Annotated[int | None, Option("--round", help="Only this round.")] = None,
    users: Annotated[int | None, Option(help="Only this number of users.")] = None,
    configfile: ConfigFiles = None,
    config: Overrides = None,
    results: ByConfiguration = None,
) -> None:
    """Discard measurements, keeping them on record; the next snakemake run measures them again."""
    from servebench.cli import status

    plan = read_plan(configfile, config)
    found = status.discard(plan, RESULTS, run, setting, round_, users, why, configfile or ())
    for line in found:
        say(line)


@app.command()
def practice(
    port: Annotated[int, Option(min=1024, max=65535, help="Port on 127.0.0.1.")] = 8000,
    slots: Annotated[int, Option(min=1, help="Requests that it works on at once.")] = 8,
    context: Annotated[int, Option(min=16, help="Tokens that a request may use, prompt and reply.")] = 16384,
    speed: Annotated[
        float, Option(min=1, help="Tokens per second of one stream; eight together have four times that.")
    ] = 50,
    prefill: Annotated[float, Option(min=1, help="Prompt tokens read per second.")] = 5000,
) -> None:
    """Serve a simulated model to practise on: every example of the documentation works with it. Needs no engine."""
    from servebench.cli import practice

    with suppress(KeyboardInterrupt):
        raise typer.Exit(practice.command(port, slots, context, {"1": speed, "8": 4 * speed}, prefill))


@app.command()
def retry(
    run: Annotated[str | None, Argument(help="Only a setting of this run; `evaluations` for a target.")] = None,
    setting: Annotated[str | None, Argument(help="That setting or target.")] = None,
    configfile: ConfigFiles = None,
    config: Overrides = None,
    workflow_profile: Annotated[str | None, Option(metavar="FOLDER", help="As for snakemake, on a cluster.")] = None,
    dry_run: Annotated[bool, Option("--dry-run", "-n", help="Only show what would be measured.")] = False,
    results: ByConfiguration = None,
) -> None:
    """Measure again what failed, and what is missing; the failures stay on record. Runs snakemake."""
    from servebench.cli import retry

    if (run is None) != (setting is None):
        raise typer.BadParameter("give both RUN and SETTING, or neither for everything that failed")
    plan = read_plan(configfile, config)
    raise typer.Exit(retry.command(plan, RESULTS, run, setting, configfile or (), workflow_profile, dry=dry_run))


@app.command()
def columns(
    table: Annotated[str | None, Argument(help="Only this table, such as measurements.")] = None,
) -> None:
    """Explain what a row of each table is, and what each column means (docs/tables.md)."""
    from servebench.tables import columns as tables

    print("\n".join(tables.text(table)))


@app.command("load")
def load(
    url: Annotated[
        str, Option(help="Address of the server (http://host:8000), of its API, or of its chat completions.")
    ],
    model: Annotated[str, Option(help="The model, as the server calls it.")],
    out: Annotated[Path, Option(help="Folder for requests.parquet, chunks.parquet and summary.json.")],
    users: Annotated[
        str,
        Option(help="Simulated people (open loop, trace: connections opened beforehand). 1,4,16: one after the other."),
    ] = "1",
    warmup: Annotated[float, Option(help="Seconds, and until every user's first request has ended.")] = _LOAD.warmup_s,
    window: Annotated[float, Option(help="Seconds of the measurement.")] = _LOAD.window_s,
    min_targets: Annotated[
        int, Option(min=1, help="Lengthen the window until this many requests were sent in it.")
    ] = _LINE.min_targets,
    requests: Annotated[int | None, Option(help="Instead of a window: this many requests, timed as a whole.")] = None,
    rate: Annotated[float | None, Option(help="Open loop: requests per second, whatever the server does.")] = None,
    user_rate: Annotated[
        float | None, Option(help="Open loop: requests per second of each user, whatever the server does.")
    ] = None,
    arrivals: Annotated[str, Option(help="Open loop: poisson or constant.")] = _LOAD.arrivals,
    think: Annotated[
        str | None,
        Option(help="Pause before the next request: SECONDS, exp:MEAN, uniform:LOW,HIGH or lognormal:MEAN,SIGMA."),
    ] = None,
    turns: Annotated[int | None, Option(help="Hold conversations of this many turns with growing history.")] = None,
    trace: Annotated[
        Path | None, Option(help="Replay arrivals: our JSONL, Mooncake's JSONL, or the CSV of Azure or BurstGPT.")
    ] = None,
    speed: Annotated[float, Option(help="Let the trace run so many times as fast.")] = _LOAD.trace_speed,
    first: Annotated[str | None, Option(help="Only the first part of the trace: 90s, 10m or 1h.")] = None,
    shared_prefix: Annotated[
        int | None, Option(help="About this many tokens of system prompt, the same for all.")
    ] = None,
    prompts: Annotated[
        str, Option(help="A built-in set, a folder with set.yaml, or a JSONL or ShareGPT file.")
    ] = _LOAD.prompts,
    input_tokens: Annotated[
        str | None,
        Option(help="Cut real text to prompts of this many tokens, chat template included: 1024, or uniform:LOW,HIGH."),
    ] = None,
    output_tokens: Annotated[
        str | None, Option(help="Replies of exactly this many tokens, where the server takes ignore_eos; or as above.")
    ] = None,
    system: Annotated[str | None, Option(help="System message instead of the set's.")] = None,
    instruction: Annotated[str | None, Option(help="Instruction instead of the set's.")] = None,
    number_lines: Annotated[
        bool, Option(help="Put a line with a number of its own into each request, so that no cache helps.")
    ] = _LOAD.number_lines,
    max_tokens: Annotated[
        int, Option(min=1, help="Most output tokens of a reply; of a trace, where a line has none.")
    ] = _LOAD.max_tokens,
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
    processes: Annotated[int | None, Option(min=1, help=_PROCESSES)] = None,
    extra: Annotated[str, Option(help="JSON object merged over the request's body; null removes a key.")] = "{}",
    header: Annotated[list[str] | None, Option(help="NAME: VALUE, sent with each request; may be repeated.")] = None,
    api_key_env: Annotated[str | None, Option(help="Environment variable that holds the bearer token.")] = None,
    tokenizer: Annotated[Path | None, Option(help="tokenizer.json, for servers that send no usage.")] = None,
    keep_text: Annotated[bool, Option(help="Keep the replies in requests.parquet.")] = False,
    line_ttft: Annotated[float, Option(help="Target: TTFT p95 at most, seconds.")] = _LINE.ttft_p95_s,
    line_speed: Annotated[float, Option(help="Target: tokens per second for one user at least.")] = _LINE.user_tok_s,
    find_capacity: Annotated[
        bool,
        Option("--find-capacity", help="Search for the most users (with --rate: the highest rate) within the target."),
    ] = False,
    most_users: Annotated[int, Option(min=1, help="With --find-capacity: the most users tried.")] = Search.most,
    html: Annotated[Path | None, Option(help="Also write a page: the answer, curves, all values.")] = None,
    table: Annotated[
        Path | None, Option("--csv", help="Also write the figures, a line for each number of users.")
    ] = None,
) -> None:
    """Load any OpenAI-compatible chat server and report what its users would get. Exit code 1 when a request failed."""
    from servebench.cli import load

    values: dict[str, Any] = {
        "prompts": prompts,
        "prompt_tokens": load.tokens("--input-tokens", input_tokens),
        "reply_tokens": load.tokens("--output-tokens", output_tokens),
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
        "user_rate": user_rate,
        "arrivals": arrivals,
        "think": think,
        "turns": turns,
        "trace": None if trace is None else str(trace),
        "trace_speed": speed,
        "trace_first_s": load.seconds(first),
        "shared_prefix_tokens": shared_prefix,
        "system": system,
        "instruction": instruction,
        "number_lines": number_lines,
        "tokenizer": None if tokenizer is None else str(tokenizer),
        "spread_s": spread,
        "keep_text": keep_text,
    }
    values["mode"] = load.mode(values)
    body, headers = load.json_object(extra), load.headers(header)
    endpoint = Endpoint(url=url, model=model, extra=body, api_key_env=api_key_env, headers=headers)
    line = Line(ttft_p95_s=line_ttft, user_tok_s=line_speed)
    asked = Workload(**values)
    if find_capacity:
        if users != "1":
            raise typer.BadParameter("--users: is what --find-capacity searches for; leave out one of the two")
        if html or table:
            raise typer.BadParameter("--html and --csv: have no effect with --find-capacity; leave them out")
        from servebench.cli import find

        status = find.command(endpoint, asked, out, most_users=most_users, processes=processes, seed=seed, line=line)
        raise typer.Exit(status)
    counts = _counts(users)
    status = load.command(
        endpoint, asked, counts, out, processes=processes, seed=seed, line=line, html=html, table=table
    )
    raise typer.Exit(status)


def _counts(users: str) -> list[int]:
    """Read `--users`: positive integers separated by commas, each once, ascending."""
    try:
        counts = sorted({int(count) for count in users.split(",")})
    except ValueError:
        counts = [0]
    if counts[0] < 1:
        raise typer.BadParameter(f"--users: {users!r} is not positive integers separated by commas")
    return counts


@app.command("calibrate")
def calibrate(
    out: Annotated[Path, Option(help="Folder for calibration.json.")],
    users: Annotated[str, Option(help="Numbers of users, separated by commas.")] = "1,16,64,128,256",
    window: Annotated[float, Option(help="Seconds of each measurement.")] = 5.0,
    processes: Annotated[int | None, Option(min=1, help=_PROCESSES)] = None,
    cpus: Annotated[
        int | None, Option(min=1, help="CPUs for the load, as a setting's cpus: {load: N}; default: all.")
    ] = None,
) -> None:
    """Measure this client's timing error on this machine with a clock server. Exit code 1 beyond the bounds."""
    from servebench.cli import calibrate
    from servebench.machine.cpus import allot

    counts = _counts(users)
    if not LEAST <= window <= MOST:
        raise typer.BadParameter(f"--window: {window} is not from {LEAST:g} to {MOST:g} seconds")
    alone = allot({"load": cpus})["load"] if cpus else []
    raise typer.Exit(calibrate.command(counts, out, window_s=window, processes=processes, cpus=alone))


@app.command()
def score(
    task: Annotated[str, Option(help="jcommonsenseqa, mgsm or proofreading.")],
    replies: Annotated[Path, Option(help="question_id and reply per line (JSON Lines).")],
    out: Annotated[Path, Option(help="question_id, extracted, rule, correct per line (JSON Lines).")],
    data: Annotated[Path | None, Option(help="The questions; by default the task's full set.")] = None,
    mirror: Annotated[str | None, Option(help="Directory or address to fetch published data from.")] = None,
) -> None:
    """Score replies you already have, and print the totals."""
    from servebench.cli import score

    score.command(task, replies, out, data, mirror)


@app.command()
def conclude(
    results: Annotated[Path, Option(help="results/<experiment>")],
    language: Annotated[str, Option(help="en or ja.")] = "en",
) -> None:
    """Conclude from plan.json and tables/*.parquet alone: print the claims and write tables/verdicts.parquet."""
    from servebench.cli import conclude

    conclude.command(results, language)


def read_plan(configfile: list[Path] | None, config: list[str] | None) -> Any:
    from servebench import configuration
    from servebench.outlook import inventory

    if config and not configfile:
        raise Fault("--config: changes keys of a file; name that file too: --configfile FILE")
    overrides = configuration.overrides(config) if config else {}
    plan = configuration.read(configfile or [servebench.ROOT / "config" / "config.yaml"], overrides)
    return inventory.with_searched(plan, RESULTS / plan.experiment)
