"""The typed experiment: engines, models, settings and runs in order, and the digests that decide what is measured again.

`load` turns a configuration (already merged by Snakemake) into a `Plan`, or raises `ConfigError` with messages that
name file, key, value and remedy. A `Slice` is everything that determines one session's measurements and nothing else;
its canonical JSON is the parameter Snakemake tracks.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import jsonschema
import msgspec
import yaml

from servebench.load import PROTOCOL

ROOT = Path(__file__).resolve().parents[2]
KINDS = ("llama-server", "ollama", "vllm", "sglang", "url", "simulator")
WORKLOAD_DEFAULTS: Mapping[str, Any] = {
    "mode": "closed",
    "temperature": 0,
    "top_p": 1.0,
    "seed": 0,
    "timeout_s": 120,
}


class ConfigError(ValueError):
    """A configuration that cannot be run. Its text has one line per fault: file: key: value: remedy."""


class Struct(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Base of the plan's records: immutable, built from and turned into plain JSON values."""


class Line(Struct):
    """The objective a number of users must meet in a round (experiment.md, "the line")."""

    ttft_p95_s: float = 2.0
    user_tok_s: float = 10.0
    min_targets: int = 20


class Model(Struct):
    """One model file or snapshot. Identified by `sha256`, or by the revision or digest inside `source`."""

    key: str
    name: str
    source: str | None = None
    requantize: dict[str, str] | None = None
    sha256: str | None = None
    size_bytes: int | None = None
    quantization: str | None = None
    note: str | dict[str, str] | None = None


class Engine(Struct):
    """One engine build: its kind (a module of servebench.engines), how it is run, and what pins its version."""

    key: str
    kind: str
    runtime: str | None = None
    environment: str | None = None
    image: str | None = None
    binary: str | None = None
    url: str | None = None
    api_key_env: str | None = None
    options: dict[str, Any] = {}
    pin: str | None = None  # sha256 of the environment's lock file, or the image digest


class Setting(Struct):
    """One engine + one model file + one set of launch arguments, and the numbers of users it is measured with."""

    name: str
    run: str
    engine: Engine
    model: Model
    slots: int
    context: int | None = None  # tokens per slot
    args: tuple[str, ...] = ()
    env: dict[str, str] = {}
    request: dict[str, Any] = {}  # merged into every request body
    users: tuple[int, ...]
    workload: dict[str, Any]
    note: str | dict[str, str] | None = None


class Runtime(Struct):
    """How things are run, never what is measured; changing it measures nothing again."""

    ready_timeout_s: float = 600.0
    stop_timeout_s: float = 30.0
    ports: tuple[int, int] = (20000, 29999)
    cache: str | None = None
    device: str | None = None
    mirror: str | None = None
    beyond_calibration: str = "refuse"


class Session(Struct):
    """One (run, setting, round): the engine is started once and every number of users measured in ascending order."""

    experiment: str
    round: int
    rank: int  # place of the setting in its experiment, from 0
    setting: Setting


class Plan(Struct):
    """A whole experiment."""

    experiment: str
    title: str | dict[str, str]
    rounds: int
    line: Line
    models: dict[str, Model]
    engines: dict[str, Engine]
    settings: dict[str, Setting]
    runs: dict[str, dict[str, Any]]
    charts: dict[str, Any]
    runtime: Runtime

    def sessions(self) -> Iterator[Session]:
        """All sessions in the order they are run: round 1 of everything, then round 2."""
        for round_ in range(1, self.rounds + 1):
            for rank, setting in enumerate(self.settings.values()):
                yield Session(experiment=self.experiment, round=round_, rank=rank, setting=setting)

    @property
    def measurements(self) -> int:
        """Number of measurements: settings × users × rounds."""
        return self.rounds * sum(len(setting.users) for setting in self.settings.values())


def canonical(value: Any) -> str:
    """JSON text that is equal exactly when the value is equal, whatever the order of its keys."""
    return json.dumps(msgspec.to_builtins(value), sort_keys=True, ensure_ascii=False, separators=(",", ":"))


def digest(value: Any) -> str:
    """First 20 hex digits of the SHA-256 of `canonical(value)`."""
    return hashlib.sha256(canonical(value).encode()).hexdigest()[:20]


def model_identity(model: Model, models: Mapping[str, Model]) -> dict[str, Any]:
    """What makes a model the same model: its hash, or the pinned source; where it is fetched from does not count."""
    if model.requantize:
        source = model_identity(models[model.requantize["from"]], models)
        return {"from": source, "to": model.requantize["to"], "sha256": model.sha256}
    if model.sha256:
        return {"sha256": model.sha256}
    return {"source": model.source}


def session_slice(plan: Plan, setting: Setting) -> str:
    """The parameter Snakemake tracks for a setting's sessions: everything that determines what is measured.

    Two slices are equal exactly when their sessions would measure the same thing. Fetch locations, ports, time-outs of
    the runtime, notes and the line are absent on purpose.
    """
    entry = msgspec.to_builtins(setting)
    entry.pop("note")
    entry["model"] = {
        "key": setting.model.key,
        "name": setting.model.name,
        "quantization": setting.model.quantization,
        "identity": model_identity(setting.model, plan.models),
    }
    # A path or a URL says where an engine is, not which engine it is; for a URL it is all there is.
    entry["engine"] = {k: v for k, v in entry["engine"].items() if k != "binary"}
    return canonical({"experiment": plan.experiment, "protocol": PROTOCOL, "setting": entry})


def measurement_digest(slice_: str, users: int, round_: int) -> str:
    """Name of a measurement in the store: the slice without its list of users, and this number of users and round."""
    content = json.loads(slice_)
    del content["setting"]["users"]
    return digest({**content, "users": users, "round": round_})


def load(config: Mapping[str, Any], files: Sequence[str | Path]) -> Plan:
    """Check `config` (as merged from `files`, in order) and build the plan; raises `ConfigError`."""
    origin = Origin(files)
    faults = list(schema_faults(config, origin))
    if faults:
        raise ConfigError("\n".join(faults))
    faults = list(cross_faults(config, origin))
    if faults:
        raise ConfigError("\n".join(faults))
    models = {
        key: msgspec.convert({"key": key, "name": key, **entry}, Model)
        for key, entry in config["models"].items()
    }
    engines = {
        key: msgspec.convert({"key": key, "pin": engine_pin(entry), **entry}, Engine)
        for key, entry in config["engines"].items()
    }
    runs: dict[str, dict[str, Any]] = {
        name: dict(entry or {}) for name, entry in (config.get("runs") or {"main": {}}).items()
    }
    settings = {}
    for name, entry in config["settings"].items():
        run = entry.get("run", next(iter(runs)))
        workload = {**WORKLOAD_DEFAULTS, **config["workload"], **(runs[run].get("workload") or {})}
        workload["prompts_sha256"] = prompts_digest(workload["prompts"])
        settings[name] = msgspec.convert(
            {
                **entry,
                "name": name,
                "run": run,
                "engine": engines[entry["engine"]],
                "model": models[entry["model"]],
                "users": sorted(entry["users"]),
                "workload": workload,
            },
            Setting,
        )
    ordered = {n: s for run in runs for n, s in settings.items() if s.run == run}
    return Plan(
        experiment=config["experiment"],
        title=config.get("title", config["experiment"]),
        rounds=config.get("rounds", 2),
        line=msgspec.convert(config.get("line", {}), Line),
        models=models,
        engines=engines,
        settings=ordered,
        runs=runs,
        charts=dict(config.get("charts", {})),
        runtime=msgspec.convert(config.get("runtime", {}), Runtime),
    )


def read(files: Sequence[str | Path]) -> Plan:
    """Read configuration files as Snakemake merges them (later over earlier, mapping by mapping) and `load` the result."""
    merged: dict[str, Any] = {}
    for file in files:
        try:
            content = yaml.safe_load(Path(file).read_text(encoding="utf-8"))
        except OSError as error:
            raise ConfigError(
                f"{file}: cannot be read: {error.strerror}; name a file under config/"
            ) from error
        except yaml.YAMLError as error:
            raise ConfigError(f"{file}: is not valid YAML: {error}") from error
        _merge(merged, content or {})
    return load(merged, files)


def _merge(into: dict[str, Any], new: Mapping[str, Any]) -> None:
    for key, value in new.items():
        if isinstance(value, Mapping) and isinstance(into.get(key), dict):
            _merge(into[key], value)
        else:
            into[key] = dict(value) if isinstance(value, Mapping) else value


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


class Origin:
    """Which of the merged configuration files a key came from, so that an error can name the right one."""

    def __init__(self, files: Sequence[str | Path]) -> None:
        self.files = [str(file) for file in files] or ["config"]

    def of(self, path: Sequence[str | int]) -> str:
        """The last file that sets `path`, or the last file when none does (a missing key)."""
        for file in reversed(self.files):
            try:
                value: Any = yaml.safe_load(Path(file).read_text(encoding="utf-8"))
                for part in path:
                    value = value[part]
            except (OSError, KeyError, IndexError, TypeError, yaml.YAMLError):
                continue
            return file
        return self.files[-1]

    def fault(self, path: Sequence[str | int], text: str) -> str:
        """`file: dotted.key: text`."""
        where = ".".join(str(part) for part in path)
        file = Path(self.of(path))
        name = file.relative_to(ROOT) if file.is_absolute() and file.is_relative_to(ROOT) else file
        return f"{name}: {where}: {text}" if where else f"{name}: {text}"


def schema_faults(config: Mapping[str, Any], origin: Origin) -> Iterator[str]:
    """Faults against config/schema.yaml, one sentence each."""
    schema = yaml.safe_load((ROOT / "config" / "schema.yaml").read_text(encoding="utf-8"))
    validator = jsonschema.Draft202012Validator(schema)
    for error in sorted(validator.iter_errors(config), key=lambda e: [str(part) for part in e.absolute_path]):
        yield from _schema_sentences(error, origin)


def _schema_sentences(error: jsonschema.ValidationError, origin: Origin) -> Iterator[str]:
    path = list(error.absolute_path)
    value = json.dumps(error.instance, ensure_ascii=False, default=str)
    rule, wanted = error.validator, error.validator_value
    if rule == "additionalProperties" and isinstance(error.instance, Mapping):
        known = sorted(error.schema.get("properties", {}))
        for key in sorted(set(error.instance) - set(known)):
            yield origin.fault([*path, key], f"is not a known key; known here: {', '.join(known)}")
        return
    if rule == "required":
        missing = [key for key in wanted if key not in error.instance]
        yield origin.fault(path, f"lacks {', '.join(missing)}; add {'it' if len(missing) == 1 else 'them'}")
        return
    sentences = {
        "type": f"{value} is not {_a(wanted)}",
        "enum": f"{value} is not one of {', '.join(map(str, wanted))}" if rule == "enum" else "",
        "minimum": f"{value} is smaller than {wanted}; {_least(error.schema, wanted)}",
        "exclusiveMinimum": f"{value} is not greater than {wanted}",
        "maximum": f"{value} is greater than {wanted}",
        "pattern": f"{value} does not fit the pattern {wanted}",
        "minItems": f"{value} has fewer than {wanted} entries",
        "uniqueItems": f"{value} names an entry twice",
    }
    yield origin.fault(path, sentences.get(str(rule), error.message))


def _a(kind: Any) -> str:
    names = {
        "integer": "an integer",
        "object": "a mapping",
        "array": "a list",
        "string": "a text",
        "number": "a number",
    }
    return names.get(kind, f"of type {kind}")


def _least(schema: Mapping[str, Any], minimum: Any) -> str:
    return (
        "use a positive integer"
        if (schema.get("type"), minimum) == ("integer", 1)
        else f"use at least {minimum}"
    )


def cross_faults(config: Mapping[str, Any], origin: Origin) -> Iterator[str]:
    """Faults between keys: names that lead nowhere, files that are not there, parts that do not go together."""
    runs, engines, models = config.get("runs") or {"main": {}}, config["engines"], config["models"]
    for key, engine in engines.items():
        yield from _engine_faults(["engines", key], engine, origin)
    for key, model in models.items():
        yield from _model_faults(["models", key], model, models, origin)
    for name, setting in config["settings"].items():
        path = ["settings", name]
        for field, known in (("engine", engines), ("model", models), ("run", runs)):
            if field in setting and setting[field] not in known:
                yield origin.fault(
                    [*path, field], f"{setting[field]!r} is not defined; {field}s are: {', '.join(known)}"
                )
        engine = engines.get(setting["engine"], {})
        if "context" not in setting and engine.get("kind") in ("llama-server", "ollama", "vllm"):
            yield origin.fault(path, "lacks context (tokens a request may use); add it")
    for run, entry in runs.items():
        control = (entry or {}).get("control")
        if control and control not in config["settings"]:
            yield origin.fault(["runs", run, "control"], f"{control!r} is not a setting")
        yield from _workload_faults({**config["workload"], **((entry or {}).get("workload") or {})}, origin)


def _engine_faults(path: list[str | int], engine: Mapping[str, Any], origin: Origin) -> Iterator[str]:
    kind, runtime = engine["kind"], engine.get("runtime")
    needs = {"venv": "environment", "binary": "binary", "container": "image"}
    if kind not in KINDS:
        yield origin.fault([*path, "kind"], f"{kind!r} is not an engine; engines are: {', '.join(KINDS)}")
    elif kind == "url" and "url" not in engine:
        yield origin.fault(path, "lacks url (the server's address); add it")
    elif kind not in ("url", "simulator") and runtime is None:
        yield origin.fault(path, f"lacks runtime; use one of {', '.join(needs)}")
    elif runtime and needs[runtime] not in engine:
        yield origin.fault(path, f"lacks {needs[runtime]}, which runtime {runtime} needs; add it")
    environment, image = engine.get("environment"), engine.get("image")
    if environment and not (ROOT / "envs" / f"{environment}.lock").is_file():
        yield origin.fault(
            [*path, "environment"], f"there is no envs/{environment}.lock; make it or name another"
        )
    if image:
        file = ROOT / "envs" / "images.yaml"
        known = (yaml.safe_load(file.read_text(encoding="utf-8")) if file.is_file() else None) or {}
        if image not in known:
            yield origin.fault(
                [*path, "image"], f"{image!r} is not in envs/images.yaml; add it with its digest"
            )


def _model_faults(
    path: list[str | int], model: Mapping[str, Any], models: Mapping[str, Any], origin: Origin
) -> Iterator[str]:
    source = model.get("source", "")
    if ("source" in model) == ("requantize" in model):
        yield origin.fault(path, "needs either source or requantize; give exactly one")
    elif "requantize" in model and model["requantize"]["from"] not in models:
        yield origin.fault([*path, "requantize", "from"], f"{model['requantize']['from']!r} is not a model")
    if "sha256" not in model and not source.startswith(("hf://", "ollama://")):
        yield origin.fault(path, "lacks sha256, by which a wrong or cut file is known; add it")
    if source.startswith("hf://") and "sha256" not in model and "@" not in source:
        yield origin.fault(
            [*path, "source"], f"{source!r} names no revision; end it with @<commit>, or add sha256"
        )


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
    if "prompts" in workload and not prompts_path(workload["prompts"]).exists():
        sets = sorted(p.name for p in (ROOT / "config" / "prompts").iterdir() if p.is_dir())
        yield origin.fault(
            ["workload", "prompts"],
            f"{workload['prompts']!r} is neither a built-in set ({', '.join(sets)}) nor a file",
        )
