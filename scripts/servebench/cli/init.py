"""Write a configuration that fits this machine: `servebench init`.

Models, engines and images are those of `config/my-gpu.yaml`, or without a GPU of the quick start; slots and the share
of the GPU's memory come from what fits beside the weights. With a server's address it is a configuration for that.
"""

from __future__ import annotations

import math
import shlex
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import typer
import yaml

from servebench import ROOT, configuration
from servebench.cli.messages import say
from servebench.configuration import reading
from servebench.configuration.faults import PINNED
from servebench.configuration.shorthand import slug
from servebench.engines import ADAPTERS, runtime
from servebench.engines.pytorch import PyTorch
from servebench.faults import Fault
from servebench.machine import cache
from servebench.models import checking
from servebench.outlook import requirements
from servebench.outlook.requirements import SHARE, Device
from servebench.plan import Engine
from servebench.plan.layout import RESULTS

GGUF, FOLDER = ("llama-server", "ollama"), ("vllm",)  # the engines that load a GGUF file, or a repository's folder
_LIST = "tag:yaml.org,2002:seq"
# Models that need no file: their names here, and the configuration that has them.
KNOWN: Mapping[str, str] = {"qwen3-14b": "my-gpu.yaml", "smollm2": "config.yaml"}


@dataclass(frozen=True)
class Answers:
    """Hold the answers to the four questions; None where one was not given as an option.

    url: of a server that is already running, which leaves its model's name and the users to ask for.
    """

    url: str | None
    model: str | None
    engines: str | None
    context: int | None
    users: int | None


def command(out: Path, given: Answers) -> int:
    """Ask what was not given, and write the configuration to `out`; return the exit status.

    Raises Fault for an answer that does not fit, and where `out` is there already: nothing is overwritten.
    """
    if out.exists():
        raise Fault(f"--out: {out} is there already, and is not overwritten; name another file")
    there = Device.here()
    if not given.url:  # what this machine has says nothing about a server that is already running
        say(str(there))
    content, notes = configured(out.stem, there, given)
    out.parent.mkdir(parents=True, exist_ok=True)
    try:
        with out.open("x", encoding="utf-8") as file:
            about = [f"For this machine: {there}."] if "models" in content else []
            file.write(text(content, [*about, *notes, *_commands(out)]))
    except FileExistsError:
        raise Fault(f"--out: {out} is there already, and is not overwritten; name another file") from None
    for note in notes:
        say(note)
    say(f"written to {out}; what it takes and needs, then the run:")
    say("\n".join(_commands(out)))
    return 0


def _commands(out: Path) -> list[str]:
    file = shlex.quote(str(out))
    return [f"  servebench plan --configfile {file}", f"  snakemake --cores 1 all --configfile {file}"]


def configured(experiment: str, there: Device, given: Answers) -> tuple[dict[str, Any], list[str]]:
    """Return a configuration for `there`, and what to say about it, a line each; ask for what is not `given`."""
    if given.url:
        return _of_server(experiment, given.url, given), []
    engines, lacking = runnable(there)
    if not engines:
        told = "; ".join(f"{kind}: {why}" for kind, why in lacking.items())
        raise Fault(f"no engine can be started ({told}); a server that is already running needs --url")
    source = given.model or _asked(
        "--model",
        f"Model: {', '.join(KNOWN)}, a GGUF file, a folder, hf://OWNER/REPOSITORY[/FILE.gguf] or ollama://NAME; or the"
        " address of a server that is already running",
        _proposed(there),
    )
    if source.startswith(("http://", "https://")):
        return _of_server(experiment, source, replace(given, model=None)), []
    models = models_of(source)
    usable = [kind for kind in engines if kind in models]
    if not usable:
        told = "; ".join(f"{kind}: {lacking.get(kind, 'cannot load it')}" for kind in {**lacking, **engines})
        raise Fault(f"--model: {source}: no engine of this machine loads it ({told})")
    asked = given.engines or _asked(
        "--engines", f"Engines, of {', '.join(usable)}", ",".join(usable if there.gpu else usable[:1])
    )
    kinds = list(dict.fromkeys(kind.strip() for kind in asked.split(",")))
    for kind in kinds:
        if kind not in usable:
            why = lacking.get(kind, f"does not load {source}" if kind in engines else "is not an engine of init")
            raise Fault(f"--engines: {kind!r}: {why}; here: {', '.join(usable)}")
    context = given.context or _number(
        "--context", "Tokens of one request, with its reply", 2048 if there.gpu else 1024
    )
    context = 256 * math.ceil(context / 256)  # as llama.cpp rounds it
    most = given.users or _number("--users", "Users at once, at most", 64 if there.gpu else 8)
    content: dict[str, Any] = {
        "experiment": experiment,
        "engines": {kind: _within_memory(engines[kind], there) for kind in kinds},
        "models": dict(models[kind] for kind in kinds),
        "workload": {
            "prompts": "en-short",
            "max_tokens": min(256 if there.gpu else 64, context // 2),
            "warmup_s": 15 if there.gpu else 5,
            "window_s": 60 if there.gpu else 20,
            "min_targets": 20,
        },
        "settings": {
            kind: {"engine": kind, "model": models[kind][0], "context": context, "users": _users(most)}
            for kind in kinds
        },
    }
    if there.gpu is None:  # a laptop is never idle: what others use of it is told beside each row, and measured with it
        content["runtime"] = {
            "beyond_calibration": "mark",
            "foreign_use": {"share": 0.25, "samples": 4, "action": "mark"},
        }
    notes = _fit(content, there, most, [kind for kind in kinds if not given.engines])
    # As a last check: what is written is a configuration.
    configuration.load(content, [f"{experiment}.yaml"])
    return content, notes


def _of_server(experiment: str, url: str, given: Answers) -> dict[str, Any]:
    """Return the configuration for a server that is already running; nothing about it is invented."""
    for option, value in (("--engines", given.engines), ("--context", given.context)):
        if value is not None:
            raise Fault(f"{option}: has no effect with --url, whose server is as it was started; leave it out")
    most = given.users or _number("--users", "Users at once, at most", 16)
    named = {"model": given.model} if given.model else {}
    content = {
        "experiment": experiment,
        "engines": {"mine": {"kind": "url", "url": url}},
        "settings": {"now": {"engine": "mine", **named, "users": _users(most)}},
    }
    configuration.load(content, [f"{experiment}.yaml"])
    return content


def _fit(content: dict[str, Any], there: Device, most: int, optional: Sequence[str]) -> list[str]:
    """Give each setting the slots that fit, at most `most`; take out those of `optional` that fit no context."""
    settings, notes = content["settings"], []
    single = {**content, "settings": {kind: {**setting, "slots": 1} for kind, setting in settings.items()}}
    plan = configuration.load(single, [f"{content['experiment']}.yaml"])
    for need in requirements.memory(plan, RESULTS / plan.experiment, cache.root(plan.runtime.cache)):
        kind, setting = need.setting, settings[need.setting]
        room = need.contexts(there.usable_gib(need))
        tokens = f"{setting['context']:,} tokens"
        if room == 0:
            told = f"{setting['model']} and one context of {tokens} need more than {SHARE:.0%} of the free memory"
            if kind not in optional or len(settings) == 1:
                raise Fault(f"--engines: {kind}: {told}; give a smaller --model or --context")
            notes.append(f"{kind} is left out: {told}")
            del settings[kind], content["engines"][kind]
            continue
        # An engine that fills its share divides it among the requests as they come, and makes some of them wait.
        wanted = {max(1, most // 4), most}
        fitting = wanted if room is None or need.fills_device else {min(slots, room) for slots in wanted}
        setting["matrix"] = {"slots": sorted(fitting)}
        if room is None:
            notes.append(f"{kind}: the memory of {setting['model']} is known once it is fetched; then see the plan")
        else:
            notes.append(f"{kind}: beside the weights there is room for {room:,} contexts of {tokens}")
    used = {setting["model"] for setting in settings.values()}
    content["models"] = {key: entry for key, entry in content["models"].items() if key in used}
    return notes


def runnable(there: Device) -> tuple[dict[str, dict[str, Any]], dict[str, str]]:
    """Return the engines that this machine can start, as configured, and why the others cannot be, by kind."""
    found, lacking = dict[str, dict[str, Any]](), dict[str, str]()
    containers = any(map(shutil.which, runtime.TOOLS))
    for kind in ("llama-server", "ollama", "vllm"):
        entry = next(one for one in _shipped("my-gpu.yaml")["engines"].values() if one["kind"] == kind)
        image = runtime.image(Engine(key=kind, kind=kind, image=entry["image"]))
        outdated = there.gpu and runtime.newer_cuda(image, there.gpu)
        if there.gpu and containers and not outdated:
            found[kind] = {key: value for key, value in entry.items() if key != "args"}
        elif not there.gpu and kind == "llama-server":
            found[kind] = dict(_shipped("config.yaml")["engines"]["llama-cpp"])
        elif not there.gpu and kind in FOLDER:
            lacking[kind] = "needs a GPU"
        elif shutil.which(kind):
            found[kind] = {"kind": kind, "runtime": "binary", "binary": kind}
        else:
            update = f"; its image needs CUDA {outdated}, so update the driver" if outdated and containers else ""
            lacking[kind] = f"is not on PATH, and there is none of docker, apptainer and podman{update}"
    lacking["sglang"] = (
        "no image or environment of SGLang is pinned here; init with another engine, make one, and add it to the file,"
        " as docs/engines.md shows (SGLang)"
    )
    return found, lacking


def models_of(source: str) -> dict[str, tuple[str, dict[str, Any]]]:
    """Return, for each kind of engine that loads the model, its key and its entry under `models`."""
    if source in KNOWN:
        shipped = _shipped(KNOWN[source])
        kinds = {name: engine["kind"] for name, engine in shipped["engines"].items()}
        found = {}
        for setting in reversed(shipped["settings"].values()):
            key = setting["model"]
            found[kinds[setting["engine"]]] = (key, {k: v for k, v in shipped["models"][key].items() if k != "note"})
        return {**dict.fromkeys(GGUF, found["llama-server"]), **found}
    if source.startswith(("hf://", "ollama://")):
        kinds_of = GGUF if source.startswith("ollama://") or source.partition("@")[0].endswith(".gguf") else FOLDER
        entry = {"source": source}
        if not PINNED.fullmatch(source):
            entry["unverified"] = "Not pinned; the first fetch decides which file is used."
        return dict.fromkeys(kinds_of, (_key(source.partition("@")[0]), entry))
    path = Path(source).expanduser()
    if not path.exists() or "://" in source:
        raise Fault(f"--model: {source}: no such file or folder; give one, hf://…, ollama://… or {', '.join(KNOWN)}")
    if path.is_dir() != (path / "config.json").is_file():
        raise Fault(
            f"--model: {source}: has no config.json; give a model's folder as it was downloaded, or a GGUF file"
        )
    if path.is_file():
        with path.open("rb") as file:
            if file.read(4) != b"GGUF":
                raise Fault(f"--model: {source}: is not a GGUF file; give one, or a model's folder")
    say(f"reading {path} for its SHA-256")
    entry = {"source": f"file://{path.resolve()}", "sha256": checking.digest(path)}
    return dict.fromkeys(FOLDER if path.is_dir() else GGUF, (_key(path.resolve().name), entry))


def text(content: Mapping[str, Any], head: Sequence[str]) -> str:
    """Return a configuration as YAML, below lines of comment; lists are on one line."""
    lines = [
        "# Made by `servebench init`; every key is explained in config/README.md.",
        *(f"# {line}" for line in head),
    ]
    for key, value in content.items():
        part = yaml.dump({key: value}, Dumper=_Lists, sort_keys=False, allow_unicode=True, width=1000).rstrip()
        lines += ["", part] if isinstance(value, dict) else [part]
    return "\n".join(lines) + "\n"


class _Lists(yaml.SafeDumper):
    """Write mappings over several lines, and lists in brackets."""


_Lists.add_representer(list, lambda dumper, value: dumper.represent_sequence(_LIST, value, flow_style=True))


def _within_memory(engine: dict[str, Any], there: Device) -> dict[str, Any]:
    """Give an engine that takes a share of the GPU, whatever it needs, the share that is free."""
    adapter = ADAPTERS[engine["kind"]]
    if not issubclass(adapter, PyTorch):
        return engine
    share = math.floor(100 * SHARE * there.free_gib / there.memory_gib) / 100
    return {**engine, "args": [adapter.memory_flag, f"{share:.2f}"]}


def _proposed(there: Device) -> str:
    """Return the model to propose: the larger one where its GGUF file leaves room for caches on a GPU."""
    larger = models_of("qwen3-14b")["llama-server"][1]["about"]["gib"]
    return "qwen3-14b" if there.gpu and larger <= 0.8 * SHARE * there.free_gib else "smollm2"


def _users(most: int) -> list[int]:
    """Return 1, 4, 16, … and `most`."""
    return [*(4**n for n in range(math.ceil(math.log(most, 4))) if 4**n < most), most]


def _key(name: str) -> str:
    return slug(name.rstrip("/").rpartition("/")[2].removesuffix(".gguf"))[:60]


def _shipped(name: str) -> dict[str, Any]:
    return reading.read(ROOT / "config" / name)


def _number(option: str, question: str, proposed: int) -> int:
    found = _asked(option, question, str(proposed))
    if not found.isdecimal() or int(found) < 1:
        raise Fault(f"{option}: {found!r} is not a positive integer")
    return int(found)


def _asked(option: str, question: str, proposed: str) -> str:
    """Ask on the terminal; an empty answer is what is proposed. Raises Fault when the input ends."""
    try:
        return str(typer.prompt(question, default=proposed)).strip()
    except typer.Abort:
        raise Fault(f"{option}: was not answered; give the option, for example {option} {proposed}") from None
