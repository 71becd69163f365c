"""From YAML to a `Plan`: what a configuration may say, and one clear sentence for each thing it may not.

Messages name file, key, value and remedy, and come before anything is fetched or started.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, cast

import jsonschema
import msgspec
import yaml

from servebench import ROOT
from servebench.engines import ADAPTERS
from servebench.faults import Fault
from servebench.figures import Line
from servebench.load import prompts as prompt_sets
from servebench.load.arrivals import Pause, read_trace
from servebench.load.workload import Target, Workload
from servebench.plan import Engine, Evaluations, Model, Plan, Runtime, Setting
from servebench.tasks import TASKS, sets

COMMON = ("args", "env", "request", "expect")  # keys of an engine that all its settings get
PINNED = re.compile(r"^hf://.*@[0-9a-f]{40}$|^ollama://.*@sha256:[0-9a-f]{64}$")
# The measures that are compared (servebench.tasks.scores), and the task each belongs to.
MEASURED_BY = {
    "jcommonsenseqa": "jcommonsenseqa",
    "mgsm": "mgsm",
    "proof_fixed": "proofreading",
    "proof_rewritten": "proofreading",
}
WORKLOAD_DEFAULTS: Mapping[str, Any] = {
    "mode": "closed",
    "temperature": 0,
    "top_p": 1.0,
    "seed": 0,
    "timeout_s": 120,
}


def _integer(checker: jsonschema.TypeChecker, value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _number(checker: jsonschema.TypeChecker, value: Any) -> bool:
    return _integer(checker, value) or (isinstance(value, float) and math.isfinite(value))


# JSON Schema takes 4.0 for an integer, and YAML has numbers that JSON has not (.nan, .inf).
Validator = cast(Any, jsonschema.validators).extend(
    jsonschema.Draft202012Validator,
    type_checker=jsonschema.Draft202012Validator.TYPE_CHECKER.redefine_many({"integer": _integer, "number": _number}),
)


class ConfigError(Fault):
    """A configuration that cannot be run. Its text has one line per fault: file: key: value: remedy."""


def load(config: Mapping[str, Any], files: Sequence[str | Path], overrides: Mapping[str, Any] | None = None) -> Plan:
    """Check `config` (as merged from `files`, in order, and `overrides` of the command line) and build the plan; raises
    `ConfigError`."""
    overrides = overrides or {}
    origin = Origin(files, overrides)
    config = _present(config)
    faults = list(value_faults(config, origin)) or list(schema_faults(config, origin))
    if faults:
        raise ConfigError("\n".join(faults))
    faults = list(cross_faults(config, origin))
    if faults:
        raise ConfigError("\n".join(faults))
    models = {
        key: msgspec.convert({"key": key, "name": key, **entry}, Model) for key, entry in config["models"].items()
    }
    engines = {
        key: msgspec.convert({"key": key, "pin": engine_pin(entry), **_without(entry, COMMON)}, Engine)
        for key, entry in config["engines"].items()
    }
    runs: dict[str, dict[str, Any]] = {
        name: dict(entry or {}) for name, entry in (config.get("runs") or {"main": {}}).items()
    }
    settings = {}
    for name, entry in config["settings"].items():
        run = entry.get("run", next(iter(runs)))
        workload = {**WORKLOAD_DEFAULTS, **config["workload"], **(runs[run].get("workload") or {})}
        settings[name] = _setting(
            config,
            name,
            {
                **entry,
                "run": run,
                "users": sorted(entry["users"]),
                "processes": workload.pop("processes", None),
                "workload": workload,
                "prompts_sha256": prompts_digest(workload["prompts"]),
                "trace_sha256": trace_digest(workload.get("trace")),
            },
            engines,
            models,
        )
    ordered = {n: s for run in runs for n, s in settings.items() if s.run == run}
    return Plan(
        experiment=config["experiment"],
        title=config.get("title", config["experiment"]),
        files=tuple(_in_checkout(file) or f"/path/to/{Path(file).name}" for file in files),
        overrides=tuple(f"{key}={_as_argument(value)}" for key, value in overrides.items()),
        rounds=config.get("rounds", 2),
        line=msgspec.convert(config.get("line", {}), Line),
        reference=config.get("reference"),
        cost=config.get("cost"),
        deviations=tuple(config.get("deviations", ())),
        unverified=tuple(config.get("unverified", ())),
        models=models,
        engines=engines,
        settings=ordered,
        runs=runs,
        evaluations=_evaluations(config, engines, models) if "evaluations" in config else None,
        charts=dict(config.get("charts", {})),
        runtime=msgspec.convert(config.get("runtime", {}), Runtime),
    )


def _as_argument(value: Any) -> str:
    """A value as snakemake --config reads it."""
    return "" if value is None else json.dumps(value) if isinstance(value, Mapping | list) else str(value)


def _in_checkout(file: str | Path) -> str | None:
    """Where a file is in the checkout, or None outside of it."""
    path = Path(file).parent.resolve() / Path(file).name
    return path.relative_to(ROOT).as_posix() if path.is_relative_to(ROOT) else None


def _setting(
    config: Mapping[str, Any],
    name: str,
    entry: Mapping[str, Any],
    engines: Mapping[str, Engine],
    models: Mapping[str, Model],
) -> Setting:
    """`entry` with its engine and model, and with what all settings of the engine have in common."""
    return msgspec.convert(
        {
            **entry,
            **_with_common(config["engines"][entry["engine"]], entry),
            "name": name,
            "engine": engines[entry["engine"]],
            "model": models[entry["model"]],
            "cpus": config.get("cpus"),
        },
        Setting,
    )


def _evaluations(config: Mapping[str, Any], engines: Mapping[str, Engine], models: Mapping[str, Model]) -> Evaluations:
    section = config["evaluations"]
    common = {"run": "evaluations", "users": [section["concurrency"]]}
    targets = {
        name: _setting(config, name, {**entry, **common}, engines, models) for name, entry in section["targets"].items()
    }
    tasks = {name: _task_set(name, entry) for name, entry in section["tasks"].items()}
    under_load = section.get("under_load")
    if under_load:
        workload = {**WORKLOAD_DEFAULTS, **config["workload"]}
        under_load = {
            "targets": [section["baseline"]],
            **under_load,
            "questions": min(under_load["questions"], tasks[under_load["task"]]["questions"]),
            "workload": _without(workload, ("processes",)),
            "prompts_sha256": prompts_digest(workload["prompts"]),
        }
    return msgspec.convert({**section, "targets": targets, "tasks": tasks, "under_load": under_load}, Evaluations)


def _task_set(name: str, entry: Mapping[str, Any]) -> dict[str, Any]:
    task, chosen = TASKS[name], entry.get("set", sets.FULL)
    path = sets.local(task, chosen, ROOT)
    if path is not None:
        there, sha256 = len(task.load(path)), hashlib.sha256(path.read_bytes()).hexdigest()
    else:
        assert task.source  # published
        there, sha256 = task.source.questions, task.source.sha256
    return {
        "set": chosen,
        "sha256": sha256,
        "questions": min(there, entry.get("limit", there)),
        "max_tokens": entry.get("max_tokens", task.max_tokens),
        "request": entry.get("request", {}),
    }


def overrides(given: Sequence[str]) -> dict[str, Any]:
    """KEY=VALUE of the command line, as snakemake --config reads them."""
    from snakemake.cli import parse_config  # half a second, for those who need it

    try:
        return dict(parse_config(list(given)))
    except ValueError as error:
        raise ConfigError(f"--config: {shlex.join(given)}: {error}") from error


def read(files: Sequence[str | Path], overrides: Mapping[str, Any] | None = None) -> Plan:
    """Read configuration files as Snakemake merges them (later over earlier, key by key; `overrides` of the command
    line over all) and `load` the result."""
    merged: dict[str, Any] = {}
    for file in files:
        try:
            content = yaml.safe_load(Path(file).read_text(encoding="utf-8"))
        except OSError as error:
            raise ConfigError(f"{file}: cannot be read: {error.strerror}; name a file under config/") from error
        except yaml.MarkedYAMLError as error:
            line = "" if error.problem_mark is None else f"{error.problem_mark.line + 1}:"
            told = f"is not valid YAML: {error.problem}; check this line and its indentation"
            raise ConfigError(f"{file}:{line} {told}") from error
        except (yaml.YAMLError, ValueError) as error:
            raise ConfigError(f"{file}: is not valid YAML: {str(error).splitlines()[0]}") from error
        if not isinstance(content, Mapping | None):
            raise ConfigError(f"{file}: {content!r:.60} is no mapping of keys to values; see config/README.md")
        _merge(merged, content or {})
    _merge(merged, overrides or {})
    return load(merged, files, overrides)


def _merge(into: dict[str, Any], new: Mapping[str, Any]) -> None:
    for key, value in new.items():
        if isinstance(value, Mapping) and isinstance(into.get(key), dict):
            _merge(into[key], value)
        else:
            into[key] = dict(value) if isinstance(value, Mapping) else value


def _present(value: Any) -> Any:
    """`value` without the keys an overlay set to null. In a `request`, null takes a key out of the body, and stays."""
    if not isinstance(value, Mapping):
        return value
    return {k: v if k == "request" else _present(v) for k, v in value.items() if v is not None}


def _without(entry: Mapping[str, Any], keys: Sequence[str]) -> dict[str, Any]:
    return {key: value for key, value in entry.items() if key not in keys}


def _with_common(engine: Mapping[str, Any], setting: Mapping[str, Any]) -> dict[str, Any]:
    """What an engine's settings have in common and what the setting adds: arguments in that order, so that it wins."""
    mappings = {key: {**engine.get(key, {}), **setting.get(key, {})} for key in ("env", "request", "expect")}
    if engine["kind"] == "simulator":  # nothing was published of it
        mappings["expect"] = {}
    return {"args": [*engine.get("args", ()), *setting.get("args", ())], **mappings}


def engine_pin(entry: Mapping[str, Any]) -> str | None:
    """What pins an engine's version: the SHA-256 of its environment's lock, or its image's digest."""
    if entry.get("environment"):
        return hashlib.sha256((ROOT / "envs" / f"{entry['environment']}.lock").read_bytes()).hexdigest()
    if entry.get("image"):
        images = yaml.safe_load((ROOT / "envs" / "images.yaml").read_text(encoding="utf-8"))
        return str(images[entry["image"]]["digest"])
    return None


def prompts_path(prompts: str) -> Path:
    """Where a prompt set is: a built-in name under config/prompts, or a path (from the project's root, if relative)."""
    built_in = ROOT / "config" / "prompts" / prompts
    return built_in if built_in.is_dir() else ROOT / prompts


def prompts_digest(prompts: str) -> str:
    """SHA-256 over a prompt set's files, by name and content."""
    path = prompts_path(prompts)
    whole = hashlib.sha256()
    for file in sorted(path.iterdir()) if path.is_dir() else [path]:
        if file.suffix != ".md":
            whole.update(file.name.encode() + b"\0" + file.read_bytes() + b"\0")
    return whole.hexdigest()


def trace_digest(trace: str | None) -> str | None:
    """SHA-256 of a trace's file, whose path is from the project's root, if relative; None without a trace."""
    return None if trace is None else hashlib.sha256((ROOT / trace).read_bytes()).hexdigest()


class Origin:
    """Where a key of the merged configuration came from, so that an error can name it: the command line or a file."""

    def __init__(self, files: Sequence[str | Path], overrides: Mapping[str, Any]) -> None:
        self.files = [str(file) for file in files] or ["config"]
        self.overrides = overrides

    def of(self, path: Sequence[str | int]) -> str:
        """--config when that sets `path`, else the last file that does, or the last file when none does (a missing
        key)."""
        if path and _holds(self.overrides, path):
            return "--config"
        for file in reversed(self.files):
            try:
                if _holds(yaml.safe_load(Path(file).read_text(encoding="utf-8")), path):
                    return file
            except (OSError, yaml.YAMLError):
                continue
        return self.files[-1]

    def fault(self, path: Sequence[str | int], text: str) -> str:
        """`file: dotted.key: text`."""
        where = ".".join(str(part) for part in path)
        file = self.of(path)
        name = _in_checkout(file) or file
        return f"{name}: {where}: {text}" if where else f"{name}: {text}"


def _holds(value: Any, path: Sequence[str | int]) -> bool:
    try:
        for part in path:
            value = value[part]
    except (KeyError, IndexError, TypeError):
        return False
    return True


# What a `request` cannot change: servebench sends it, and its figures rest on it.
_SENT = {
    "model": "name the model under models and settings",
    "messages": "name the prompts as workload.prompts",
    "prompt": "name the prompts as workload.prompts",
    "stream": "what is measured is a stream",
    "n": "what is measured is one reply to a request",
}


def value_faults(value: Any, origin: Origin, path: Sequence[str | int] = ()) -> Iterator[str]:
    """Keys and values that nothing can take, wherever they stand, and what a `request` may not hold."""
    where = [*path]
    asked = "request" in path
    if isinstance(value, Mapping):
        for key, held in value.items():
            if not isinstance(key, str):
                yield origin.fault([*path, str(key)], f"{key!r} is a key that is no text; write it in quotes")
            elif path and path[-1] == "request" and key in _SENT and held is not None:
                yield origin.fault([*path, key], f"cannot be changed; {_SENT[key]}")
            else:
                yield from value_faults(held, origin, [*path, key])
    elif isinstance(value, list):
        for place, held in enumerate(value):
            yield from value_faults(held, origin, [*path, place])
    elif isinstance(value, str) and (wrong := re.search("[\0\ud800-\udfff]", value)):
        yield origin.fault(where, f"{value!a:.60} has {wrong[0]!a}, which no file or server takes; leave it out")
    elif asked and where[-1] in ("max_tokens", "max_completion_tokens") and not (type(value) is int and value > 0):
        if value is not None:
            yield origin.fault(where, f"{value!r:.60} is no number of tokens; use 1 or more, or workload.max_tokens")
    elif isinstance(value, int) and abs(value) > 2**53:
        yield origin.fault(where, "is a number of more than 2^53; use a smaller one")
    elif asked and isinstance(value, float) and not math.isfinite(value):
        yield origin.fault(where, f"{value} is no number that JSON has; use another")


def schema_faults(config: Mapping[str, Any], origin: Origin) -> Iterator[str]:
    """Faults against config/schema.yaml, one sentence each."""
    schema = yaml.safe_load((ROOT / "config" / "schema.yaml").read_text(encoding="utf-8"))
    validator = Validator(schema)
    for error in sorted(validator.iter_errors(config), key=lambda e: [str(part) for part in e.absolute_path]):
        yield from _schema_sentences(error, origin)


def _schema_sentences(error: jsonschema.ValidationError, origin: Origin) -> Iterator[str]:
    path = list(error.absolute_path)
    value = json.dumps(error.instance, ensure_ascii=False, default=str)
    rule, wanted, schema = str(error.validator), cast(Any, error.validator_value), cast(Any, error.schema)
    if rule == "additionalProperties" and isinstance(error.instance, Mapping):
        known = sorted(schema.get("properties", {}))
        for key in sorted(set(error.instance) - set(known)):
            yield origin.fault([*path, key], f"is not a known key; known here: {', '.join(known)}")
        return
    if rule == "required":
        missing = [key for key in wanted if key not in cast(Any, error.instance)]
        if not error.message.startswith(repr(missing[0])):
            return  # it is told with the first
        yield origin.fault(path, f"lacks {', '.join(missing)}; add {'it' if len(missing) == 1 else 'them'}")
        return
    sentences = {
        "type": f"{value} is not {_a(wanted)}{_in_a_list(wanted, error.instance)}" if rule == "type" else "",
        "enum": f"{value} is not one of {', '.join(map(str, wanted))}" if rule == "enum" else "",
        "minimum": f"{value} is smaller than {wanted}; {_least(schema, wanted)}",
        "exclusiveMinimum": f"{value} is not greater than {wanted}",
        "maximum": f"{value} is greater than {wanted}",
        "pattern": f"{value} does not fit; {schema.get('description')}",
        "minItems": f"{value} has fewer than {wanted} entries",
        "uniqueItems": f"{value} names an entry twice",
    }
    yield origin.fault(path, sentences.get(rule, error.message))


def _a(kind: Any) -> str:
    names = {
        "integer": "an integer",
        "object": "a mapping",
        "array": "a list",
        "string": "a text",
        "number": "a number",
    }
    return " or ".join(names.get(one, f"a {one}") for one in ([kind] if isinstance(kind, str) else kind))


def _in_a_list(wanted: Any, value: Any) -> str:
    return f"; write [{json.dumps(value)}]" if wanted == "array" and isinstance(value, int | float | str) else ""


def _least(schema: Mapping[str, Any], minimum: Any) -> str:
    return "use a positive integer" if (schema.get("type"), minimum) == ("integer", 1) else f"use at least {minimum}"


def cross_faults(config: Mapping[str, Any], origin: Origin) -> Iterator[str]:
    """Faults between keys: names that lead nowhere, files that are not there, parts that do not go together."""
    runs, engines, models = config.get("runs") or {"main": {}}, config["engines"], config["models"]
    for key, engine in engines.items():
        yield from _engine_faults(["engines", key], engine, origin)
    for key, model in models.items():
        yield from _model_faults(["models", key], model, models, origin)
    for name, setting in config["settings"].items():
        yield from _setting_faults(["settings", name], setting, engines, models, runs, origin)
    yield from _evaluations_faults(config.get("evaluations"), engines, models, origin)
    for run, entry in runs.items():
        control = (entry or {}).get("control")
        own = [n for n, s in config["settings"].items() if s.get("run", next(iter(runs))) == run]
        if control and control not in own:
            yield origin.fault(["runs", run, "control"], f"{control!r} is not a setting of this run")
        yield from _workload_faults({**config["workload"], **((entry or {}).get("workload") or {})}, origin)
    reference = config.get("reference")
    cells = f"config/references/{reference}-concurrency.csv"
    if reference and not (ROOT / cells).is_file():
        yield origin.fault(["reference"], f"there is no {cells}; name another or leave it out")
    first, last = config.get("runtime", {}).get("ports", Runtime().ports)
    if first > last:
        yield origin.fault(["runtime", "ports"], f"[{first}, {last}] is no range; give the lower port first")


def _setting_faults(
    path: list[str | int],
    setting: Mapping[str, Any],
    engines: Mapping[str, Any],
    models: Mapping[str, Any],
    runs: Mapping[str, Any],
    origin: Origin,
) -> Iterator[str]:
    for field, known in (("engine", engines), ("model", models), ("run", runs)):
        if field in setting and setting[field] not in known:
            yield origin.fault([*path, field], f"{setting[field]!r} is not defined; {field}s are: {', '.join(known)}")
    adapter = ADAPTERS.get(engines.get(setting["engine"], {}).get("kind"))
    if "context" not in setting and adapter and adapter.loads_model:
        yield origin.fault(path, "lacks context (tokens a request may use); add it")


def _evaluations_faults(
    section: Mapping[str, Any] | None, engines: Mapping[str, Any], models: Mapping[str, Any], origin: Origin
) -> Iterator[str]:
    if section is None:
        return
    tasks, targets = section["tasks"], section["targets"]
    named = [("baseline",), ("under_load", "task"), *(("under_load", "targets", n) for n in range(len(targets)))]
    for path in named:
        known = tasks if path[-1] == "task" else targets
        name = _at(section, path)
        if name is not None and name not in known:
            what = "task" if known is tasks else "target"
            yield origin.fault(["evaluations", *path], f"{name!r} is not a {what}; {what}s are: {', '.join(known)}")
    for name, target in targets.items():
        place: list[str | int] = ["evaluations", "targets", name]
        yield from _setting_faults(place, target, engines, models, {}, origin)
        longest = max(task.get("max_tokens", TASKS[key].max_tokens) for key, task in tasks.items())
        if target.get("context", longest + 1) <= longest:
            room = f"{target['context']} leaves no room for a question: replies may have {longest} tokens (max_tokens)"
            yield origin.fault([*place, "context"], f"{room}; give more")
    for name, task in tasks.items():
        try:
            path_ = sets.local(TASKS[name], task.get("set", sets.FULL), ROOT)
            there = len(TASKS[name].load(path_)) if path_ else None
        except Fault as error:
            yield origin.fault(["evaluations", "tasks", name, "set"], str(error))
            continue
        if there is not None and task.get("limit", there) > there:
            path = ("evaluations", "tasks", name, "limit")
            yield origin.fault(path, f"{task['limit']} is more than the {there} questions there are; leave it out")
    for measure in section.get("margins", {}):
        if MEASURED_BY[measure] not in tasks:
            yield origin.fault(["evaluations", "margins", measure], f"needs the task {MEASURED_BY[measure]}; add it")


def _at(value: Any, path: Sequence[str | int]) -> Any:
    """What stands at a path of keys; None where nothing does."""
    for part in path:
        try:
            value = value[part]
        except (KeyError, IndexError, TypeError):
            return None
    return value


def _url_fault(url: str) -> str | None:
    try:
        Target(url=url, model="any")
    except Fault as fault:
        return str(fault).removeprefix("target.url: ")
    return None


def _engine_faults(path: list[str | int], engine: Mapping[str, Any], origin: Origin) -> Iterator[str]:
    kind, runtime = engine["kind"], engine.get("runtime")
    needs = {"venv": "environment", "binary": "binary", "container": "image"}
    if kind not in ADAPTERS:
        yield origin.fault([*path, "kind"], f"{kind!r} is not an engine; engines are: {', '.join(ADAPTERS)}")
    elif kind == "url" and "url" not in engine:
        yield origin.fault(path, "lacks url (the server's address); add it")
    elif kind == "url" and (wrong := _url_fault(engine["url"])):
        yield origin.fault([*path, "url"], wrong)
    elif ADAPTERS[kind].loads_model and runtime is None:
        yield origin.fault(path, f"lacks runtime; use one of {', '.join(needs)}")
    elif runtime and needs[runtime] not in engine:
        yield origin.fault(path, f"lacks {needs[runtime]}, which runtime {runtime} needs; add it")
    environment, image = engine.get("environment"), engine.get("image")
    if environment and not (ROOT / "envs" / f"{environment}.lock").is_file():
        yield origin.fault([*path, "environment"], f"there is no envs/{environment}.lock; make it or name another")
    if image:
        file = ROOT / "envs" / "images.yaml"
        known = (yaml.safe_load(file.read_text(encoding="utf-8")) if file.is_file() else None) or {}
        if image not in known:
            yield origin.fault([*path, "image"], f"{image!r} is not in envs/images.yaml; add it with its digest")


def _model_faults(
    path: list[str | int], model: Mapping[str, Any], models: Mapping[str, Any], origin: Origin
) -> Iterator[str]:
    source = model.get("source", "")
    if ("source" in model) == ("requantize" in model):
        yield origin.fault(path, "needs either source or requantize; give exactly one")
    elif "requantize" in model and model["requantize"]["from"] not in models:
        yield origin.fault([*path, "requantize", "from"], f"{model['requantize']['from']!r} is not a model")
    pinned = "sha256" in model or PINNED.search(source)
    if not pinned and not source.startswith(("hf://", "ollama://")):
        yield origin.fault(
            path, "lacks sha256, by which a wrong or cut file is known; add it: sha256sum FILE prints it"
        )
    elif not pinned and "unverified" not in model:
        remedy = "add sha256, end it with @<40 hex digits> (hf) or @sha256:<64> (ollama), or say why under unverified"
        yield origin.fault([*path, "source"], f"{source!r} may mean another file tomorrow; {remedy}")
    elif pinned and "unverified" in model:
        yield origin.fault([*path, "unverified"], "but something pins the file; remove one of the two")


def _workload_faults(workload: Mapping[str, Any], origin: Origin) -> Iterator[str]:
    mode = workload.get("mode", WORKLOAD_DEFAULTS["mode"])
    needs = {
        "closed": ("warmup_s", "window_s"),
        "count": ("requests",),
        "open": ("warmup_s", "window_s", "rate"),
        "conversation": ("warmup_s", "window_s", "turns"),
        "trace": ("trace",),
        "shared-prefix": ("warmup_s", "window_s", "shared_prefix_tokens"),
    }
    for key in ("prompts", "max_tokens", *needs[mode]):
        if key not in workload:
            yield origin.fault(["workload"], f"lacks {key}, which mode {mode} needs; add it")
    checks: Mapping[str, Callable[[str], object]] = {
        "prompts": partial(_read_prompts, workload),
        "trace": _read_trace,
        "think": Pause.parse,
    }
    for key, check in checks.items():
        if key in workload:
            try:
                check(workload[key])
            except Fault as error:
                yield origin.fault(["workload", key], str(error).removeprefix(f"workload.{key}: "))


def _read_prompts(workload: Mapping[str, Any], name: str) -> None:
    """Raises Fault for what the load generator could not ask."""
    path = prompts_path(name)
    if not path.is_file() and not (path / "set.yaml").is_file():
        sets = ", ".join(sorted(p.name for p in (ROOT / "config" / "prompts").iterdir() if p.is_dir()))
        raise Fault(f"{name!r} is neither a built-in set ({sets}), a folder with set.yaml nor a file; name one of them")
    prompt_sets.load(Workload(prompts=str(path), shared_prefix_tokens=workload.get("shared_prefix_tokens")), 0)


def _read_trace(name: str) -> None:
    read_trace(str(ROOT / name))
