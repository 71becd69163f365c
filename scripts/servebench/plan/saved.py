"""Save a plan as JSON and read it back."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from servebench.faults import Fault
from servebench.plan.types import Plan

# Mappings whose order matters: it is that of runs, rows, colours and targets. Canonical JSON sorts keys.
ORDERED = (
    ("engines",),
    ("objectives",),
    ("models",),
    ("runs",),
    ("settings",),
    ("evaluations", "tasks"),
    ("evaluations", "targets"),
)


def reported(plan: Plan) -> dict[str, Any]:
    """Reduce the plan to what tables and page need: no runtime but the memory's bandwidth, no style of charts,
    no addresses of pinned models.
    """
    content: dict[str, Any] = msgspec.to_builtins(plan)
    runtime = content.pop("runtime")
    if runtime["bandwidth_gb_s"] is not None:
        content["runtime"] = {"bandwidth_gb_s": runtime["bandwidth_gb_s"]}
    del content["charts"], content["left_out"]
    content["overrides"] = [given for given in content["overrides"] if not given.startswith(("runtime=", "charts="))]
    settings = [*content["settings"].values(), *((content["evaluations"] or {}).get("targets") or {}).values()]
    for model in [*content["models"].values(), *(setting["model"] for setting in settings)]:
        if model["sha256"]:
            del model["source"]
    content["order"] = {".".join(path): list(_at(content, path)) for path in ORDERED}
    return content


def read(path: Path) -> Plan:
    """Read the plan that was saved as `path`. Raises Fault for a file that is missing or damaged."""
    try:
        return from_json(path.read_bytes())
    except OSError as error:
        raise Fault(f"{path}: cannot be read ({error.strerror}); run the experiment again") from None
    except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError, RecursionError) as error:
        why = f"{type(error).__name__}: {error}"
        raise Fault(
            f"{path}: is not a saved plan ({why:.200}); run the experiment again, which makes it again"
        ) from None


def from_json(text: str | bytes) -> Plan:
    """Restore the plan from `canonical(reported(plan))`, in its original order."""
    content = json.loads(text)
    for place, names in content.pop("order").items():
        *parents, last = place.split(".")
        holder = _at(content, parents)
        if holder:
            holder[last] = {name: holder[last][name] for name in names}
    return msgspec.convert(content, Plan)


def _at(content: Mapping[str, Any], path: Sequence[str]) -> Any:
    """Return the value at a path of keys; {} where a key on the path is null."""
    for key in path:
        content = content[key] or {} if content else {}
    return content
