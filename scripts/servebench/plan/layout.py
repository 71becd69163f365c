"""Say where every file under results/ is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from servebench.plan.types import Setting

RESULTS = Path("results")
PLACE = ("run", "setting", "round", "users")


@dataclass(frozen=True, slots=True)
class Layout:
    """Name the files of one experiment; `results` is results/<experiment>.

    A round may be Snakemake's wildcard "{round}", and a key another one.
    """

    results: Path

    @property
    def plan(self) -> Path:
        """The plan as tables and page need it."""
        return self.results / "plan.json"

    def spec(self, job: str, digest: str) -> Path:
        """The empty file that says by its name which spec the files of `job` were made of."""
        return self.results / "slices" / job / digest

    def model(self, key: str) -> Path:
        """The manifest of a model: which file the key stands for."""
        return self.results / "models" / f"{key}.json"

    def environment(self, name: str) -> Path:
        """The manifest of an engine's virtual environment."""
        return self.results / "engines" / f"{name}.json"

    def questions(self, task: str) -> Path:
        """The questions of a task, byte by byte the published ones or our own."""
        return self.results / "evaluations" / "questions" / task

    def measurement(self, setting: Setting, round_: int | str, users: int) -> Path:
        """The file that Snakemake sees of a measurement; a link to `stored`."""
        return self.measurement_at({"run": setting.run, "setting": setting.name, "round": round_, "users": users})

    def measurement_at(self, place: Mapping[str, Any]) -> Path:
        """As `measurement`, by its `place` (PLACE)."""
        folder = self.results.joinpath("measurements", place["run"], place["setting"], f"round{place['round']}")
        return folder / f"users{place['users']:03d}.parquet"

    def evaluation(self, target: str) -> Path:
        """What a target answered."""
        return self.results / "evaluations" / f"{target}.parquet"

    def stored(self, measurement_id: str) -> Path:
        """The measurement itself, by `plan.measurement_id`."""
        return self.results / "store" / f"{measurement_id}.parquet"

    @property
    def discarded(self) -> Path:
        """The folder of measurements that were thrown out, each with a note of why."""
        return self.results / "store" / "discarded"

    def replies(self, digest: str) -> Path:
        """A target's replies to a task as they came, by `plan.answers_digest`."""
        return self.results / "store" / "answers" / f"{digest}.jsonl"

    @property
    def progress(self) -> Path:
        """The folder in which running jobs say how far they are."""
        return self.results / "progress"

    @property
    def tables(self) -> Path:
        """The folder of tables and published JSON."""
        return self.results / "tables"

    def table(self, name: str) -> Path:
        """A table, by its name in `tables.catalogue`."""
        return self.tables / f"{name}.parquet"

    @property
    def charts(self) -> Path:
        """The folder of charts."""
        return self.results / "charts"

    def chart(self, name: str, kind: str) -> Path:
        """A chart as html, svg or png."""
        return self.charts / f"{name}.{kind}"

    @property
    def page(self) -> Path:
        """The report page."""
        return self.results / "report" / "index.html"

    @property
    def logs(self) -> Path:
        """The folder of log files."""
        return self.results / "logs"

    def log(self, job: str) -> Path:
        """The messages of a job."""
        return self.logs / f"{job}.log"

    def engine_log(self, job: str) -> Path:
        """The output of the engine that a job started."""
        return self.logs / f"{job}.engine.log"
