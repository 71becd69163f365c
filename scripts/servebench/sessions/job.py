"""Provide what a job with an engine needs, for a session that measures and an evaluation that asks."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from servebench import ROOT, engines, models, plan
from servebench.engines import Server, environment, llama_log
from servebench.load.prompts import BUILT_IN
from servebench.load.workload import Workload
from servebench.machine import cache
from servebench.models import scratch
from servebench.outlook.inventory import identified, manifest_of
from servebench.plan.layout import Layout

LOG_PATIENCE_S = 2.0
log = logging.getLogger("servebench")


def whole_log(server: Server, start: int) -> str:
    """Return the log after its first `start` bytes once it tells how each request ended, or `LOG_PATIENCE_S` later."""
    deadline = time.monotonic() + LOG_PATIENCE_S
    while not llama_log.ended(logged := server.log_since(start)) and time.monotonic() < deadline:
        time.sleep(0.1)
    return logged


def workload_of(configured: Mapping[str, Any]) -> Workload:
    """Make the load generator's workload of a configured one; its relative paths start at the project's root."""
    root = Path(os.path.relpath(ROOT))
    named = {key: configured[key] for key in ("prompts", "trace") if key in configured}
    files = {key: str(root / name) for key, name in named.items() if not (BUILT_IN / name).is_dir()}
    return Workload.from_dict({**configured, **files})


@dataclass(frozen=True, kw_only=True)
class Context:
    """Hold a job's spec, folders and runtime; the spec alone decides what is measured or answered."""

    spec: str
    models: dict[str, plan.Model]  # as configured, with sources
    engines: dict[str, plan.Engine]  # as configured, with paths of binaries
    results: Path  # results/<experiment>
    runtime: plan.Runtime
    engine_log: Path
    retry_failed: bool

    def identified(self, setting: plan.Setting) -> Context:
        """Return this context with the spec made by `outlook.inventory.identified`."""
        return replace(self, spec=identified(self.spec, setting, self.results))

    def weights(self, setting: plan.Setting) -> tuple[Path | None, dict[str, Any] | None]:
        """Return (the setting's model file, its manifest), fetching the file again where the cache has lost it.

        Both are None for a server reached by URL, and for a simulated one. Raises InfrastructureError when the manifest
        belongs to another model.
        """
        if not engines.ADAPTERS[setting.engine.kind].loads_model:
            return None, None
        model = self.models[setting.model.key]
        manifest = manifest_of(model, self.results)
        if manifest is None:
            path = Layout(self.results).model(model.key)
            raise engines.InfrastructureError(f"{path}: is not of models.{model.key}; remove it and run again")
        path = models.ensure(
            manifest,
            model,
            self.models,
            cache_root=cache.root(self.runtime.cache),
            mirror=self.runtime.mirror,
            node_local=scratch.root(self.runtime.scratch),
            progress=log.info,
        )
        return path, manifest

    def launched(self, session: plan.Session, model_path: Path | None) -> AbstractContextManager[Server]:
        """Run the session's server in a `with` block; raises as `engines.launched`."""
        engine = session.setting.engine
        return engines.launched(
            session,
            model_path=model_path,
            environment=self._environment(engine.environment, engine.pin) if engine.environment else None,
            runtime=self.runtime,
            log_path=self.engine_log,
        )

    def _environment(self, name: str, lock_sha256: str | None) -> dict[str, Any]:
        """Return the environment a rule has made, or make one where that has another lock or is on another machine."""
        made = environment.read(Layout(self.results).environment(name))
        if made and made["lock_sha256"] == lock_sha256:
            return made
        return environment.make(name, ROOT / "envs" / f"{name}.lock", cache.root(self.runtime.cache), progress=log.info)
