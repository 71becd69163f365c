"""Name every path under results/."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from servebench.plan.identity import digest
from servebench.plan.types import Setting

RESULTS = Path("results")
PLACE = ("run", "setting", "round", "users")


def session_job(run: str, setting: str, round_: int | str, *, search: bool = False) -> str:
    """Return the name of a session's job, or of a search's, under which its logs lie."""
    return f"{'searches' if search else 'sessions'}/{run}/{setting}/round{round_}"


@dataclass(frozen=True, slots=True)
class Layout:
    """Name the files of one experiment; `results` is results/<experiment>.

    A round may be Snakemake's wildcard "{round}", and a key may be a wildcard too.
    """

    results: Path

    @property
    def plan(self) -> Path:
        """Return the plan's file, as saved for tables and page."""
        return self.results / "plan.json"

    def spec(self, job: str, digest: str) -> Path:
        """Return the empty file whose name says from which spec the files of `job` were made."""
        return self.results / "slices" / job / digest

    def given(self, text: str) -> Path:
        """Return the file in which a text is given to jobs; the text determines its name."""
        return self.results / "given" / f"{digest(text)}.json"

    def model(self, key: str) -> Path:
        """Return the manifest of a model, which says which file the key stands for."""
        return self.results / "models" / f"{key}.json"

    def environment(self, name: str) -> Path:
        """Return the manifest of an engine's virtual environment."""
        return self.results / "engines" / f"{name}.json"

    def questions(self, task: str) -> Path:
        """Return the file of a task's questions: an exact copy of the published set or of our own."""
        return self.results / "evaluations" / "questions" / task

    @property
    def measurements(self) -> Path:
        """Return the folder of the measurements that Snakemake sees."""
        return self.results / "measurements"

    def measurement(self, setting: Setting, round_: int | str, users: int) -> Path:
        """Return the file of a measurement that Snakemake sees, a link to `stored`."""
        return self.measurement_at({"run": setting.run, "setting": setting.name, "round": round_, "users": users})

    def measurement_at(self, place: Mapping[str, Any]) -> Path:
        """Return what `measurement` returns, given a `place` (PLACE)."""
        folder = self.measurements.joinpath(place["run"], place["setting"], f"round{place['round']}")
        return folder / f"users{place['users']:03d}.parquet"

    def search(self, setting: Setting, round_: int | str) -> Path:
        """Return the record of which numbers of users a search has measured in a round."""
        return self.search_at({"run": setting.run, "setting": setting.name, "round": round_})

    def search_at(self, place: Mapping[str, Any]) -> Path:
        """Return what `search` returns, given a `place` (PLACE)."""
        return self.results.joinpath("capacity", place["run"], place["setting"], f"round{place['round']}.json")

    @property
    def capacities(self) -> Path:
        """Return the answers of all searches."""
        return self.results / "capacity" / "answers.json"

    def evaluation(self, target: str) -> Path:
        """Return the file of a target's answers."""
        return self.results / "evaluations" / f"{target}.parquet"

    def stored(self, measurement_id: str) -> Path:
        """Return the stored measurement's file, by `plan.measurement_id`."""
        return self.results / "store" / f"{measurement_id}.parquet"

    @property
    def discarded(self) -> Path:
        """Return the folder of discarded measurements, each with a note of why."""
        return self.results / "store" / "discarded"

    def replies(self, digest: str) -> Path:
        """Return the file of a target's replies to a task in order of arrival, by `plan.answers_digest`."""
        return self.results / "store" / "answers" / f"{digest}.jsonl"

    @property
    def progress(self) -> Path:
        """Return the folder in which running jobs publish their progress."""
        return self.results / "progress"

    @property
    def tables(self) -> Path:
        """Return the folder of tables and published JSON."""
        return self.results / "tables"

    def table(self, name: str) -> Path:
        """Return a table's file, by its name in `tables.catalogue`."""
        return self.tables / f"{name}.parquet"

    @property
    def charts(self) -> Path:
        """Return the folder of charts."""
        return self.results / "charts"

    def chart(self, name: str, kind: str) -> Path:
        """Return a chart's file of kind html, svg or png."""
        return self.charts / f"{name}.{kind}"

    @property
    def page(self) -> Path:
        """Return the report page."""
        return self.results / "report" / "index.html"

    @property
    def logs(self) -> Path:
        """Return the folder of log files."""
        return self.results / "logs"

    def log(self, job: str) -> Path:
        """Return the log of a job's messages."""
        return self.logs / f"{job}.log"

    def engine_log(self, job: str) -> Path:
        """Return the log of the engine that a job started."""
        return self.logs / f"{job}.engine.log"
