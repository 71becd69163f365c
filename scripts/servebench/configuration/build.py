"""Build a `Plan` from YAML, or raise one error with a line for each fault before anything is fetched or started."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from servebench import ROOT
from servebench.capacity.search import Search
from servebench.configuration import reading, sections
from servebench.configuration.faults import cross_faults, schema_faults, value_faults
from servebench.configuration.files import engine_pin, prompts_digest, trace_digest
from servebench.configuration.origin import Origin, in_checkout
from servebench.configuration.overlays import without_stale
from servebench.configuration.overriding import typed
from servebench.configuration.reading import ConfigError
from servebench.configuration.sections import defaults
from servebench.configuration.shorthand import full
from servebench.configuration.workloads import workload
from servebench.load.line import Line
from servebench.load.objective import Objective
from servebench.plan import Engine, Evaluations, Model, Plan, Runtime, Setting
from servebench.tasks import TASKS, sets
from servebench.tasks.task import FULL

COMMON = ("args", "env", "request", "expect")  # keys of an engine that all its settings share


def load(config: Mapping[str, Any], files: Sequence[str | Path], overrides: Mapping[str, Any] | None = None) -> Plan:
    """Check `config` and build the plan. Raises `ConfigError`.

    `config` is the result of merging `files`, in order, and the command line's `overrides`.
    """
    overrides = overrides or {}
    origin = Origin(files, overrides)
    if origin.unreadable:
        raise ConfigError("\n".join(origin.unreadable))
    config, left_out = without_stale(config, origin.layers())
    config, faults = full(_present(typed(config, overrides)), origin)
    faults = faults or list(value_faults(config, origin)) or list(schema_faults(config, origin))
    if faults:
        raise ConfigError("\n".join(faults))
    faults = list(cross_faults(config, origin))
    if faults:
        raise ConfigError("\n".join(faults))
    config = {**defaults(sections.Configuration), **config}
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
    settings = {
        name: _setting(config, name, _measured(config, entry, runs), engines, models)
        for name, entry in config["settings"].items()
    }
    ordered = {n: s for run in runs for n, s in settings.items() if s.run == run}
    return Plan(
        experiment=config["experiment"],
        title=config.get("title", config["experiment"]),
        license=config["license"],
        files=tuple(in_checkout(file) or f"/path/to/{Path(file).name}" for file in files),
        overrides=tuple(f"{key}={_as_argument(value)}" for key, value in overrides.items()),
        left_out=tuple(left_out),
        rounds=_rounds(config)[0],
        line=msgspec.convert(config.get("line", {}), Line),
        objectives={name: _objective(entry) for name, entry in config.get("objectives", {}).items()},
        search=_search(config),
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


def _rounds(config: Mapping[str, Any]) -> tuple[int, int]:
    """Return how often everything is measured, and how often at most near a limit."""
    rounds = config["rounds"]
    if isinstance(rounds, int):
        return rounds, rounds
    both = {**defaults(sections.Rounds), **rounds}
    return both["min"], both["max"]


def _objective(entry: Mapping[str, Any]) -> Objective:
    held = ("failures_share", "min_targets")
    return Objective(
        limits={name: float(limit) for name, limit in entry.items() if name not in held},
        **{name: entry[name] for name in held if name in entry},
    )


def _search(config: Mapping[str, Any]) -> Search:
    section = {**defaults(sections.Capacity), **config.get("capacity", {})}
    rounds, most_rounds = _rounds(config)
    return Search(resolution=section["resolution"], most=section["most_users"], rounds=rounds, most_rounds=most_rounds)


def _as_argument(value: Any) -> str:
    """Format a value as snakemake --config parses it."""
    return "" if value is None else json.dumps(value) if isinstance(value, Mapping | list) else str(value)


def _measured(config: Mapping[str, Any], entry: Mapping[str, Any], runs: Mapping[str, Any]) -> dict[str, Any]:
    """Complete the entry of a setting with its run and workload."""
    run = entry.get("run", next(iter(runs)))
    load = workload(config, runs[run])
    return {
        **entry,
        "run": run,
        "users": sorted(entry["users"]),
        "processes": load.pop("processes", None),
        "workload": load,
        "prompts_sha256": prompts_digest(load["prompts"]),
        "trace_sha256": trace_digest(load.get("trace")),
    }


def _setting(
    config: Mapping[str, Any],
    name: str,
    entry: Mapping[str, Any],
    engines: Mapping[str, Engine],
    models: Mapping[str, Model],
) -> Setting:
    """Build the setting `entry` from its engine, its model, and the keys that all settings of the engine share."""
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
    section = {**defaults(sections.Evaluations), **config["evaluations"]}
    common = {"run": "evaluations", "users": [section["concurrency"]]}
    targets = {
        name: _setting(config, name, {**entry, **common}, engines, models) for name, entry in section["targets"].items()
    }
    tasks = {name: _task_set(name, entry) for name, entry in section["tasks"].items()}
    under_load = section.get("under_load")
    if under_load:
        load = workload(config)
        under_load = {
            "targets": [section["baseline"]],
            **under_load,
            "questions": min(under_load["questions"], tasks[under_load["task"]]["questions"]),
            "workload": _without(load, ("processes",)),
            "prompts_sha256": prompts_digest(load["prompts"]),
        }
    return msgspec.convert({**section, "targets": targets, "tasks": tasks, "under_load": under_load}, Evaluations)


def _task_set(name: str, entry: Mapping[str, Any]) -> dict[str, Any]:
    task, chosen = TASKS[name], entry.get("set", FULL)
    path = sets.local(task, chosen, ROOT)
    if path is not None:
        there, sha256 = len(task.load(path)), hashlib.sha256(path.read_bytes()).hexdigest()
    else:
        assert task.source  # a published set
        there, sha256 = task.source.questions, task.source.sha256
    return {
        "set": chosen,
        "sha256": sha256,
        "questions": min(there, entry.get("limit", there)),
        "max_tokens": entry.get("max_tokens", task.max_tokens),
        "request": entry.get("request", {}),
    }


def read(files: Sequence[str | Path], overrides: Mapping[str, Any] | None = None) -> Plan:
    """Merge configuration files as Snakemake does, and `load` the result.

    Later files override earlier ones key by key, and the command line's `overrides` override all files.
    """
    from snakemake.utils import update_config

    merged: dict[str, Any] = {}
    for file in files:
        update_config(merged, reading.read(file))
    update_config(merged, overrides or {})
    return load(merged, files, overrides)


def _present(value: Any) -> Any:
    """Remove the keys that an overlay set to null. In a `request` null stays: it removes a key from the body."""
    if not isinstance(value, Mapping):
        return value
    return {k: v if k == "request" else _present(v) for k, v in value.items() if v is not None}


def _without(entry: Mapping[str, Any], keys: Sequence[str]) -> dict[str, Any]:
    return {key: value for key, value in entry.items() if key not in keys}


def _with_common(engine: Mapping[str, Any], setting: Mapping[str, Any]) -> dict[str, Any]:
    """Merge the keys that an engine's settings share with this setting's own, which take precedence."""
    mappings = {key: {**engine.get(key, {}), **setting.get(key, {})} for key in ("env", "request", "expect")}
    if engine["kind"] == "simulator":  # no figures are published of a simulator
        mappings["expect"] = {}
    return {"args": [*engine.get("args", ()), *setting.get("args", ())], **mappings}
