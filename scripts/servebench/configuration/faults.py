"""Find the faults of a configuration, one sentence each."""

from __future__ import annotations

import json
import math
import re
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, cast

import jsonschema
import yaml

from servebench import ROOT
from servebench.configuration import sections
from servebench.configuration.files import prompts_path
from servebench.configuration.origin import Origin
from servebench.configuration.schema import schema
from servebench.configuration.sections import RUNTIMES, defaults
from servebench.configuration.workloads import workload
from servebench.engines import ADAPTERS, Adapter
from servebench.faults import Fault
from servebench.load import prompts as prompt_sets
from servebench.load.arrivals import Pause
from servebench.load.endpoint import Endpoint
from servebench.load.lengths import Lengths
from servebench.load.modes import MODES
from servebench.load.objective import LIMITED
from servebench.load.traces import read_trace
from servebench.load.workload import Workload
from servebench.machine.untrusted import redacted
from servebench.plan import LINE, RATES, Runtime
from servebench.tasks import MEASURES, TASKS, sets
from servebench.tasks.task import FULL

_NOT_STORED = "holds a password or token, which would be stored; take it out (keys: api_key_env, HF_TOKEN)"
# A part of a path that leads elsewhere, or would be an option of a program.
_STRAY = re.compile(r"(?:^|[/@=])(?:\.\.?(?=[/@]|\Z)|-)")
PINNED = re.compile(r"hf://.*@[0-9a-f]{40}|ollama://.*@sha256:[0-9a-f]{64}")


def _integer(checker: jsonschema.TypeChecker, value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _number(checker: jsonschema.TypeChecker, value: Any) -> bool:
    return _integer(checker, value) or (isinstance(value, float) and math.isfinite(value))


# JSON Schema accepts 4.0 as an integer, and YAML has numbers that JSON lacks (.nan, .inf).
Validator = cast(Any, jsonschema.validators).extend(
    jsonschema.Draft202012Validator,
    type_checker=jsonschema.Draft202012Validator.TYPE_CHECKER.redefine_many({"integer": _integer, "number": _number}),
)


# Keys that a `request` cannot change: servebench sends them, and its figures depend on them.
_SENT = {
    "model": "name the model under models and settings",
    "messages": "name the prompts as workload.prompts",
    "prompt": "name the prompts as workload.prompts",
    "stream": "what is measured is a stream",
    "n": "what is measured is one reply to a request",
}


def value_faults(value: Any, origin: Origin, path: Sequence[str | int] = ()) -> Iterator[str]:
    """Find keys and values that are valid nowhere, and keys that a `request` may not hold."""
    where = [*path]
    asked = "request" in path
    if isinstance(value, Mapping):
        for key, held in value.items():
            if not isinstance(key, str):
                yield origin.fault([*path, str(key)], f"{key!r} is not a string key; write it in quotes")
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
            yield origin.fault(where, f"{value!r:.60} is not a token count; use 1 or more, or workload.max_tokens")
    elif isinstance(value, int) and abs(value) > 2**53:
        yield origin.fault(where, "is a number greater than 2^53; use a smaller one")
    elif asked and isinstance(value, float) and not math.isfinite(value):
        yield origin.fault(where, f"{value} is not a JSON number; use a finite one")


def schema_faults(config: Mapping[str, Any], origin: Origin) -> Iterator[str]:
    """Find faults of single keys by the schema of the sections, one sentence each."""
    for error in sorted(Validator(schema()).iter_errors(config), key=lambda e: [str(part) for part in e.absolute_path]):
        yield from _schema_sentences(error, origin)


def _schema_sentences(error: jsonschema.ValidationError, origin: Origin) -> Iterator[str]:
    path = list(error.absolute_path)
    value = json.dumps(error.instance, ensure_ascii=False, default=str)
    rule, wanted, node = str(error.validator), cast(Any, error.validator_value), cast(Any, error.schema)
    if rule == "additionalProperties" and isinstance(error.instance, Mapping):
        known = sorted(node.get("properties", {}))
        for key in sorted(set(error.instance) - set(known)):
            yield origin.fault([*path, key], f"is not a known key; known here: {', '.join(known)}")
        return
    if rule == "type" and "enum" in node:
        return  # the error about the choices names them
    if rule == "required":
        missing = [key for key in wanted if key not in cast(Any, error.instance)]
        if not error.message.startswith(repr(missing[0])):
            return  # the first error names all of them
        yield origin.fault(path, f"lacks {', '.join(missing)}; add {'it' if len(missing) == 1 else 'them'}")
        return
    if rule == "anyOf":  # report the alternative of the value's type, or that no type fits
        inner = [each for each in error.context or () if each.validator != "type"]
        for each in inner:
            yield from _schema_sentences(each, origin)
        if inner:
            return
        rule, wanted = "type", [each.validator_value for each in error.context or ()]
    sentences = {
        "type": f"{value} is not {_a(wanted)}{_in_a_list(wanted, error.instance, node)}" if rule == "type" else "",
        "enum": f"{value} is not one of {', '.join(map(str, wanted))}" if rule == "enum" else "",
        "minimum": f"{value} is smaller than {wanted}; {_least(node, wanted)}",
        "exclusiveMinimum": f"{value} is not greater than {wanted}",
        "maximum": f"{value} is greater than {wanted}",
        "pattern": f"{value} does not fit; {node.get('errorMessage')}",
        "minItems": f"{value} has fewer than {wanted} entries",
        "minProperties": f"has fewer than {wanted} entries; add another",
        "uniqueItems": f"{value} names an entry twice",
    }
    yield origin.fault(path, sentences.get(rule, error.message))


def _a(kind: Any) -> str:
    names = {
        "integer": "an integer",
        "object": "a mapping",
        "array": "a list",
        "string": "a string",
        "number": "a number",
    }
    return " or ".join(names.get(one, f"a {one}") for one in ([kind] if isinstance(kind, str) else kind))


def _in_a_list(wanted: Any, value: Any, node: Mapping[str, Any]) -> str:
    if wanted != "array" or not isinstance(value, int | float | str):
        return ""
    words: list[Any] = [value]
    if isinstance(value, str) and node.get("items", {}).get("type") == "integer":
        words = [int(word) for word in re.findall("[0-9]+", value)] or ["…"]
    elif isinstance(value, str):
        with suppress(ValueError):  # a quote that is not closed
            words = shlex.split(value) or words
    return f"; write {json.dumps(words, ensure_ascii=False)}"


def _least(node: Mapping[str, Any], minimum: Any) -> str:
    return "use a positive integer" if (node.get("type"), minimum) == ("integer", 1) else f"use at least {minimum}"


def cross_faults(config: Mapping[str, Any], origin: Origin) -> Iterator[str]:
    """Find faults between keys: undefined names, missing files, contradictory parts."""
    runs, engines, models = config.get("runs") or {"main": {}}, config["engines"], config["models"]
    for key, engine in engines.items():
        yield from _engine_faults(["engines", key], engine, origin)
    fetched = _fetched(config)
    for key, model in models.items():
        if key in fetched or model.keys() & {"source", "requantize"}:
            yield from _model_faults(["models", key], model, models, origin)
    for name, setting in config["settings"].items():
        yield from _setting_faults(["settings", name], setting, engines, models, runs, origin)
    yield from _evaluations_faults(config.get("evaluations"), engines, models, origin)
    for name, setting in config["settings"].items():
        yield from _room_faults(["settings", name], setting, config, runs, origin)
    for run, entry in runs.items():
        control = (entry or {}).get("control")
        own = [n for n, s in config["settings"].items() if s.get("run", next(iter(runs))) == run]
        if control and control not in own:
            yield origin.fault(["runs", run, "control"], f"{control!r} is not a setting of this run")
        yield from _workload_faults(workload(config, entry), origin)
    mode = workload(config)["mode"]
    if (config.get("evaluations") or {}).get("under_load") and MODES[mode].ends_itself:
        lasting = ", ".join(name for name, way in MODES.items() if not way.ends_itself)
        problem = f"needs a load that goes on, and workload.mode {mode!r} ends by itself; use one of {lasting}"
        yield origin.fault(["evaluations", "under_load"], problem)
    yield from _unused_keys(config, runs, origin)
    yield from _objectives_faults(config, origin)
    reference = config.get("reference")
    cells = f"config/references/{reference}-concurrency.csv"
    if reference and not (ROOT / cells).is_file():
        yield origin.fault(["reference"], f"there is no {cells}; name another or leave it out")
    yield from _same_rule(config["settings"], runs, origin)
    for name in config["settings"]:
        if name.endswith(RATES) and name.removesuffix(RATES) in config["settings"]:
            problem = f"is the name under which a rate of {name.removesuffix(RATES)} is searched; choose another"
            yield origin.fault(["settings", name], problem)
    mirror = config.get("runtime", {}).get("mirror", "")
    if redacted(mirror) != mirror:
        yield origin.fault(["runtime", "mirror"], _NOT_STORED)
    first, last = config.get("runtime", {}).get("ports", Runtime().ports)
    if first > last:
        yield origin.fault(["runtime", "ports"], f"[{first}, {last}] is not a valid range; give the lower port first")


# No tokenizer has as many characters per token, on average over a prompt of prose.
_MOST_CHARS_PER_TOKEN = 8


def _room_faults(
    path: list[str | int],
    setting: Mapping[str, Any],
    config: Mapping[str, Any],
    runs: Mapping[str, Any],
    origin: Origin,
) -> Iterator[str]:
    """Find a context that cannot hold a prompt and its reply."""
    context, run = setting.get("context"), setting.get("run", next(iter(runs)))
    if context is None or run not in runs:
        return
    load = workload(config, runs[run])
    reply = load.get("reply_tokens", load.get("max_tokens"))
    prompt, about = load.get("prompt_tokens", 0), ""
    if not isinstance(prompt, int) or not isinstance(reply, int):
        return
    if not prompt and "prompts" in load and load["mode"] != "trace":
        with suppress(Fault, OSError):  # told elsewhere
            shortest = prompt_sets.load(Workload(prompts=str(prompts_path(load["prompts"]))), 0).describe()
            prompt, about = shortest["prompt_chars"]["min"] // _MOST_CHARS_PER_TOKEN, "at least "
    if context < prompt + reply:
        needs = f"prompts have {about}{prompt} tokens and replies {reply}"
        yield origin.fault([*path, "context"], f"{context} is too small: {needs}; give at least {prompt + reply}")


def _fetched(config: Mapping[str, Any]) -> set[str]:
    """Return the models whose files are needed: all but those of servers at a URL, which need a name only."""
    targets = (config.get("evaluations") or {}).get("targets", {})
    kinds = [
        (one["model"], config["engines"].get(one["engine"], {}))
        for one in (*config["settings"].values(), *targets.values())
    ]
    remote = {model for model, engine in kinds if engine.get("kind") == "url"}
    return set(config["models"]) - remote | {model for model, engine in kinds if engine.get("kind") != "url"}


def _objectives_faults(config: Mapping[str, Any], origin: Origin) -> Iterator[str]:
    for name, entry in config.get("objectives", {}).items():
        if name == LINE:
            yield origin.fault(["objectives", name], "is the name of what `line` sets; use another")
        if not set(entry) & set(LIMITED):
            yield origin.fault(["objectives", name], f"limits no figure; limit one of {', '.join(LIMITED)}")
    rounds = config.get("rounds")
    if isinstance(rounds, Mapping) and (rounds := {**defaults(sections.Rounds), **rounds})["min"] > rounds["max"]:
        yield origin.fault(["rounds"], f"min {rounds['min']} is more than max {rounds['max']}; give the smaller as min")


def _same_rule(settings: Mapping[str, Any], runs: Mapping[str, Any], origin: Origin) -> Iterator[str]:
    """Find settings whose rules, `session_RUN_SETTING`, would have the same name."""
    known: dict[str, str] = {}
    for name, setting in settings.items():
        run = setting.get("run", next(iter(runs)))
        if (other := known.setdefault(f"{run}_{name}", name)) != name:
            text = f"run {run} and setting {name} are joined to the same name as those of {other}; rename one"
            yield origin.fault(["settings", name], text)


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
    if adapter:
        engine = engines[setting["engine"]]
        yield from _contradictions(path, setting, engine, adapter, origin)
        for place, given in ((path, setting), (["engines", setting["engine"]], engine)):
            yield from _ignored([*place, "request"], given.get("request", {}), engine, adapter, origin)
            for number, word in enumerate(given.get("args", ())):
                if re.match(r"--?[a-zA-Z][\w-]*\s", word):
                    apart = ", ".join(map(json.dumps, word.split(None, 1)))
                    told = f"{json.dumps(word)} is an option and its value in one; write {apart}"
                    yield origin.fault([*place, "args", number], told)
            for name in given.get("env", {}):
                if remedy := adapter.unheard(name, engine.get("runtime")):
                    yield origin.fault([*place, "env", name], f"is not heard by {engine['kind']}; {remedy}")


def _ignored(
    path: list[str | int],
    request: Mapping[str, Any],
    engine: Mapping[str, Any],
    adapter: type[Adapter],
    origin: Origin,
) -> Iterator[str]:
    """Find keys of a request that the engine drops without a word."""
    for key in adapter.ignored:
        if request.get(key) is not None:
            yield origin.fault([*path, key], f"is ignored by {engine['kind']}; {adapter.ignored[key]}")


def _contradictions(
    path: list[str | int],
    setting: Mapping[str, Any],
    engine: Mapping[str, Any],
    adapter: type[Adapter],
    origin: Origin,
) -> Iterator[str]:
    """Find arguments and variables that set slots or context differently from the setting's own keys."""
    args = [*engine.get("args", ()), *setting.get("args", ())]
    env = {**engine.get("env", {}), **setting.get("env", {})}
    if "context" in setting and (fitting := adapter.fitting_context(setting["context"], setting["slots"], args)):
        rounded = f"{setting['context']} is rounded up by {engine['kind']}; use {fitting}"
        yield origin.fault([*path, "context"], rounded)
    for key, option in (("slots", adapter.slots), ("context", adapter.context)):
        if key not in setting:
            continue
        product = setting[key] * (setting["slots"] if option.all_slots else 1)
        if other := option.otherwise(args, env, product):
            name, given = other
            own = any(word.partition("=")[0] == name for word in (*setting.get("args", ()), *setting.get("env", {})))
            place = [*(path if own else ["engines", setting["engine"]]), *(["env", name] if name in env else ["args"])]
            asked = f"{'.'.join(map(str, path))}.{key}: {setting[key]}"
            asked += f" for each of {setting['slots']} slots, {product} in all" if option.all_slots else ""
            yield origin.fault(place, f"{name} {given} contradicts {asked}; leave {name} out, or change {key}")


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
        engine = engines.get(target["engine"], {})
        if adapter := ADAPTERS.get(engine.get("kind")):
            for key, task in tasks.items():
                where: list[str | int] = ["evaluations", "tasks", key, "request"]
                yield from _ignored(where, task.get("request", {}), engine, adapter, origin)
        longest = max(task.get("max_tokens", TASKS[key].max_tokens) for key, task in tasks.items())
        if target.get("context", longest + 1) <= longest:
            room = f"{target['context']} leaves no room for a question: replies may have {longest} tokens (max_tokens)"
            yield origin.fault([*place, "context"], f"{room}; give more")
    for name, task in tasks.items():
        try:
            path_ = sets.local(TASKS[name], task.get("set", FULL), ROOT)
            there = len(TASKS[name].load(path_)) if path_ else None
        except (Fault, OSError) as error:
            yield origin.fault(["evaluations", "tasks", name, "set"], _said(error))
            continue
        if there is not None and task.get("limit", there) > there:
            path = ("evaluations", "tasks", name, "limit")
            yield origin.fault(path, f"{task['limit']} is more than the {there} questions of the set; leave it out")
    for measure in MEASURES:
        if measure.name in section.get("margins", {}) and measure.task not in tasks:
            yield origin.fault(["evaluations", "margins", measure.name], f"needs the task {measure.task}; add it")


def _at(value: Any, path: Sequence[str | int]) -> Any:
    """Return the value at a path of keys, or None."""
    for part in path:
        try:
            value = value[part]
        except (KeyError, IndexError, TypeError):
            return None
    return value


def _url_fault(url: str) -> str | None:
    try:
        Endpoint(url=url, model="any")
    except Fault as fault:
        return str(fault).removeprefix("endpoint.url: ")
    return _NOT_STORED if redacted(url) != url else None


def _engine_faults(path: list[str | int], engine: Mapping[str, Any], origin: Origin) -> Iterator[str]:
    kind, runtime = engine["kind"], engine.get("runtime")
    if kind not in ADAPTERS:
        yield origin.fault([*path, "kind"], f"{kind!r} is not an engine; engines are: {', '.join(ADAPTERS)}")
    elif kind == "url" and "url" not in engine:
        yield origin.fault(path, "lacks url (the server's address); add it")
    elif kind == "url" and (wrong := _url_fault(engine["url"])):
        yield origin.fault([*path, "url"], wrong)
    elif ADAPTERS[kind].loads_model and runtime is None:
        yield origin.fault(path, f"lacks runtime; use one of {', '.join(RUNTIMES)}")
    elif runtime and RUNTIMES[runtime] not in engine:
        yield origin.fault(path, f"lacks {RUNTIMES[runtime]}, which runtime {runtime} needs; add it")
    if kind in ADAPTERS:
        known = ADAPTERS[kind].option_names(runtime)
        for name in engine.get("options", {}):
            if name not in known:
                yield origin.fault([*path, "options", name], f"is not an option of {kind}; known: {', '.join(known)}")
    environment, image = engine.get("environment"), engine.get("image")
    if environment and not (ROOT / "envs" / f"{environment}.lock").is_file():
        yield origin.fault([*path, "environment"], f"there is no envs/{environment}.lock; make it or name another")
    if image:
        file = ROOT / "envs" / "images.yaml"
        images = (yaml.safe_load(file.read_text(encoding="utf-8")) if file.is_file() else None) or {}
        if image not in images:
            yield origin.fault([*path, "image"], f"{image!r} is not in envs/images.yaml; add it with its digest")


def _model_faults(
    path: list[str | int], model: Mapping[str, Any], models: Mapping[str, Any], origin: Origin
) -> Iterator[str]:
    source = model.get("source", "")
    if redacted(source) != source:
        yield origin.fault([*path, "source"], _NOT_STORED)
    elif not source.startswith("file://") and _STRAY.search(source.partition("://")[2]):
        yield origin.fault([*path, "source"], f"{source!r:.200} leads elsewhere; name it without .. and leading -")
    if ("source" in model) == ("requantize" in model):
        yield origin.fault(path, "needs either source or requantize; give exactly one")
    elif "requantize" in model and model["requantize"]["from"] not in models:
        yield origin.fault([*path, "requantize", "from"], f"{model['requantize']['from']!r} is not a model")
    pinned = "sha256" in model or PINNED.fullmatch(source)
    if not pinned and not source.startswith(("hf://", "ollama://")):
        yield origin.fault(path, "lacks sha256, which tells a wrong or cut file; add it: sha256sum FILE prints it")
    elif not pinned and "unverified" not in model:
        remedy = "add sha256, end it with @<40 hex digits> (hf) or @sha256:<64> (ollama), or say why under unverified"
        yield origin.fault([*path, "source"], f"{source!r} may be another file tomorrow; {remedy}")
    elif pinned and "unverified" in model:
        yield origin.fault([*path, "unverified"], "but sha256 or the source pins the file; remove one of the two")


def _unused_keys(config: Mapping[str, Any], runs: Mapping[str, Any], origin: Origin) -> Iterator[str]:
    """Find keys of a workload that no mode in force has a use for."""
    modes = {run: workload(config, entry)["mode"] for run, entry in runs.items()}
    given = [(["workload"], config["workload"], set(modes.values()))]
    for run, entry in runs.items():
        given.append((["runs", run, "workload"], (entry or {}).get("workload") or {}, {modes[run]}))
    for path, load, used in given:
        for key in load:
            if all(key in MODES[mode].ignores for mode in used):
                yield origin.fault([*path, key], f"has no use in mode {' or '.join(sorted(used))}; leave it out")


def _workload_faults(load: Mapping[str, Any], origin: Origin) -> Iterator[str]:
    """Find the faults of a run's workload, as `workloads.workload` returns it."""
    mode = load["mode"]
    way = MODES[mode]
    limit = "max_tokens" if "reply_tokens" not in load else None
    for key in ("prompts", limit, *(() if way.ends_itself else ("warmup_s", "window_s")), way.needs):
        if key and key not in load:
            yield origin.fault(["workload"], f"lacks {key}, which mode {mode} needs; add it")
    checks: Mapping[str, Callable[[str], object]] = {
        "prompts": partial(_read_prompts, load),
        "prompt_tokens": partial(Lengths.parse, ""),
        "reply_tokens": partial(Lengths.parse, ""),
        "trace": partial(_read_trace, load),
        "think": Pause.parse,
    }
    for key, check in checks.items():
        if key in load:
            try:
                check(load[key])
            except (Fault, OSError) as error:
                said = _said(error).removeprefix(f"workload.{key}: ").removeprefix(": ")
                yield origin.fault(["workload", *_PLACES.get(key, (key,))], said)
    if "reply_tokens" in load and "max_tokens" in load:
        yield origin.fault(["workload", "max_tokens"], "contradicts reply_tokens; leave out one of the two")


# Where a configuration has the load generator's keys that it names differently.
_PLACES = {"prompt_tokens": ("prompts", "tokens")}


def _said(error: Exception) -> str:
    """Return a fault's text, or what the system says of a file that cannot be read."""
    return f"{error.strerror}; name a file that can be read" if isinstance(error, OSError) else str(error)


def _read_prompts(load: Mapping[str, Any], name: str) -> None:
    """Raise Fault for prompts that the load generator cannot send."""
    path = prompts_path(name)
    if not path.is_file() and not (path / "set.yaml").is_file():
        sets = ", ".join(sorted(p.name for p in (ROOT / "config" / "prompts").iterdir() if p.is_dir()))
        raise Fault(f"{name!r} is neither a built-in set ({sets}), a folder with set.yaml nor a file; name one of them")
    prompt_sets.load(Workload(prompts=str(path), shared_prefix_tokens=load.get("shared_prefix_tokens")), 0)


def _read_trace(load: Mapping[str, Any], name: str) -> None:
    read_trace(str(ROOT / name), load.get("trace_speed", 1.0), load.get("trace_first_s"))
