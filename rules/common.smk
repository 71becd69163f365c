"""The plan behind all rules, canonical parameters, digests, priorities. Everything is computed once, at parse time."""

import hashlib
import json
import shlex
import sys
from pathlib import Path

from snakemake.exceptions import WorkflowError

sys.path.insert(0, str(Path(workflow.basedir) / "scripts"))

from servebench import configuration, estimate
from servebench import plan as planning

BASE = Path(workflow.basedir)
PYTHON = shlex.quote(sys.executable)

try:
    PLAN = configuration.load(config, workflow.configfiles)
except configuration.ConfigError as error:
    raise WorkflowError(f"the configuration cannot be run:\n{error}")

RESULTS = f"results/{PLAN.experiment}"
ROUNDS = range(1, PLAN.rounds + 1)


wildcard_constraints:
    model="|".join(map(re.escape, PLAN.models)),
    environment="[a-z0-9._-]+",
    chart="[a-z0-9_]+",
    round="[1-9]",


def source_digest(*patterns):
    """Content hash of the modules a rule runs; immune to the times a git checkout sets."""
    whole = hashlib.sha256()
    package = BASE / "scripts" / "servebench"
    for path in sorted(
        {p for pattern in patterns for p in package.glob(pattern) if p.is_file()}
    ):
        whole.update(
            path.relative_to(package).as_posix().encode()
            + b"\0"
            + path.read_bytes()
            + b"\0"
        )
    return whole.hexdigest()[:20]


def untracked_runtime(wildcards, resources):
    """How things are run. `resources` in the signature keeps a parameter out of Snakemake's rerun triggers."""
    return planning.canonical(PLAN.runtime)


def users_files(setting, round_):
    """The measurement files of one session, in ascending numbers of users."""
    folder = f"{RESULTS}/measurements/{setting.run}/{setting.name}/round{round_}"
    return [f"{folder}/users{users:03d}.parquet" for users in setting.users]


def measurement_files():
    """Every measurement file of the experiment."""
    return [
        file
        for round_ in ROUNDS
        for s in PLAN.settings.values()
        for file in users_files(s, round_)
    ]


def print_start():
    print(estimate.announcement(PLAN, RESULTS), file=sys.stderr)


def print_end():
    print(
        f"servebench: tables in {RESULTS}/tables, charts in {RESULTS}/charts",
        file=sys.stderr,
    )
    print(f"servebench: the page is {RESULTS}/report/index.html", file=sys.stderr)
