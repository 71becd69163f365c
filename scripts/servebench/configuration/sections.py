"""Define what a configuration may hold: a struct for each section, with every key's type, bounds, default and meaning.

`schema` makes `config/schema.yaml` and the tables of keys in `config/README.md` from these structs. The structs check
each key by itself; `faults` checks keys against each other. A meaning that begins with "(free)" belongs to a key that
does not change what is measured.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Any

import msgspec
from msgspec import UNSET, Meta, UnsetType

from servebench import plan
from servebench.capacity.search import Search
from servebench.engines import ADAPTERS
from servebench.load.line import Line as Objective
from servebench.load.modes import MODES
from servebench.load.objective import Objective as Limits
from servebench.load.workload import ARRIVALS, MOST
from servebench.load.workload import Workload as Load
from servebench.tasks import MEASURES, TASKS
from servebench.tasks.task import FULL

# How an engine is started, and the key that says what is started.
RUNTIMES = {"venv": "environment", "binary": "binary", "container": "image"}


def _pattern(pattern: str, remedy: str, max_length: int | None = None) -> Meta:
    """Return a pattern with the remedy for a value that does not match.

    As in JSON Schema, a pattern without anchors matches anywhere in the value. Python's `$` also matches before a final
    line break, hence (?!\\n).
    """
    pattern = pattern.replace("$", r"(?!\n)$")
    return Meta(pattern=pattern, max_length=max_length, extra_json_schema={"errorMessage": remedy})


def _choice(choices: Iterable[str]) -> Meta:
    return Meta(extra_json_schema={"enum": list(choices)})


def _says(description: str) -> Meta:
    return Meta(description=description)


Positive = Annotated[float, Meta(gt=0, le=MOST)]
NotNegative = Annotated[float, Meta(ge=0, le=MOST)]
Count = Annotated[int, Meta(ge=1, le=2**31 - 1)]
Users = Annotated[int, Meta(ge=1, le=4096)]
Seed = Annotated[int, Meta(ge=0)]
Words = Annotated[str, Meta(min_length=1)]
Port = Annotated[int, Meta(ge=1024, le=65535)]
Name = Annotated[
    str, _pattern("^[a-z0-9][a-z0-9._-]*$", "use small letters, digits and . _ -, a letter or digit first", 60)
]
TargetName = Annotated[
    str, _pattern("^[A-Za-z0-9][A-Za-z0-9._-]*$", "use letters, digits and . _ -, a letter or digit first", 60)
]
FactName = Annotated[str, _pattern("^[a-z][a-z0-9_]*$", "use small letters, digits and _, a letter first")]
Url = Annotated[str, _pattern("^https?://", "write http:// or https:// and the server's address")]
Variable = Annotated[str, _pattern("^[A-Z_][A-Z0-9_]*$", "give the name of an environment variable, in capitals")]
EnvironmentName = Annotated[
    str, _pattern("^[A-Za-z_][A-Za-z0-9_]*$", "give the name of an environment variable: letters, digits and _", 200)
]
Source = Annotated[
    str,
    _pattern(
        "^(pypi|hf|https|ollama|file)://[^\\x00-\\x1f]+$",
        "write file:///path/to/model.gguf, or an address that begins with pypi, hf, https or ollama and ://",
    ),
]
Sha256 = Annotated[str, _pattern("^[0-9a-f]{64}$", "give 64 hex digits, as sha256sum FILE prints")]
Task = Annotated[str, _choice(TASKS)]
MeasureName = Annotated[str, _choice(measure.name for measure in MEASURES if measure.headline)]


class Section(msgspec.Struct, forbid_unknown_fields=True):
    """Base of all sections: an unknown key is an error."""


class Languages(Section):
    en: Words
    ja: Words | UnsetType = UNSET


Text = Words | Languages


class Line(Section):
    ttft_p95_s: Annotated[
        Positive, _says("(free) Seconds within which 95 % of the requests must get their first token.")
    ] = Objective().ttft_p95_s
    user_tok_s: Annotated[Positive, _says("(free) Tokens per second that one user must get at least.")] = (
        Objective().user_tok_s
    )
    min_targets: Annotated[
        Count, _says("(free) With fewer requests in the window, the line is not judged; its p95 needs 20 in any case.")
    ] = Objective().min_targets


class NamedObjective(Section):
    ttft_p50_s: Annotated[Positive | UnsetType, _says("(free) Most seconds for the first token, median.")] = UNSET
    ttft_p95_s: Annotated[Positive | UnsetType, _says("(free) Most seconds for the first token, 95 %.")] = UNSET
    ttft_p99_s: Annotated[Positive | UnsetType, _says("(free) Most seconds for the first token, 99 %.")] = UNSET
    tpot_p50_s: Annotated[
        Positive | UnsetType, _says("(free) Most seconds for each output token after the first, median.")
    ] = UNSET
    tpot_p95_s: Annotated[
        Positive | UnsetType, _says("(free) Most seconds for each output token after the first, 95 %.")
    ] = UNSET
    tpot_p99_s: Annotated[
        Positive | UnsetType, _says("(free) Most seconds for each output token after the first, 99 %.")
    ] = UNSET
    e2e_p50_s: Annotated[Positive | UnsetType, _says("(free) Most seconds for the whole reply, median.")] = UNSET
    e2e_p95_s: Annotated[Positive | UnsetType, _says("(free) Most seconds for the whole reply, 95 %.")] = UNSET
    e2e_p99_s: Annotated[Positive | UnsetType, _says("(free) Most seconds for the whole reply, 99 %.")] = UNSET
    inter_chunk_p50_s: Annotated[
        Positive | UnsetType, _says("(free) Most seconds for the gap between two chunks, median.")
    ] = UNSET
    inter_chunk_p95_s: Annotated[
        Positive | UnsetType, _says("(free) Most seconds for the gap between two chunks, 95 %.")
    ] = UNSET
    inter_chunk_p99_s: Annotated[
        Positive | UnsetType, _says("(free) Most seconds for the gap between two chunks, 99 %.")
    ] = UNSET
    user_tok_s: Annotated[Positive | UnsetType, _says("(free) Fewest tokens per second for one user (median).")] = UNSET
    output_tok_s: Annotated[Positive | UnsetType, _says("(free) Fewest tokens per second for all users together.")] = (
        UNSET
    )
    requests_s: Annotated[Positive | UnsetType, _says("(free) Fewest requests per second.")] = UNSET
    goodput_share: Annotated[
        Annotated[float, Meta(gt=0, le=1)] | UnsetType,
        _says("(free) Smallest share of the requests that each meet the line, for example 0.99."),
    ] = UNSET
    failures_share: Annotated[float, Meta(ge=0, lt=1), _says("(free) Largest share of the requests that may fail.")] = (
        Limits.failures_share
    )
    min_targets: Annotated[
        Count,
        _says("(free) With fewer requests in the window it is not judged; a p95 needs 20 in any case, a p99 100."),
    ] = Limits.min_targets


class Rounds(Section):
    min: Annotated[int, Meta(ge=1, le=9), _says("How often everything is measured.")] = 2
    max: Annotated[
        int,
        Meta(ge=1, le=9),
        _says("How often the search for a capacity measures a number of users that is not sure to be on one side."),
    ] = 8


class Capacity(Section):
    resolution: Annotated[
        float,
        Meta(ge=0.01, le=1),
        _says("(free) How close the ends of the answer lie, as a share, where the rounds can tell: 0.12 is 12 %."),
    ] = Search.resolution
    most_users: Annotated[
        Users,
        _says(
            "(free) The largest number of users that is tried; of a `rate`, the most sixteenths of it (16 or more are "
            "always tried)."
        ),
    ] = Search.most


class Cost(Section):
    price_per_hour: Annotated[Positive, _says("(free) Price of the machine.")]
    currency: Annotated[str | UnsetType, _choice(["USD"]), _says("(free) The currency of that price.")] = UNSET
    idle_after_min: Annotated[
        Positive | UnsetType,
        _says("(free) Minutes without a request after which the machine is released (a service that scales to zero)."),
    ] = UNSET
    used_share: Annotated[
        float,
        Meta(gt=0, le=1),
        _says(
            "(free) Share of the time in which a person really uses it: with 0.1, ten people share the cost of one who "
            "always does. A month of the machine costs each of them its price times this."
        ),
    ] = 1.0


class People(Section):
    pause: Annotated[
        Words | NotNegative,
        _says(
            "Pause between a reply and the same person's next request: seconds, or a distribution such as "
            "`lognormal:20,0.8` (mean, sigma of the logarithm). It is `workload.think`, unless that is given, so that "
            "`users` are people."
        ),
    ]


class Cpus(Section):
    server: Annotated[Count | UnsetType, _says("CPUs of the server; all CPUs unless given.")] = UNSET
    load: Annotated[Count | UnsetType, _says("CPUs of the load generator; all CPUs unless given.")] = UNSET


class Engine(Section):
    kind: Annotated[str, _says("Which engine: " + ", ".join(f"`{kind}`" for kind in ADAPTERS) + ".")]
    runtime: Annotated[str | UnsetType, _choice(RUNTIMES), _says("How the engine is started.")] = UNSET
    environment: Annotated[
        Name | UnsetType,
        _says("For `venv`: `envs/NAME.lock`, pinned by hashes. With another lock, everything is measured again."),
    ] = UNSET
    image: Annotated[
        Name | UnsetType, _says("For `container`: a name in `envs/images.yaml`, which holds the digest.")
    ] = UNSET
    binary: Annotated[Words | UnsetType, _says("For `binary`: path or name of the executable.")] = UNSET
    url: Annotated[
        Url | UnsetType,
        _says(
            "For `url`: address of a server that is already running: its root, its API's base (`…/v1`, `…/api/v3`) or "
            "the whole address of chat completions, with a query if it needs one (`?api-version=…`), without a key "
            "([docs/load.md](../docs/load.md#addresses-keys-and-certificates))."
        ),
    ] = UNSET
    api_key_env: Annotated[
        Variable | UnsetType,
        _says(
            "For `url`: the environment variable that holds the API key. A run, but not a dry run, needs it. The key "
            "is stored in no file."
        ),
    ] = UNSET
    options: Annotated[
        dict[str, Any] | UnsetType, _says("Options of this kind of engine alone, for example the simulator's speeds.")
    ] = UNSET
    args: Annotated[
        list[str] | UnsetType, _says("Arguments of all settings of this engine, placed before a setting's own.")
    ] = UNSET
    env: Annotated[
        dict[EnvironmentName, str] | UnsetType,
        _says("Environment variables of all settings of this engine; a setting's own override them."),
    ] = UNSET
    request: Annotated[
        dict[str, Any] | UnsetType, _says("`request` of all settings of this engine; a setting's own keys override it.")
    ] = UNSET
    expect: Annotated[
        dict[FactName, bool | float | str] | UnsetType,
        _says(
            "(free) `expect` of all settings of this engine; a setting's own keys override it. A simulator's facts "
            "are compared with neither."
        ),
    ] = UNSET


class Requantize(Section):
    from_: Annotated[Name, _says("The model (a key of `models`) that the file is made from.")] = msgspec.field(
        name="from"
    )
    to: Annotated[str, _choice(["Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "F16"]), _says("The type of its weights.")]


class About(Section):
    gib: Annotated[Positive | UnsetType, _says("(free) Size on disk and in memory, GiB.")] = UNSET
    kv_kib_per_token: Annotated[Positive | UnsetType, _says("(free) KV cache at 16 bits a value, KiB per token.")] = (
        UNSET
    )


class Model(Section):
    name: Annotated[Words | UnsetType, _says("The model's name in tables; its key unless given.")] = UNSET
    source: Annotated[
        Source | UnsetType,
        _says(
            "(free) Where to fetch the file from: `pypi://`, `hf://`, `https://`, `ollama://` or `file://`. Where no "
            "file is loaded (`url`, `simulator`) it names the model if `sha256` does not, and another is another model."
        ),
    ] = UNSET
    requantize: Annotated[
        Requantize | UnsetType, _says("Instead of `source`: make the file from that of another model.")
    ] = UNSET
    sha256: Annotated[Sha256 | UnsetType, _says("The file's SHA-256. A file with another hash is never used.")] = UNSET
    size_bytes: Annotated[Annotated[int, Meta(ge=1)] | UnsetType, _says("The file's size.")] = UNSET
    unverified: Annotated[
        Text | UnsetType,
        _says(
            "(free) Why neither `sha256` nor a revision pins the file. The model is listed as not verified. The first "
            "fetch decides which file is used; manifest and records hold its SHA-256, and measurements of another "
            "file are kept apart."
        ),
    ] = UNSET
    about: Annotated[
        About | UnsetType, _says("(free) What `servebench plan` should know before the file is fetched.")
    ] = UNSET
    quantization: Annotated[Words | UnsetType, _says("As shown in tables, for example `Q4_K_M`.")] = UNSET
    note: Annotated[
        Text | UnsetType, _says("(free) Printed on the page; a † at every value of this model leads to it.")
    ] = UNSET


Tokens = Count | Words


class Prompts(Section):
    tokens: Annotated[
        Tokens,
        _says(
            "Real text cut by the server's own tokenizer to prompts of this many tokens, chat template included: 1024, "
            "or a distribution such as `uniform:100,2000` or `lognormal:1024,0.5`. The set's system message and "
            "instruction are left out."
        ),
    ]
    set: Annotated[Words, _says("The set or file whose texts are cut.")] = Load().prompts


class Workload(Section):
    mode: Annotated[str, _choice(MODES), _says("How the server is loaded; see `docs/load.md`.")] = "closed"
    prompts: Annotated[
        Words | Prompts | UnsetType,
        _says(
            "A built-in set (a folder of `config/prompts/`), or a file, by its path from the project's root. If its "
            "content changes, everything is measured again. Or `{tokens: 1024}`: prompts of a length."
        ),
    ] = UNSET
    system: Annotated[Words | UnsetType, _says("System message, instead of the prompt set's.")] = UNSET
    instruction: Annotated[
        Words | UnsetType, _says("Instruction before each document, instead of the prompt set's.")
    ] = UNSET
    max_tokens: Annotated[Count | UnsetType, _says("Maximum output tokens of a reply.")] = UNSET
    reply_tokens: Annotated[
        Tokens | UnsetType,
        _says(
            "Instead of `max_tokens`: replies of exactly this many tokens (`ignore_eos`, `min_tokens`), or a "
            "distribution as above. A server that ends replies by itself, as Ollama does, gets a mark."
        ),
    ] = UNSET
    temperature: Annotated[NotNegative, _says("Sampling temperature, sent with every request.")] = 0
    top_p: Annotated[float, Meta(gt=0, le=1), _says("Nucleus sampling, sent with every request.")] = 1.0
    seed: Annotated[Seed, _says("Sampling seed, sent with every request.")] = 0
    warmup_s: Annotated[
        NotNegative | UnsetType,
        _says("The warm-up lasts this long *and* until every user's first request has finished."),
    ] = UNSET
    window_s: Annotated[Positive | UnsetType, _says("Length of the window whose tokens and requests count.")] = UNSET
    timeout_s: Annotated[Positive, _says("Seconds after which an unfinished request fails.")] = 120
    idle_timeout_s: Annotated[
        Positive | UnsetType, _says("Seconds of silence after which a reply fails; no limit unless given.")
    ] = UNSET
    min_targets: Annotated[
        Count | UnsetType, _says("Keep the window open until this many requests were sent in it, unless all fail.")
    ] = UNSET
    requests: Annotated[Count | UnsetType, _says("For `count`: completions in total.")] = UNSET
    rate: Annotated[Positive | UnsetType, _says("For `open`: requests per second.")] = UNSET
    user_rate: Annotated[
        Positive | UnsetType,
        _says("For `open-users`: requests per second of each user, whatever the server does: 0.05 is one in 20 s."),
    ] = UNSET
    arrivals: Annotated[
        str | UnsetType,
        _choice(ARRIVALS),
        _says("For `open` and `open-users`: how the requests are spaced; `poisson` unless given."),
    ] = UNSET
    think: Annotated[
        Words | NotNegative | UnsetType,
        _says("Pause between a reply and the user's next request: seconds, or a distribution such as `exp:5`."),
    ] = UNSET
    turns: Annotated[Count | UnsetType, _says("For `conversation`: turns of each conversation.")] = UNSET
    trace: Annotated[
        Words | UnsetType,
        _says(
            "For `trace`: a file of arrivals, by its path from the project's root: our JSONL, Mooncake's, or the CSV "
            "of Azure or BurstGPT (`docs/load.md`). If its content changes, everything is measured again."
        ),
    ] = UNSET
    number_lines: Annotated[
        bool | UnsetType,
        _says(
            "Whether each request has a line with a number of its own, so that no prompt comes from the server's "
            "cache; unless given, true. A trace that has only lengths has texts of its own."
        ),
    ] = UNSET
    trace_speed: Annotated[Positive | UnsetType, _says("For `trace`: how many times as fast it runs.")] = UNSET
    trace_first_s: Annotated[
        Positive | UnsetType, _says("For `trace`: only the requests of its first so many seconds.")
    ] = UNSET
    shared_prefix_tokens: Annotated[
        Count | UnsetType, _says("For `shared-prefix`: length of the system prompt that all requests share.")
    ] = UNSET
    processes: Annotated[
        Annotated[int, Meta(ge=1, le=64)] | UnsetType,
        _says(
            "Load processes; unless given, one for every 64 users, for half of the CPUs at most, or one for each of "
            "`cpus.load`."
        ),
    ] = UNSET


class Run(Section):
    title: Annotated[Text | UnsetType, _says("(free) The run's title.")] = UNSET
    control: Annotated[Name | UnsetType, _says("(free) The setting that the others of this run are compared with.")] = (
        UNSET
    )
    workload: Annotated[Workload | UnsetType, _says("The keys of `workload` that this run changes.")] = UNSET


class Target(Section):
    engine: Annotated[Name, _says("A key of `engines`.")]
    model: Annotated[Name, _says("A key of `models`.")]
    slots: Annotated[
        Count,
        _says("Requests that the server works on at once (`-np`, `OLLAMA_NUM_PARALLEL`, `--max-num-seqs`)."),
    ]
    context: Annotated[
        Annotated[int, Meta(ge=16)] | UnsetType, _says("Tokens that a request may use, prompt and reply together.")
    ] = UNSET
    args: Annotated[
        list[str] | UnsetType,
        _says("Further arguments, as the engine takes them. If they name a file, only its name is tracked."),
    ] = UNSET
    env: Annotated[
        dict[EnvironmentName, str] | UnsetType,
        _says("Environment variables of the engine. It gets none of your other variables."),
    ] = UNSET
    request: Annotated[
        dict[str, Any] | UnsetType,
        _says(
            "Merged into every request's JSON body; null removes a key. Not `model`, `messages`, `prompt`, `stream` "
            "or `n`."
        ),
    ] = UNSET
    note: Annotated[
        Text | UnsetType, _says("(free) Printed on the page; a † at every value of this setting leads to it.")
    ] = UNSET


class Setting(Target, kw_only=True):
    run: Annotated[Name | UnsetType, _says("A key of `runs`; the first unless given.")] = UNSET
    expect: Annotated[
        dict[FactName, bool | float | str] | UnsetType,
        _says(
            "(free) Published facts about this setting, compared with what the server reports: `n_ctx_slot: 4096`. A "
            "difference is shown and stops nothing."
        ),
    ] = UNSET
    users: Annotated[
        list[Users],
        Meta(min_length=1, extra_json_schema={"uniqueItems": True}),
        _says("Numbers of users to measure, each once per round, in ascending order."),
    ]
    matrix: Annotated[
        dict[str, list[Any]] | UnsetType,
        _says(
            "Lists of values of any keys of a setting: one setting for each combination, its name followed by the "
            "values. `quantization` chooses the model that has it; a key under `workload.` makes a run of its own for "
            "each value."
        ),
    ] = UNSET
    include: Annotated[
        list[dict[str, Any]] | UnsetType,
        _says("Keys added to the combinations of `matrix` that have the same values, or further combinations."),
    ] = UNSET
    exclude: Annotated[
        list[dict[str, Any]] | UnsetType, _says("Combinations of `matrix` to leave out, by some of their values.")
    ] = UNSET


class TaskSet(Section):
    set: Annotated[
        Words, _says("`full`, `small` (40 questions of this project) or a file. See `docs/evaluations.md`.")
    ] = FULL
    limit: Annotated[
        Count | UnsetType,
        _says("Ask only this many questions, from the first on. If you raise it, only the added questions are asked."),
    ] = UNSET
    max_tokens: Annotated[
        Count | UnsetType, _says("Maximum output tokens of a reply; the task's own unless given.")
    ] = UNSET
    request: Annotated[
        dict[str, Any] | UnsetType, _says("Merged into the JSON body of every request of this task.")
    ] = UNSET


class UnderLoad(Section):
    users: Annotated[
        Users,
        _says(
            "This many users run the `workload` (its mode must not end by itself) while the first questions of a task "
            "are asked again, one at a time. Their replies are compared with those of an idle server."
        ),
    ]
    task: Annotated[Task, _says("The task that is asked again.")]
    questions: Annotated[Count, _says("How many of its questions.")]
    targets: Annotated[
        Annotated[list[TargetName], Meta(min_length=1)] | UnsetType,
        Meta(extra_json_schema={"uniqueItems": True}),
        _says("The targets that are asked; the baseline unless given."),
    ] = UNSET


class Evaluations(Section, kw_only=True):
    baseline: Annotated[TargetName, _says("(free) The target that the others are compared with.")]
    concurrency: Annotated[int, Meta(ge=1, le=256), _says("How many questions are asked at once.")]
    repeats: Annotated[
        int, Meta(ge=1, le=2), _says("How often everything is asked; the second time in another order.")
    ] = 2
    seed: Annotated[Seed, _says("Seed of the second order, also sent with every request.")] = 0
    tasks: Annotated[dict[Task, TaskSet], Meta(min_length=1), _says("The tasks that are asked.")]
    margins: Annotated[
        dict[MeasureName, Positive] | UnsetType,
        _says(
            "(free) For each measure, the difference in points up to which a target counts as equivalent; declare it "
            "before the run."
        ),
    ] = UNSET
    under_load: Annotated[UnderLoad | UnsetType, _says("Questions asked again while the server is loaded.")] = UNSET
    targets: Annotated[
        dict[TargetName, Target], Meta(min_length=2), _says("The targets that are asked; keys as in a setting.")
    ]


class Charts(Section):
    width: Annotated[
        Annotated[int, Meta(ge=200, le=2000)] | UnsetType,
        _says(
            "(free) Width of a chart's plots in pixels, all that stand side by side together; unless given, each chart "
            "has its own. A PNG has twice as many, and the page fits its charts to the window."
        ),
    ] = UNSET
    height: Annotated[
        Annotated[int, Meta(ge=100, le=2000)] | UnsetType,
        _says("(free) Height of a plot in pixels; where each row of a plot is a line of text, the rows give it."),
    ] = UNSET
    language: Annotated[str | UnsetType, _choice(["en", "ja"]), _says("(free) Language of the charts' labels.")] = UNSET


_RUNTIME = plan.Runtime()


class ForeignUse(Section):
    share: Annotated[
        float,
        Meta(gt=0, le=1),
        _says("(free) A sample shows foreign use if others took this share of the device or more."),
    ] = _RUNTIME.foreign_use.share
    samples: Annotated[Count, _says("(free) This many samples with foreign use disturb a measurement.")] = (
        _RUNTIME.foreign_use.samples
    )
    action: Annotated[
        str,
        _choice(["discard", "mark"]),
        _says("(free) `discard`: repeat a disturbed measurement; `mark`: keep it and mark its row."),
    ] = _RUNTIME.foreign_use.action


class Runtime(Section):
    ready_timeout_s: Annotated[
        Positive, _says("(free) How long an engine may take to start, or a server at a URL to be ready.")
    ] = _RUNTIME.ready_timeout_s
    stop_timeout_s: Annotated[Positive, _says("(free) How long an engine may take to stop.")] = _RUNTIME.stop_timeout_s
    ports: Annotated[
        tuple[Port, ...],
        Meta(min_length=2, max_length=2),
        _says("(free) First and last port that engines are started on."),
    ] = _RUNTIME.ports
    cache: Annotated[
        Words | UnsetType,
        _says(
            "(free) Folder of models, engine environments and calibrations; unless given `$SERVEBENCH_CACHE`, else the "
            "user's cache."
        ),
    ] = UNSET
    scratch: Annotated[
        Words | UnsetType,
        _says(
            "(free) A folder on each node's own disk: models are copied to it, each copy is checked, and engines load "
            "the copy. Variables such as `$SLURM_JOB_ID` are filled in on the node. Unless given "
            "`$SERVEBENCH_SCRATCH`, else engines load models from the cache."
        ),
    ] = UNSET
    job_minutes: Annotated[
        Count | UnsetType,
        _says(
            "(free) The longest job that the batch system accepts. A session that needs longer is submitted with this "
            "limit and continues when Snakemake is run again."
        ),
    ] = UNSET
    device: Annotated[
        Words | UnsetType,
        _says(
            "(free) The devices to choose from: UUIDs or indices of GPUs, separated by commas, or `cpu` for none; "
            "unless given `$CUDA_VISIBLE_DEVICES`, else all GPUs. Each session takes the first free ones."
        ),
    ] = UNSET
    bandwidth_gb_s: Annotated[
        Positive | UnsetType,
        _says(
            "(free) Bandwidth of the device's memory, GB/s, from which the fastest possible stream is predicted. "
            "Unless given: of a GPU, that of its data sheet where servebench knows it; of a CPU, what copying memory "
            "for half a second shows."
        ),
    ] = UNSET
    mirror: Annotated[
        Words | UnsetType,
        _says(
            "(free) A folder or address to fetch from first, for sites without internet. "
            "[docs/slurm.md](../docs/slurm.md) shows its layout; an address can hold no snapshots."
        ),
    ] = UNSET
    beyond_calibration: Annotated[
        str,
        _choice(["refuse", "mark"]),
        _says("(free) With more users than this machine's calibration allows: `refuse`, or `mark` the rows."),
    ] = _RUNTIME.beyond_calibration
    foreign_use: Annotated[
        ForeignUse | UnsetType, _says("(free) What happens when others use the device during a measurement.")
    ] = UNSET


class Configuration(Section, kw_only=True):
    experiment: Annotated[Name, _says("Name of the experiment; results go to `results/<experiment>/`.")]
    title: Annotated[
        Text | UnsetType, _says("(free) Title of the page, a string or `{en: …, ja: …}`; the name unless given.")
    ] = UNSET
    license: Annotated[
        str,
        _says("(free) Licence under which you publish the results, an SPDX identifier; stands in the published JSON."),
    ] = "CC-BY-4.0"
    rounds: Annotated[
        Annotated[int, Meta(ge=1, le=9)] | Rounds,
        _says(
            "How often everything is measured. Rounds are reported as a range, never averaged. `{min: 2, max: 8}`: "
            "twice, and in `snakemake capacity` up to eight times near the limit."
        ),
    ] = 2
    reference: Annotated[
        Name | UnsetType,
        _says(
            "(free) Published figures of this experiment, shown beside the measured ones: "
            "`config/references/<reference>-concurrency.csv`."
        ),
    ] = UNSET
    deviations: Annotated[
        list[Text] | UnsetType,
        _says(
            "(free) Where this experiment differs from its source or fills a gap in it; shown by `servebench plan` "
            "and on the page."
        ),
    ] = UNSET
    unverified: Annotated[
        list[Text] | UnsetType, _says("(free) What could not be checked; shown in the same places.")
    ] = UNSET
    line: Annotated[Line | UnsetType, _says("(free) The objective that a number of users must meet.")] = UNSET
    objectives: Annotated[
        dict[Name, NamedObjective] | UnsetType,
        _says("(free) Further objectives by name, each with limits of its own and a capacity of its own."),
    ] = UNSET
    capacity: Annotated[
        Capacity | UnsetType, _says("(free) How `snakemake capacity` searches for the users that a setting serves.")
    ] = UNSET
    people: Annotated[People | UnsetType, _says("How the simulated users behave as people.")] = UNSET
    cost: Annotated[Cost | UnsetType, _says("(free) What the machine costs.")] = UNSET
    cpus: Annotated[Cpus | UnsetType, _says("How many CPUs the server and the load generator get.")] = UNSET
    engines: Annotated[dict[Name, Engine], Meta(min_length=1), _says("The servers, by name.")]
    models: Annotated[dict[Name, Model], Meta(min_length=1), _says("The models' files, by name.")]
    workload: Annotated[Workload, _says("What the users ask, and how they load the server.")]
    runs: Annotated[
        dict[Name, Run] | UnsetType,
        _says(
            "Groups of settings that are compared with each other, in this order; unless given one run, `main`. Values "
            "of different runs never share a row."
        ),
    ] = UNSET
    settings: Annotated[
        dict[Name, Setting],
        Meta(min_length=1),
        _says("What is measured: an engine with a model and arguments, at each number of users."),
    ]
    evaluations: Annotated[
        Evaluations | UnsetType, _says("How well the models answer. Without this section nothing is evaluated.")
    ] = UNSET
    charts: Annotated[Charts | UnsetType, _says("(free) How charts are drawn.")] = UNSET
    runtime: Annotated[
        Runtime | UnsetType,
        _says("(free) How this machine runs the experiment; nothing here changes what is measured."),
    ] = UNSET


def defaults(section: type[Section]) -> dict[str, Any]:
    """Return the default of each key of a section that has one."""
    fields = msgspec.structs.fields(section)
    return {field.encode_name: field.default for field in fields if field.default not in (msgspec.NODEFAULT, UNSET)}
