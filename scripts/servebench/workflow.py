"""Provide the rules with every job's files, priority, resources and command line; `rules/` names the verbs."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shlex
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import pyarrow.parquet as pq
from snakemake.exceptions import WorkflowError

from servebench import ROOT, claims, configuration
from servebench import plan as planning
from servebench.charts import CHARTS
from servebench.engines import ADAPTERS
from servebench.faults import Fault
from servebench.machine import cache, cpus
from servebench.machine.infrastructure import api_key
from servebench.outlook import duration, inventory, requirements
from servebench.plan import Plan, Setting
from servebench.plan.layout import RESULTS, Layout, session_job
from servebench.store.measurements import Store
from servebench.tables import published
from servebench.tables.catalogue import tables_of

# The rooms whose code makes a job's files, except rooms that already count for its input files. `machine`, which some
# of them import, makes no file.
ROOMS = {
    "tables": [
        "verdicts",
        "capacity",
        "tables",
        "outlook",
        "store",
        "engines",
        "tasks",
        "models",
        "plan",
        "load",
        "words",
        "claims",
        "marks",
        "versions",
        "schema",
        "faults",
    ],
    "charts": ["charts"],
    "report": ["report", "charts"],
}

# Environment variables that tell the jobs of a cluster what their run knows.
FORCED, SEARCHED = "SERVEBENCH_FORCED", "SERVEBENCH_SEARCHED"


def source_digest(job: str, package: Path = ROOT / "scripts" / "servebench") -> str:
    """Hash the content of a job's rooms (ROOMS), not the files' times, which a git checkout changes."""
    content = hashlib.sha256()
    for room in ROOMS[job]:
        for path in (package / f"{room}.py", *sorted((package / room).rglob("*"))):
            if path.is_file() and "__pycache__" not in path.parts:
                content.update(path.relative_to(package).as_posix().encode() + b"\0" + path.read_bytes() + b"\0")
    return content.hexdigest()[:20]


def untracked(value: Any) -> Callable[[Any, Any], Any]:
    """Make a rule's parameter whose change starts no job again and whose braces are not wildcards.

    Snakemake does not track a parameter that is a function of `resources`.
    """

    def parameter(wildcards: Any, resources: Any) -> Any:
        return value

    return parameter


@dataclass(frozen=True, kw_only=True)
class Job:
    """Describe a rule that starts an engine: the sessions of a setting, or the evaluation of a target.

    name: of its logs and specs; in a session's name and files stands the wildcard "{round}". spec: what determines its
    files. digest: of the spec and whatever else determines the files.
    priority: all of round 1 in the experiment's order, all of round 2 backwards, and so on, then the evaluations; no
    job of the sessions waits for files of another round. resources: what a batch system must allocate. options: the
    verb and its options.
    """

    rule: str
    name: str
    setting: Setting
    needs: list[Path] | Callable[[Any], list[Path]]
    files: list[Path]
    spec: str
    digest: str
    priority: Callable[[Any], int]
    resources: dict[str, int | str]
    options: Callable[[Any, Any], str]
    rounds: int = 0

    @property
    def of_rounds(self) -> bool:
        """Return whether the job runs once in each of `rounds` rounds."""
        return self.rounds > 0


@dataclass(frozen=True)
class Targets:
    """Hold the files of an experiment's jobs, and what Snakemake has to know to run them.

    The name of an empty file beside a job's files (`Layout.spec`) says what they are made from: when that name changes
    they are made again, with or without Snakemake's own records. No parameter repeats it, because Snakemake compares no
    parameters for an output with a new name. So `all` and `only_…` see every change; a target given as a file's path
    does not see a change of its own spec.
    """

    plan: Plan
    layout: Layout
    further: Sequence[Sequence[Any]] = ()  # what searches have measured beyond the planned rounds (`_further`)
    asked: Mapping[str, str] = field(default_factory=dict)  # the resources that the profile gives to all jobs
    in_job: bool = False  # whether this process is a cluster's job rather than the run that submits jobs

    @property
    def settings(self) -> Iterator[Setting]:
        """Yield all settings and all targets of the evaluations."""
        yield from self.plan.settings.values()
        yield from self.plan.evaluations.targets.values() if self.plan.evaluations else ()

    def wildcards(self) -> dict[str, str]:
        """Return the wildcard constraints of the rules, as regular expressions."""
        tasks = self.plan.evaluations.tasks if self.plan.evaluations else ()
        return {
            "model": "|".join(map(re.escape, self.plan.models)),
            "environment": "[a-z0-9._-]+",
            "round": "[1-9]",
            "task": "|".join(tasks) or "(?!)",
        }

    def fetching(self, verb: str, **given: Any) -> Callable[[Any, Any], str]:
        """Return a verb that fetches what its wildcard names, untracked: another address fetches nothing again."""

        def parameter(wildcards: Any, resources: Any) -> str:
            where = {**given, "runtime": self.plan.runtime}
            options = (word for name, value in where.items() for word in (f"--{name}", self._given(value)))
            return shlex.join([verb, *wildcards, *options])

        return parameter

    def _given(self, value: Any) -> str:
        """Return the option that gives a value to a job: the file that `hand_over` writes, after an @.

        A command line holds no argument of more than 128 KiB.
        """
        return f"@{self.layout.given(planning.canonical(value))}"

    def hand_over(self) -> None:
        """Write the files that are given to jobs."""
        values: list[Any] = [self.plan.models, self.plan.engines, self.plan.runtime, planning.reported(self.plan)]
        for text in {*map(planning.canonical, values), *(job.spec for job in (*self.jobs(), *self.searches()))}:
            path = self.layout.given(text)
            path.parent.mkdir(parents=True, exist_ok=True)
            part = path.with_suffix(f".{os.getpid()}.part")
            part.write_text(text + "\n", encoding="utf-8")
            part.replace(path)

    # Fetched: models, environments, questions.

    def model(self, setting: Setting) -> list[Path]:
        """Return the manifest of the setting's model, if its engine loads a model file."""
        return [self.layout.model(setting.model.key)] if ADAPTERS[setting.engine.kind].loads_model else []

    def environment(self, setting: Setting) -> list[Path]:
        """Return the manifest of the environment of the setting's engine, if it needs an environment."""
        return [self.layout.environment(setting.engine.environment)] if setting.engine.environment else []

    def questions(self) -> list[Path]:
        """Return the files of the evaluations' questions."""
        return [self.layout.questions(task) for task in self.plan.evaluations.tasks] if self.plan.evaluations else []

    def fetched(self) -> list[Path]:
        """Return all files that may come over the network."""
        manifests = {file for s in self.settings for file in (*self.model(s), *self.environment(s))}
        return [*sorted(manifests), *self.questions()]

    def requantized_from(self, wildcards: Any) -> list[Path]:
        """Return the manifest of the model from which a requantized model is made."""
        requantize = self.plan.models[wildcards.model].requantize
        return [self.layout.model(requantize["from"])] if requantize else []

    def model_identity(self, wildcards: Any) -> str:
        """Return what identifies a model (`plan.model_identity`)."""
        return planning.canonical(planning.model_identity(self.plan.models[wildcards.model], self.plan.models))

    def lock_digest(self, wildcards: Any) -> str | None:
        """Return the content hash of an environment's lock."""
        return configuration.engine_pin({"environment": wildcards.environment})

    def task_set(self, wildcards: Any) -> str:
        """Return name and SHA-256 of a task's set; how many of its questions are asked changes no file."""
        assert self.plan.evaluations
        asked = self.plan.evaluations.tasks[wildcards.task]
        return planning.canonical({"set": asked.set, "sha256": asked.sha256})

    # Measured and answered: one job for each session, and one for each target.

    def jobs(self) -> Iterator[Job]:
        """Yield the rules of all sessions, then those of all evaluations."""
        for rank, setting in enumerate(self.plan.settings.values()):
            yield self._session(setting, rank)
        for rank, target in enumerate(self.plan.evaluations.targets.values() if self.plan.evaluations else ()):
            yield self._evaluation(target, rank)

    def _session(self, setting: Setting, rank: int) -> Job:
        spec = planning.session_spec(self.plan, setting)

        def priority(wildcards: Any) -> int:
            backwards = len(self.plan.settings) - 1 - rank
            round_ = int(wildcards.round)
            return (self.plan.rounds - round_ + 1) * 1000 - (rank if round_ % 2 else backwards)

        def options(wildcards: Any, resources: Any) -> str:
            return self._options("session", spec, "--round", wildcards.round, "--rank", str(rank))

        return Job(
            rule=f"session_{setting.run}_{setting.name}",
            name=session_job(setting.run, setting.name, "{round}"),
            setting=setting,
            needs=[*self.model(setting), *self.environment(setting)],
            files=[self.layout.measurement(setting, "{round}", users) for users in setting.users],
            spec=spec,
            digest=planning.digest(spec),
            priority=priority,
            resources=self._resources(setting, duration.session_minutes(setting)),
            options=options,
            rounds=self.plan.rounds,
        )

    def searches(self) -> Iterator[Job]:
        """Yield the rules of the searches for how many users each setting serves.

        A setting with a trace has none.
        """
        for rank, setting in enumerate(self.plan.searchable.values()):
            yield self._search(setting, rank)

    def _search(self, setting: Setting, rank: int) -> Job:
        spec, rounds = planning.search_spec(self.plan, setting), self.plan.search.most_rounds
        how, objectives = planning.canonical(self.plan.search_of(setting)), planning.canonical(self.plan.judged_by)

        def needs(wildcards: Any) -> list[Path]:
            before = int(wildcards.round) - 1
            # A further round is measured where settings are to be told apart, by all that the rounds before it found.
            others = self.plan.searchable.values() if before >= self.plan.search.rounds else [setting]
            files = [self.layout.search(one, before) for one in others if one.run == setting.run] if before else []
            return [*files, *self.model(setting), *self.environment(setting)]

        def priority(wildcards: Any) -> int:
            return (rounds - int(wildcards.round) + 1) * 1000 - rank

        def options(wildcards: Any, resources: Any) -> str:
            given = ["--round", wildcards.round, "--rank", str(rank), "--search", how, "--objectives", objectives]
            if int(wildcards.round) > self.plan.search.rounds:
                given += ["--plan", self._given(planning.reported(self.plan))]
            return self._options("session", spec, *given)

        return Job(
            rule=f"search_{setting.run}_{setting.name}",
            name=session_job(setting.run, setting.name, "{round}", search=True),
            setting=setting,
            needs=needs,
            files=[self.layout.search(setting, "{round}")],
            spec=spec,
            digest=planning.digest([spec, how, objectives]),
            priority=priority,
            resources=self._resources(setting, duration.search_minutes(self.plan, setting)),
            options=options,
            rounds=rounds,
        )

    def _evaluation(self, target: Setting, rank: int) -> Job:
        assert self.plan.evaluations
        spec = planning.target_spec(self.plan, target.name)
        return Job(
            rule=f"evaluate_{target.name}",
            name=f"evaluations/{target.name}",
            setting=target,
            needs=[*self.model(target), *self.environment(target), *self.questions()],
            files=[self.layout.evaluation(target.name)],
            spec=spec,
            digest=planning.digest(spec),
            priority=lambda wildcards: -rank,
            resources=self._resources(target, duration.evaluation_minutes(self.plan.evaluations, target)),
            options=untracked(self._options("evaluate", spec)),
        )

    def _options(self, verb: str, spec: str, *more: str) -> str:
        """Return a verb with its options, quoted for a shell."""
        where = {"models": self.plan.models, "engines": self.plan.engines, "runtime": self.plan.runtime}
        given = [word for name, value in where.items() for word in (f"--{name}", self._given(value))]
        spec_file = f"@{self.layout.given(spec)}"
        return shlex.join([verb, "--spec", spec_file, *more, *given, "--results", str(self.layout.results)])

    def _resources(self, setting: Setting, minutes: int) -> dict[str, int | str]:
        """Return the resources of a job: the experiment's CPUs, or none where the profile decides, and minutes.

        Work that does not fit into the longest job is left to the next job.
        """
        return {
            **({"cpus_per_task": sum(setting.cpus.values())} if setting.cpus else {}),
            **_gpus(ADAPTERS[setting.engine.kind].gpus(setting), self.asked, in_job=self.in_job),
            "url": int(setting.engine.kind == "url"),
            "nodes": 1,
            "runtime": min(minutes, self.plan.runtime.job_minutes or minutes),
        }

    def made_by(self, job: Job) -> list[Path]:
        """Return the files of a job; for a session those of every round."""
        files = [*job.files, self.layout.spec(job.name, job.digest)]
        rounds = range(1, job.rounds + 1) if job.of_rounds else (0,)
        return [Path(str(file).format(round=number)) for number in rounds for file in files]

    def searched(self) -> list[Path]:
        """Return the files of all searches."""
        return [file for job in self.searches() for file in self.made_by(job)]

    def only(self) -> dict[str, list[Path]]:
        """Map each `only_…` target to the files of its setting."""
        return {f"only_{job.setting.run}_{job.setting.name}": self.made_by(job) for job in self.jobs() if job.of_rounds}

    def part(self, asked: Collection[str]) -> Plan:
        """Return the plan of the settings that are asked for, where only `only_…` targets are; else the whole plan."""
        if not asked or not set(asked) <= self.only().keys():
            return self.plan
        settings = {name: one for name, one in self.plan.settings.items() if f"only_{one.run}_{name}" in asked}
        return msgspec.structs.replace(self.plan, settings=settings, evaluations=None)

    def measured(self) -> list[Path]:
        """Return the files of all sessions and evaluations, and the questions."""
        return [*self.questions(), *(file for job in self.jobs() for file in self.made_by(job))]

    # Made from the measurements and answers.

    def verb(self, name: str, **options: str) -> Callable[[Any, Any], str]:
        """Return a verb that works on the experiment's folder, with its options, quoted for a shell."""
        given = [word for option, value in options.items() for word in (f"--{option}", value)]
        return untracked(shlex.join([name, *given, "--results", str(self.layout.results)]))

    def stated(self) -> Callable[[Any, Any], str]:
        """Return the verb that states the answers of the searches, with its options, quoted for a shell."""
        plan = self._given(planning.reported(self.plan))
        return self.verb("capacities", plan=plan, out=str(self.layout.capacities))

    def draw(self, name: str) -> Callable[[Any, Any], str]:
        """Return what `verb` returns, with the style of the charts."""
        return self.verb(name, style=planning.canonical(self.plan.charts))

    @property
    def reported(self) -> Callable[[Any, Any], str]:
        """Return the file that holds the plan as it is saved, untracked."""
        return untracked(str(self.layout.given(planning.canonical(planning.reported(self.plan)))))

    def plan_spec(self) -> Path:
        """Return the empty file whose name says which plan is saved."""
        return self.layout.spec("plan", planning.digest(planning.reported(self.plan)))

    def drop_damaged_plan(self) -> None:
        """Remove a saved plan that is not what was saved, so that its rule saves it again."""
        path, text = self.layout.plan, planning.canonical(planning.reported(self.plan))
        if path.is_file() and self.plan_spec().exists() and path.read_bytes() != text.encode() + b"\n":
            path.unlink()
            print(f"servebench: {path}: is damaged, and is made again", file=sys.stderr)

    def tables(self) -> list[Path]:
        """Return the files of all tables the experiment has."""
        return [self.layout.table(table.name) for table in tables_of(self.plan)]

    def published(self, report: Callable[..., str]) -> list[str]:
        """Return the published JSON, marked for `snakemake --report` by Snakemake's `report`."""
        place = {"category": "Data", "caption": "captions/data.rst"}
        return [
            report(str(self.layout.tables / name), **place, labels={"file": name})
            for name in published.files(self.plan)
        ]

    def tables_spec(self) -> Path:
        """Return the empty file whose name says with which code, published figures and searches the tables are made."""
        reference = ROOT / "config" / "references" / f"{self.plan.reference}-concurrency.csv"
        figures = hashlib.sha256(reference.read_bytes()).hexdigest() if self.plan.reference else None
        return self.layout.spec("tables", planning.digest([source_digest("tables"), figures, *self.further]))

    @property
    def discarded(self) -> str:
        """Return a parameter that changes when somebody discards a measurement, so that the tables are made again."""
        return planning.digest(Store(self.layout.results).discarded_by_hand())

    def charts(self, kind: str) -> list[Path]:
        """Return the files of every chart of one kind: html, svg or png."""
        return [self.layout.chart(chart, kind) for chart in CHARTS]

    def drawn(self, report: Callable[..., str]) -> list[str]:
        """Return every chart's own page, marked for `snakemake --report`."""
        return [
            report(
                str(self.layout.chart(chart.name, "html")),
                category=chart.place.category,
                caption=f"captions/{chart.place.caption}.rst",
                labels={"chart": chart.name.replace("_", " ")},
            )
            for chart in CHARTS.values()
        ]

    def shown(self, job: str, report: Callable[..., str]) -> list[str]:
        """Return the files of the charts, or of the report, those for `snakemake --report` marked by its `report`."""
        return [*self.drawn(report), *map(str, self.charts("svg"))] if job == "charts" else [self.page(report)]

    def page(self, report: Callable[..., str]) -> str:
        """Return the report page, marked for `snakemake --report`."""
        return report(str(self.layout.page), category="Page", caption="captions/page.rst", labels={"page": "index"})

    def drawn_spec(self, job: str) -> Path:
        """Return the empty file whose name says with which code and style the charts, or the report, are made."""
        return self.layout.spec(job, planning.digest([source_digest(job), self.plan.charts]))

    def check(self, rules: Iterable[str], *, here: bool) -> None:
        """Raise InfrastructureError when these rules lack the API key of a server, or CPUs where they run `here`."""
        asked = {job.rule: job.setting for job in (*self.jobs(), *self.searches())}
        for setting in (asked[name] for name in sorted(asked.keys() & set(rules))):
            if setting.engine.api_key_env:
                api_key(f"engines.{setting.engine.key}.api_key_env", setting.engine.api_key_env)
            if here:
                cpus.allot(setting.cpus)

    def check_models(self, keys: Collection[str]) -> None:
        """Raise Fault when files that these models are to be taken from are not there."""
        found = requirements.downloads(self.plan, self.layout.results, cache.root(self.plan.runtime.cache))
        lines = [
            f"models.{one.model.key}.source: {one.own}: no such file; put it there or name another source"
            for one in found
            if one.model.key in keys and one.own and not one.own.exists()
        ]
        if lines:
            raise Fault("\n".join(lines))

    def check_rounds(self, rules: Iterable[str]) -> None:
        """Raise Fault when these rules search with so few rounds that no answer can be sure."""
        if self.plan.search.most_rounds < 2 and {job.rule for job in self.searches()} & set(rules):
            raise Fault("rounds: one round is never sure of a capacity; give 2, or {min: 1, max: 2}")


def load(config: Mapping[str, Any], workflow: Any) -> Targets:
    """Read the configuration that Snakemake has merged. Raises WorkflowError when it cannot be run."""
    if workflow.config_settings.config and not workflow.overwrite_configfiles:
        raise WorkflowError(
            "--config: takes the place of the quick start where it stands alone;"
            " name the file it changes, too: --configfile config/config.yaml"
        )
    if sys.getfilesystemencoding() != "utf-8":
        raise WorkflowError(
            f"names and texts are {sys.getfilesystemencoding()} for Python here, not UTF-8; unset PYTHONUTF8, or export"
            " LC_ALL=C.UTF-8"
        )
    # Files named on the command line replace the default one (profiles/default); Snakemake still lists it.
    files = workflow.overwrite_configfiles or workflow.configfiles
    try:
        plan = configuration.load(config, files, workflow.config_settings.config)
    except configuration.ConfigError as error:
        raise WorkflowError(f"the configuration cannot be run:\n{error}") from None
    layout = Layout(RESULTS / plan.experiment)
    # A cluster's job plans what the run planned, though searches have measured more meanwhile.
    if workflow.is_main_process or SEARCHED not in os.environ:
        users = inventory.searched_users(plan, layout.results)
        os.environ[SEARCHED] = planning.canonical([users, _further(plan, layout)])
    users, further = json.loads(os.environ[SEARCHED])
    in_job = not workflow.is_main_process
    targets = Targets(inventory.with_users(plan, users), layout, further, _asked(workflow), in_job)
    if workflow.is_main_process:
        targets.drop_damaged_plan()
    return targets


def _asked(workflow: Any) -> dict[str, str]:
    """Return the default resources of the profile and the command line; quotes around a text are Python's."""
    defaults = workflow.resource_settings.default_resources
    given = (word.partition("=") for word in (defaults.args if defaults else ()))
    return {name: value.strip("'\"") for name, _, value in given}


def _gpus(count: int, asked: Mapping[str, str], *, in_job: bool) -> dict[str, int | str]:
    """Return the resources that ask for so many GPUs, in the way that the profile asks for all jobs.

    SLURM refuses `--gpus` beside a `--gres` that names the type of the GPUs. Its plugin refuses a type with a hyphen in
    `gpu_model` and in `gres`, and hands on a `gpu` that is a text as it stands; its job's step takes a number only.
    """
    gres = re.fullmatch(r"gpu(?::([^:,]*[^:,0-9][^:,]*))?(?::\d+)?", asked.get("gres", ""))
    kind = (gres and gres[1]) or asked.get("gpu_model", "")
    if count and "-" in kind:
        return {"gpu": count if in_job else f"{kind}:{count}", "gpu_model": "", "gres": ""}
    if gres:
        return {"gpu": 0, "gres": ":".join(filter(None, ("gpu", gres[1], str(count)))) if count else ""}
    return {"gpu": count}


def _further(plan: Plan, layout: Layout) -> list[list[Any]]:
    """List what searches have measured beyond the planned rounds: setting, round, users and the record's time."""
    return [
        [one.setting.name, one.round, users, layout.search(one.setting, one.round).stat().st_mtime_ns]
        for one, users in inventory.further_rounds(plan, layout.results)
    ]


def retry_failed(workflow: Any) -> Callable[[Any, Any], str]:
    """Make the option that lets a forced run retry failures; successful measurements are never made again."""
    return lambda wildcards, resources: "--retry-failed" if forced(workflow) or FORCED in os.environ else ""


def forced(workflow: Any) -> bool:
    """Return whether the user has forced this run. A cluster's job is itself a snakemake that is always forced."""
    asked = workflow.dag_settings
    return workflow.is_main_process and bool(asked.forceall or asked.forcerun or asked.forcetargets)


def begin(targets: Targets, workflow: Any) -> None:
    """Check the API keys and CPUs that this run's jobs need; announce what is measured and how long it takes.

    Snakemake removes a job's files before the job runs, links to measurements among them: what only a link holds is put
    back into the store before.
    """
    jobs = list(workflow.dag.needrun_jobs())
    run = {job.rule.name for job in jobs}
    try:
        targets.check_models({job.wildcards.model for job in jobs if job.rule.name == "fetch_model"})
        targets.check(run, here=workflow.local_exec)
        targets.check_rounds(run)
        for path in Store(targets.layout.results).restored():
            print(f"servebench: {path}: the store had lost this measurement, and has it again", file=sys.stderr)
    except Fault as error:
        raise WorkflowError(str(error)) from None
    layout, files = targets.layout, workflow.overwrite_configfiles
    targets.hand_over()
    os.environ[planning.GIVEN] = targets.plan.options(files)
    for line in targets.plan.left_out:
        print(f"servebench: {line}", file=sys.stderr)
    if searching := [job.setting for job in targets.searches() if job.rule in run]:
        print(duration.announcement_of_search(targets.plan, searching), file=sys.stderr)
    if not searching or run - {job.rule for job in targets.searches()} - {"capacity"}:
        part = targets.part({rule.name for rule in workflow.dag.targetrules})
        print(duration.announcement(part, layout.results, files), file=sys.stderr)
        for line in duration.too_few(part):
            print(f"servebench: too few requests to judge: {line}", file=sys.stderr)
    if forced(workflow):
        os.environ[FORCED] = "1"  # for the jobs of a cluster
    if not workflow.local_exec:
        print(
            "servebench: sessions are jobs of the cluster. What they do, or wait for: squeue --me --Format"
            " JobID,State,NodeList,Reason,StartTime,TimeLeft; what they have measured:"
            f" servebench status{targets.plan.options(files)}; their messages: {layout.logs / 'sessions'}",
            file=sys.stderr,
        )


def end(targets: Targets, workflow: Any) -> None:
    """Say where tables, charts and page are, then the conclusions.

    Raises SystemExit(1) when `all` was asked for and something failed.
    """
    layout, asked = targets.layout, {rule.name for rule in workflow.dag.targetrules}
    given = targets.plan.options(workflow.overwrite_configfiles)
    if "capacity" in asked and "all" not in asked:
        print(f"servebench: the answers are in {layout.capacities}; `all` draws their measurements", file=sys.stderr)
        return
    if asked and asked <= targets.only().keys():
        print(
            f"servebench: tables and page are as before; to make them: snakemake --cores 1 all{given}", file=sys.stderr
        )
        return
    if not layout.page.exists():
        return
    from servebench import verdicts  # imports scipy, half a second that no other job needs
    from servebench.words.claims import said

    print(f"servebench: tables in {layout.tables}, charts in {layout.charts}", file=sys.stderr)
    print(f"servebench: the page is {layout.page}", file=sys.stderr)
    found = verdicts.headline(claims.read(pq.read_table(layout.table("verdicts"))))
    for claim in found:
        print(f"servebench: {said(claim)['en']}", file=sys.stderr)
    failed = any(claim.kind == "coverage" and claim.verdict in ("failures", "targets_failed") for claim in found)
    if failed and "all" in asked:
        raise SystemExit(1)
