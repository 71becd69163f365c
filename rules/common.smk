"""The plan behind all rules, canonical parameters, digests, priorities. Everything is computed once, at parse time."""

import hashlib
import json
import os
import shlex
import sys
from pathlib import Path

from snakemake.exceptions import WorkflowError

sys.path.insert(0, str(Path(workflow.basedir) / "scripts"))

from servebench import configuration
from servebench import plan as planning
from servebench.charts import CHARTS, KINDS
from servebench.engines import ADAPTERS
from servebench.machine.infrastructure import InfrastructureError, api_key
from servebench.outlook import duration
from servebench.plan.layout import Layout
from servebench.tables import published
from servebench.tables.catalogue import tables_of

BASE = Path(workflow.basedir)
# The interpreter that runs this workflow also runs its jobs, whether or not its environment is activated.
shell.prefix(f"export PATH={shlex.quote(str(Path(sys.executable).parent))}:$PATH; ")

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

try:
    # Files named on the command line replace the default one (profiles/default); Snakemake still lists it.
    PLAN = configuration.load(
        config,
        workflow.overwrite_configfiles or workflow.configfiles,
        workflow.config_settings.config,
    )
except configuration.ConfigError as error:
    raise WorkflowError(f"the configuration cannot be run:\n{error}")

RESULTS = f"results/{PLAN.experiment}"
ROUNDS = range(1, PLAN.rounds + 1)


wildcard_constraints:
    model="|".join(map(re.escape, PLAN.models)),
    environment="[a-z0-9._-]+",
    round="[1-9]",


def source_digest(*without):
    """Content hash of the package but for folders a rule runs nothing of; immune to the times a git checkout sets."""
    whole = hashlib.sha256()
    package = BASE / "scripts" / "servebench"
    for path in sorted(package.rglob("*")):
        name = path.relative_to(package)
        unused = name.parts[0] in without or "__pycache__" in name.parts
        if path.is_file() and not unused:
            for part in (name.as_posix().encode(), path.read_bytes()):
                whole.update(part)
                whole.update(b"\0")
    return whole.hexdigest()[:20]


def untracked_runtime(wildcards, resources):
    """How things are run. `resources` in the signature keeps a parameter out of Snakemake's rerun triggers."""
    return planning.canonical(PLAN.runtime)


def literal(text):
    """A tracked parameter in which braces are braces, not wildcards."""

    def value(wildcards):
        return text

    return value


def experiment_folder(wildcards):
    """Where the experiment's results are, for the verbs."""
    return RESULTS


def users_files(setting, round_):
    """The measurement files of one session, in ascending numbers of users."""
    results = Path(RESULTS)
    return [str(Layout(results).measurement(setting, round_, n)) for n in setting.users]


def spec_file(place, spec):
    """An empty file whose name says what its neighbours in `place` were made of: changed, they are made again even
    where Snakemake's own records are gone."""
    return f"{RESULTS}/slices/{place}/{planning.digest(spec)}"


def session_spec_file(setting, round_):
    """What one session's measurements were made of."""
    place = f"sessions/{setting.run}/{setting.name}/round{round_}"
    return spec_file(place, planning.session_spec(PLAN, setting))


def target_spec_file(target):
    """What an evaluation was made of."""
    return spec_file(f"evaluations/{target}", planning.target_spec(PLAN, target))


def session_files(setting, round_):
    """All that one session makes."""
    return [*users_files(setting, round_), session_spec_file(setting, round_)]


def measurement_files():
    """All that the experiment's sessions make."""
    return [
        file
        for round_ in ROUNDS
        for s in PLAN.settings.values()
        for file in session_files(s, round_)
    ]


def requantize_source(wildcards):
    """The manifest of the model a requantized one is made from."""
    requantize = PLAN.models[wildcards.model].requantize
    return [f"{RESULTS}/models/{requantize['from']}.json"] if requantize else []


def model_identity(wildcards):
    return planning.canonical(
        planning.model_identity(PLAN.models[wildcards.model], PLAN.models)
    )


def untracked_models(wildcards, resources):
    """The models as configured, with where they are fetched from: a new address fetches nothing again."""
    return planning.canonical(PLAN.models)


def untracked_engines(wildcards, resources):
    """The engines as configured, with where their binaries are: another path measures nothing again."""
    return planning.canonical(PLAN.engines)


def lock_digest(wildcards):
    return configuration.engine_pin({"environment": wildcards.environment})


def reference_digest(wildcards):
    """Content hash of the published figures that found ones stand beside."""
    file = BASE / "config" / "references" / f"{PLAN.reference}-concurrency.csv"
    return hashlib.sha256(file.read_bytes()).hexdigest()[:20] if PLAN.reference else ""


def engine_manifest(setting):
    """The environment of the setting's engine, where it needs one."""
    environment = setting.engine.environment
    return [f"{RESULTS}/engines/{environment}.json"] if environment else []


def model_manifest(setting):
    """The manifest of the setting's model; a server reached by URL has its own."""
    return (
        []
        if setting.engine.kind in ("url", "simulator")
        else [f"{RESULTS}/models/{setting.model.key}.json"]
    )


def fetched_files():
    """The manifests of everything that comes over the network: models and engine environments."""
    evaluated = PLAN.evaluations.targets.values() if PLAN.evaluations else ()
    settings = (*PLAN.settings.values(), *evaluated)
    return (
        sorted(
            {
                file
                for s in settings
                for file in (*model_manifest(s), *engine_manifest(s))
            }
        )
        + questions_files()
    )


def questions_files():
    """The questions of the evaluations, which may come over the network as well."""
    tasks = PLAN.evaluations.tasks if PLAN.evaluations else ()
    return [f"{RESULTS}/evaluations/questions/{task}" for task in tasks]


def published_files():
    """The published JSON."""
    return [f"{RESULTS}/tables/{name}" for name in published.files(PLAN)]


def session_minutes(setting):
    """A session's time limit; what does not fit into the longest job is measured by the next one."""
    return min(
        duration.session_minutes(setting), PLAN.runtime.job_minutes or float("inf")
    )


def session_cpus(setting):
    """CPUs for a batch system to give to a session, where the experiment says how many; else its profile says so."""
    return {"cpus_per_task": sum(setting.cpus.values())} if setting.cpus else {}


def session_priority(rank):
    """All of round 1 in the experiment's order, then all of round 2; rounds never wait for each other's files."""

    def priority(wildcards):
        return (PLAN.rounds - int(wildcards.round) + 1) * 1000 - rank

    return priority


def untracked_rank(rank):
    """Only kept with the record: another order of settings measures nothing again."""

    def place(wildcards, resources):
        return rank

    return place


def untracked_forced(wildcards, resources):
    """Failed measurements are tried again when the run is forced; good ones never are."""
    return "--retry-failed" if forced() or "SERVEBENCH_FORCED" in os.environ else ""


def forced():
    """Whether the user has forced this run. A cluster's job is itself a snakemake that is always forced."""
    asked = workflow.dag_settings
    return workflow.is_main_process and bool(
        asked.forceall or asked.forcerun or asked.forcetargets
    )


def charts_files(*kinds):
    """The files of every chart, of these kinds or of all."""
    kinds = kinds or KINDS
    return expand(f"{RESULTS}/charts/{{chart}}.{{kind}}", chart=CHARTS, kind=kinds)


def table_files():
    """Every table the experiment has."""
    return [f"{RESULTS}/tables/{table.name}.parquet" for table in tables_of(PLAN)]


def evaluation_minutes(target):
    """An evaluation's time limit; what does not fit into the longest job is asked by the next one."""
    return min(
        duration.evaluation_minutes(PLAN.evaluations, target),
        PLAN.runtime.job_minutes or float("inf"),
    )


def evaluation_files():
    """What the tables need of the evaluations: the questions, and what each target answered."""
    if PLAN.evaluations is None:
        return []
    return questions_files() + [
        file
        for target in PLAN.evaluations.targets
        for file in (
            f"{RESULTS}/evaluations/{target}.parquet",
            target_spec_file(target),
        )
    ]


def task_set(wildcards):
    """Which questions, by name and content; how many of them are asked changes no file."""
    asked = PLAN.evaluations.tasks[wildcards.task]
    return planning.canonical({"set": asked.set, "sha256": asked.sha256})


def check_keys():
    """Nothing starts without the keys of the servers that this run's jobs ask."""
    asked = {f"session_{s.run}_{s.name}": s.engine for s in PLAN.settings.values()}
    if PLAN.evaluations:
        asked |= {
            f"evaluate_{n}": t.engine for n, t in PLAN.evaluations.targets.items()
        }
    for name in {job.rule.name for job in workflow.dag.needrun_jobs()} & asked.keys():
        engine = asked[name]
        if engine.api_key_env:
            try:
                api_key(f"engines.{engine.key}.api_key_env", engine.api_key_env)
            except InfrastructureError as error:
                raise WorkflowError(str(error))


def print_start():
    print(duration.announcement(PLAN, RESULTS), file=sys.stderr)
    if forced():
        os.environ.update(SERVEBENCH_FORCED="1")  # for the jobs of a cluster
    if not workflow.local_exec:
        print(
            "servebench: sessions are jobs of the cluster. What they do, or wait for: squeue --me --Format"
            " JobID,State,NodeList,Reason,StartTime,TimeLeft; what they have measured: servebench status;"
            f" their messages: {RESULTS}/logs/sessions",
            file=sys.stderr,
        )


def print_end():
    if not Path(RESULTS, "report", "index.html").exists():
        return
    print(
        f"servebench: tables in {RESULTS}/tables, charts in {RESULTS}/charts",
        file=sys.stderr,
    )
    print(f"servebench: the page is {RESULTS}/report/index.html", file=sys.stderr)
