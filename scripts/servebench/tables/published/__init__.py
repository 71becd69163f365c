"""List the kinds of published JSON (docs/json.md), and write the files.

To add a kind, write a module in this folder with its `SCHEMA` and, under the module's own name, the function that
makes and checks the content; then add an entry to `PUBLISHED` and run `make schema`. The workflow, the page and the
JSON Schema files in docs/schemas/ follow from the entry.
"""

from __future__ import annotations

import importlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa

from servebench import ROOT
from servebench.plan import Plan
from servebench.tables.published.form import VERSION


@dataclass(frozen=True, slots=True, kw_only=True)
class Json:
    """Describe one kind of published JSON.

    name: of the file, of the module and of its function. by_run: whether each run of an experiment has a file of its
    own. needs: the section of the plan without which there is no such file; None when every experiment has it.
    """

    name: str
    by_run: bool = False
    needs: Literal["evaluations"] | None = None


PUBLISHED = (
    Json(name="concurrency", by_run=True),
    Json(name="quantization", needs="evaluations"),
)


def files(plan: Plan) -> list[str]:
    """List the names of the files that an experiment publishes, in the order of `PUBLISHED`."""
    return list(_files(plan))


def write(tables: Mapping[str, pa.Table], plan: Plan, directory: Path) -> list[Path]:
    """Write every file of the plan into `directory`, each atomically, and remove other JSON from the directory.

    Returns the paths.
    """
    directory.mkdir(parents=True, exist_ok=True)
    paths = []
    for name, (kind, runs) in _files(plan).items():
        content = getattr(_module(kind), kind.name)(tables, plan, *runs)
        path = directory / name
        part = path.with_suffix(".json.part")
        part.write_text(json.dumps(content, ensure_ascii=False, allow_nan=False, indent=1) + "\n", encoding="utf-8")
        part.replace(path)
        paths.append(path)
    for path in set(directory.glob("*.json")) - set(paths):
        path.unlink()
    return paths


def schemas() -> dict[Path, str]:
    """Map the path of each JSON Schema file to its text."""
    folder = ROOT / "docs" / "schemas"
    return {
        folder / f"{kind.name}-{VERSION}.schema.json": json.dumps(_module(kind).SCHEMA, ensure_ascii=False, indent=1)
        + "\n"
        for kind in PUBLISHED
    }


def write_schemas() -> None:
    """Write the JSON Schema files, for `make schema`."""
    for path, text in schemas().items():
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")


def _module(kind: Json) -> Any:
    return importlib.import_module(f"servebench.tables.published.{kind.name}")


def _files(plan: Plan) -> dict[str, tuple[Json, tuple[str, ...]]]:
    """Map each file's name to its kind and arguments (the run). The first run's file name omits the run."""
    found: dict[str, tuple[Json, tuple[str, ...]]] = {}
    for kind in PUBLISHED:
        if kind.needs and not getattr(plan, kind.needs):
            continue
        if not kind.by_run:
            found[f"{kind.name}.json"] = kind, ()
            continue
        for number, run in enumerate(plan.runs):
            found[f"{run}_{kind.name}.json" if number else f"{kind.name}.json"] = kind, (run,)
    return found
