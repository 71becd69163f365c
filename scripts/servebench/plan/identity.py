"""Make the specs that determine measurements and answers, and the digests that name them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

import msgspec

from servebench.plan.types import ALONE, LOADED, Engine, Model, Plan, Session, Setting
from servebench.versions import PROMPTS, PROTOCOL


def named(target: str, condition: str, under_load: Mapping[str, Any] | None) -> str:
    """Return a target's name in the tables: under a condition, its name with the condition."""
    if not condition:
        return target
    assert under_load
    return f"{target} (idle)" if condition == ALONE else f"{target} ({under_load['users']} users)"


def canonical(value: Any) -> str:
    """Return JSON text that is equal exactly when the value is equal, whatever the order of its keys."""
    return json.dumps(msgspec.to_builtins(value), sort_keys=True, ensure_ascii=False, separators=(",", ":"))


def digest(value: Any) -> str:
    """Return the first 20 hex digits of the SHA-256 of `canonical(value)`."""
    return hashlib.sha256(canonical(value).encode()).hexdigest()[:20]


def model_identity(model: Model, models: Mapping[str, Model]) -> dict[str, Any]:
    """Return what identifies a model: its hash, or its pinned source; the address it is fetched from does not count."""
    if model.requantize:
        source = model_identity(models[model.requantize["from"]], models)
        return {"from": source, "to": model.requantize["to"], "sha256": model.sha256}
    if model.sha256:
        return {"sha256": model.sha256}
    return {"source": model.source}


def session_spec(plan: Plan, setting: Setting, protocol: int = PROTOCOL) -> str:
    """Make the spec of a setting's sessions, which Snakemake tracks: everything that determines what is measured.

    Two specs are equal exactly when their sessions would measure the same. Deliberately absent: fetch locations, the
    whole runtime, notes, expected facts, the line, and unset keys.
    """
    return canonical({"experiment": plan.experiment, "protocol": protocol, "setting": _determining(plan, setting)})


def search_spec(plan: Plan, setting: Setting) -> str:
    """Make the spec of a setting's search for its capacity: that of its sessions, for no number of users yet."""
    return session_spec(plan, msgspec.structs.replace(setting, users=()))


def _determining(plan: Plan, setting: Setting) -> dict[str, Any]:
    """Select the parts of a setting that determine its measurements."""
    free = ("note", "expect")
    entry: dict[str, Any] = {k: v for k, v in msgspec.to_builtins(setting).items() if v is not None and k not in free}
    entry["model"] = {
        "key": setting.model.key,
        "name": setting.model.name,
        "quantization": setting.model.quantization,
        "identity": model_identity(setting.model, plan.models),
    }
    # A path or URL says where an engine is, not which engine; only a `url` engine has nothing else to identify it.
    entry["engine"] = {k: v for k, v in entry["engine"].items() if k != "binary"}
    return entry


def session_from_spec(
    spec: str, round_: int, rank: int, models: Mapping[str, Model], engines: Mapping[str, Engine]
) -> Session:
    """Build the session that a spec describes.

    A spec says which model and which engine, not where they are: their places come from `models` and `engines` as
    configured.
    """
    content = json.loads(spec)
    for kind, configured in (("model", models), ("engine", engines)):
        content["setting"][kind] = configured[content["setting"][kind]["key"]]
    setting = msgspec.convert(content["setting"], Setting)
    return Session(experiment=content["experiment"], round=round_, rank=rank, setting=setting)


# Workload keys that say how the load is measured, not what it sends.
_ONLY_MEASURED = ("window_s", "min_targets", "keep_text", "tokenizer")


def target_spec(plan: Plan, name: str) -> str:
    """Make the spec of a target's evaluation, which Snakemake tracks: everything that determines what it is asked.

    Deliberately absent, beside what a session's spec leaves out: baseline and margins, which only tables need.
    """
    asked = plan.evaluations
    assert asked
    under_load = asked.under_load if asked.under_load and name in asked.under_load.targets else None
    content = {
        "experiment": plan.experiment,
        "prompts": PROMPTS,
        "setting": _determining(plan, asked.targets[name]),
        "repeats": asked.repeats,
        "seed": asked.seed,
        "tasks": asked.tasks,
        "under_load": None,
    }
    if under_load:
        # The load generator sends the load, so a new PROTOCOL asks the questions under load again, and only those.
        load = {k: v for k, v in msgspec.to_builtins(under_load).items() if k != "targets"}
        workload = {k: v for k, v in under_load.workload.items() if k not in _ONLY_MEASURED}
        content["under_load"] = {**load, "workload": workload, "protocol": PROTOCOL}
    return canonical(content)


def with_file(spec: str, sha256: str) -> str:
    """Return the spec of a setting with an unpinned model as if the model were pinned to the fetched file's SHA-256.

    So another file leads to other measurements and answers, and pinning the same file by hand leads to no new ones.
    """
    content = json.loads(spec)
    content["setting"]["model"]["identity"] = {"sha256": sha256}
    return canonical(content)


def answers_digest(spec: str, task: str, condition: str | None = None) -> str:
    """Name a target's replies to one task by the digest of what determines them, except how many questions are asked.

    `condition` is ALONE or LOADED for replies of `under_load`.
    """
    content = json.loads(spec)
    del content["repeats"], content["tasks"][task]["questions"]
    content["tasks"] = {task: content["tasks"][task]}
    under_load = content.pop("under_load")
    if condition:
        del under_load["questions"], under_load["task"]
        content["condition"] = under_load if condition == LOADED else condition
    return digest(content)


def documents_seed(round_: int, users: int) -> int:
    """Return the seed of the order of documents, pauses and arrivals: in a round the same for every setting."""
    return int(digest(["documents", round_, users])[:8], 16)


def measurement_id(spec: str, users: int, round_: int) -> str:
    """Name a measurement by the digest of the spec without its list of users, the number of users, and the round."""
    content = json.loads(spec)
    del content["setting"]["users"]
    return digest({**content, "users": users, "round": round_})
