"""Write out in full what a configuration says briefly: a matrix of settings, a server that is already running."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from copy import deepcopy
from itertools import product
from typing import Any

from servebench.configuration.origin import Origin
from servebench.engines.url import SERVED
from servebench.load.line import Line
from servebench.load.workload import Workload

_LOAD = Workload()
# How a server is loaded whose configuration has no `workload`: as `servebench load` does unless told otherwise.
_WORKLOAD = {
    "prompts": _LOAD.prompts,
    "max_tokens": _LOAD.max_tokens,
    "warmup_s": _LOAD.warmup_s,
    "window_s": _LOAD.window_s,
    "min_targets": Line().min_targets,
}
_OWN = ("matrix", "include", "exclude")
Combination = dict[str, Any]


def full(config: Mapping[str, Any], origin: Origin) -> tuple[dict[str, Any], list[str]]:
    """Return the configuration in full, and the faults of its matrices, one sentence each.

    What has not the form of a section stays as it is, for the schema to refuse.
    """
    written, faults = deepcopy(dict(config)), []
    runs = written.get("runs") or {}
    if not all(isinstance(part, dict) for part in (written.get("settings"), written.get("engines"), runs)):
        return written, []
    if not all(isinstance(name, str) and isinstance(run, dict | None) for name, run in runs.items()):
        return written, []
    faults = list(_matrices(written, origin))
    for setting in written["settings"].values():
        if isinstance(setting, dict):
            _at_url(written, setting)
    settings = list(written["settings"].values())
    if "workload" not in written and settings and all(_is_at_url(written, setting) for setting in settings):
        written["workload"] = dict(_WORKLOAD)
    return written, faults


def _is_at_url(config: Mapping[str, Any], setting: Any) -> bool:
    name = setting.get("engine") if isinstance(setting, Mapping) else None
    engine = config["engines"].get(name) if isinstance(name, str) else None
    return isinstance(engine, Mapping) and engine.get("kind") == "url"


def _at_url(config: dict[str, Any], setting: dict[str, Any]) -> None:
    """Complete a setting of a server at a URL: any name of a model is one, and its slots are not known."""
    models = config.setdefault("models", {}) if _is_at_url(config, setting) else None
    if not isinstance(models, dict):
        return
    name = setting.setdefault("model", SERVED)
    if isinstance(name, str) and name not in models:
        key = slug(name) or SERVED
        models.setdefault(key, {"name": name})
        setting["model"] = key
    users = setting.get("users")
    if "slots" not in setting and isinstance(users, list) and users and all(type(count) is int for count in users):
        setting["slots"] = max(users)
        said = config.setdefault("unverified", [])
        told = f"engines.{setting['engine']}: how many requests it works on at once is not known"
        told += f"; slots are taken as {max(users)}, the most users"
        if isinstance(said, list) and told not in said:
            said.append(told)


def _matrices(config: dict[str, Any], origin: Origin) -> Iterator[str]:
    """Replace each setting that has a matrix by one setting for each combination; yield faults."""
    settings: dict[str, Any] = {}
    runs = config.get("runs") or {"main": {}}
    left: set[str] = set()  # runs whose settings have moved to runs of their own
    for name, setting in config["settings"].items():
        if not isinstance(name, str) or not isinstance(setting, dict) or not set(_OWN) & setting.keys():
            settings[name] = setting
            continue
        path: list[str | int] = ["settings", name]
        problems = list(_form_faults(path, setting, origin))
        if problems:
            yield from problems
            continue
        base = {key: value for key, value in setting.items() if key not in _OWN}
        for combination in combinations(*(setting.get(key) for key in _OWN)):
            found, load = deepcopy(base), {}
            for key, value in combination.items():
                if key.startswith("workload."):
                    load[key.removeprefix("workload.")] = value
                elif key == "quantization":
                    yield from _model_of(path, config, value, found, origin)
                elif value is None:
                    found.pop(key, None)
                else:
                    _put(found, key, value)
            if load:
                run = found.get("run", next(iter(runs)))
                left.add(run)
                found["run"] = _run(runs, run, load)
            keys = setting.get("matrix", {})
            naming = keys if set(keys) <= combination.keys() else combination
            own = "-".join([name, *(slug(combination[key]) for key in naming)])
            if own in settings:
                yield origin.fault([*path, "matrix"], f"makes two settings named {own}; take one of their values out")
            settings[own] = found
    config["settings"] = settings
    if left:
        named = [setting.get("run", next(iter(runs))) for setting in settings.values() if isinstance(setting, dict)]
        used = {run for run in named if isinstance(run, str)}
        config["runs"] = {run: entry for run, entry in runs.items() if run in used or run not in left}


def combinations(
    matrix: Mapping[str, Sequence[Any]] | None,
    include: Sequence[Combination] | None,
    exclude: Sequence[Combination] | None,
) -> list[Combination]:
    """Return the combinations of a matrix, as people know it from CI.

    `exclude` takes away each combination that has all of an entry's values. An entry of `include` is added to every
    combination whose matrix values it does not change, else it is a combination of its own.
    """
    matrix = matrix or {}
    made = [dict(zip(matrix, values, strict=True)) for values in product(*matrix.values())] if matrix else []
    kept = [one for one in made if not any(_within(more, one) for more in exclude or ())]
    extra: list[Combination] = []
    for more in include or ():
        shared = {key: value for key, value in more.items() if key in matrix}
        fitting = [one for one in kept if _within(shared, one)]
        if len(shared) < len(more) and fitting:
            for one in fitting:
                one |= more
        else:
            extra.append(dict(more))
    return kept + extra


def _within(part: Combination, whole: Combination) -> bool:
    return all(key in whole and whole[key] == value for key, value in part.items())


def slug(value: Any) -> str:
    """Return a value as a part of a setting's name: letters, digits and . _ only; words of a list joined by -."""
    words = [str(word) for word in value] if isinstance(value, list) else [str(value)]
    text = "-".join(words).lower() if value is not None else "none"
    return re.sub(r"[^a-z0-9._]+", "-", text).strip("-._") or "none"


def _form_faults(path: list[str | int], setting: Mapping[str, Any], origin: Origin) -> Iterator[str]:
    if not isinstance(run := setting.get("run", ""), str):
        yield origin.fault([*path, "run"], f"{run!r:.60} is not the name of a run")
    matrix = setting.get("matrix", {})
    if not isinstance(matrix, Mapping):
        yield origin.fault([*path, "matrix"], "is not a mapping of keys to lists; write {slots: [1, 4]}")
        return
    yield from _key_faults([*path, "matrix"], matrix, origin)
    for key, values in matrix.items():
        if values == []:
            yield origin.fault([*path, "matrix", key], "is empty; give at least one value, or leave the key out")
        elif not isinstance(values, list):
            yield origin.fault([*path, "matrix", key], f"{values!r:.60} is not a list of values; write [{values}]")
    for part in ("include", "exclude"):
        entries = setting.get(part, [])
        if not isinstance(entries, list) or not all(isinstance(entry, Mapping) and entry for entry in entries):
            yield origin.fault([*path, part], "is not a list of mappings; write [{slots: 4}]")
            continue
        yield from _key_faults([*path, part], [key for entry in entries for key in entry], origin)


def _key_faults(path: list[str | int], keys: Iterable[Any], origin: Origin) -> Iterator[str]:
    for key in keys:
        if not isinstance(key, str):
            yield origin.fault(path, f"{key!r:.60} is not the name of a key; write a word, such as slots")


def _model_of(
    path: list[str | int], config: Mapping[str, Any], quantization: Any, setting: dict[str, Any], origin: Origin
) -> Iterator[str]:
    """Set the setting's model to the only one of this quantization."""
    models = config.get("models")
    held = {k: m for k, m in models.items() if isinstance(m, Mapping)} if isinstance(models, Mapping) else {}
    fitting = [key for key, model in held.items() if model.get("quantization") == quantization]
    if len(fitting) == 1:
        setting["model"] = fitting[0]
    else:
        told = f"{len(fitting)} models have" if fitting else "no model has"
        yield origin.fault(
            [*path, "matrix", "quantization"], f"{told} the quantization {quantization}; name models by `model`"
        )


def _put(entry: dict[str, Any], key: str, value: Any) -> None:
    """Set a key, or the dotted key of a mapping inside: `request.temperature`."""
    *places, last = key.split(".")
    for place in places:
        inner = entry.get(place)
        entry[place] = inner if isinstance(inner, dict) else {}
        entry = entry[place]
    entry[last] = value


def _run(runs: dict[str, Any], base: str, load: Mapping[str, Any]) -> str:
    """Return the run with this workload, made from the run `base` unless it is there."""
    name = "-".join([base, *map(slug, load.values())])
    if name not in runs:
        entry = deepcopy(dict(runs.get(base) or {}))
        workload = entry.setdefault("workload", {})
        for key, value in load.items():
            _put(workload, key, value)
        entry["title"] = ", ".join(f"{key} {value}" for key, value in load.items())
        entry.pop("control", None)
        runs[name] = entry
    return name
