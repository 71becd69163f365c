"""Make the tables of an experiment from its sources. Pure."""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from servebench.load.line import Line
from servebench.models.kv_cache import Cache
from servebench.outlook.requirements import Memory
from servebench.plan import Evaluations, Plan, Setting
from servebench.store.measurements import Discarded, Record
from servebench.store.replies import Evaluated
from servebench.tables.catalogue import Table
from servebench.tables.measured import reference_bands
from servebench.tables.served import prefill_bands
from servebench.tasks.answers import Questions


@dataclass(frozen=True, kw_only=True)
class Sources:
    """Hold what an experiment stored; `Table.of` may name its attributes as well as tables.

    caches: KV caches by model key. needs: the memory that settings need, by name. evaluated: each target's answers, in
    the plan's order. questions: the questions asked, by task. published: rows of the reference
    (`files.read_reference`).
    """

    plan: Plan
    records: Sequence[Record] = ()
    thrown_out: Iterable[Discarded] = ()
    caches: Mapping[str, Cache] = field(default_factory=dict)
    needs: Mapping[str, Memory] = field(default_factory=dict)
    evaluated: Sequence[Evaluated] = ()
    questions: Questions = field(default_factory=dict)
    published: Sequence[Mapping[str, Any]] = ()

    @property
    def line(self) -> Line:
        """Return the plan's line."""
        return self.plan.line

    @property
    def rounds(self) -> int:
        """Return the number of rounds the plan has."""
        return self.plan.rounds

    @property
    def asked_settings(self) -> Mapping[str, Setting]:
        """Return the settings as configured, by name."""
        return self.plan.settings

    @property
    def bandwidth_gb_s(self) -> float | None:
        """Return the bandwidth of the device's memory as configured, GB/s."""
        return self.plan.runtime.bandwidth_gb_s

    @property
    def evaluations(self) -> Evaluations:
        """Return the plan's evaluations."""
        assert self.plan.evaluations
        return self.plan.evaluations

    @property
    def price_per_hour(self) -> float:
        """Return the machine's price, USD an hour."""
        assert self.plan.cost
        return float(self.plan.cost["price_per_hour"])

    @property
    def idle_after_min(self) -> float | None:
        """Return after how many minutes without a request the machine is given back, or None where not configured."""
        assert self.plan.cost
        return self.plan.cost.get("idle_after_min")

    @property
    def bands(self) -> dict[str, tuple[int, int]]:
        """Return the prompt lengths just over the micro-batch, by run."""
        return reference_bands(self.records, self._control)

    @property
    def prefill_bands(self) -> dict[str, tuple[int, int]]:
        """Return the numbers of newly computed prompt tokens just over the micro-batch, by run."""
        return prefill_bands(self.records, self._control)

    @property
    def _control(self) -> dict[str, str | None]:
        return {run: entry.get("control") for run, entry in self.plan.runs.items()}

    @cached_property
    def answers(self) -> pa.Table:
        """Return all replies, scored from their texts by the present rules."""
        from servebench.tables.evaluated.scores import rescored  # slow to import, and often not needed

        return rescored(pa.concat_tables([target.answers for target in self.evaluated]), self.questions)

    @property
    def answers_of_targets(self) -> pa.Table:
        """Return the targets' answers without those of `under_load`."""
        targets = pa.array(list(self.evaluations.targets), pa.string())
        return self.answers.filter(pc.is_in(self.answers["target"], value_set=targets))

    def tables(self, listed: Iterable[Table]) -> dict[str, pa.Table]:
        """Make the listed tables, by name; each stands in the list after those it is made from."""
        made: dict[str, pa.Table] = {}
        for table in listed:
            given = [made[name] if name in made else getattr(self, name) for name in table.of]
            made[table.name] = _maker(table.made)(*given) if table.made else getattr(self, table.name)
        return made


def _maker(name: str) -> Any:
    module, function = name.rsplit(".", 1)
    return getattr(importlib.import_module(f"servebench.tables.{module}"), function)
