"""One session for each run, setting and round: start the engine once, measure every number of users, stop it.

The rules are generated, since each setting has its own numbers of users and outputs cannot be functions.
"""


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
    forced = (
        workflow.dag_settings.forceall
        or workflow.dag_settings.forcerun
        or workflow.dag_settings.forcetargets
    )
    return "--retry-failed" if forced else ""


for rank, setting in enumerate(PLAN.settings.values()):

    rule:
        name:
            f"session_{setting.run}_{setting.name}"
        input:
            model=model_manifest(setting),
            engine=engine_manifest(setting),
        output:
            users_files(setting, "{round}"),
        log:
            session=f"{RESULTS}/logs/sessions/{setting.run}/{setting.name}/round{{round}}.log",
            engine=f"{RESULTS}/logs/sessions/{setting.run}/{setting.name}/round{{round}}.engine.log",
        priority: session_priority(rank)
        resources:
            gpu=1,
            runtime=estimate.session_minutes(setting),
        params:
            slice=planning.session_slice(PLAN, setting),
            runtime=untracked_runtime,
            rank=untracked_rank(rank),
            forced=untracked_forced,
        shell:
            "exec {PYTHON} -m servebench session --slice {params.slice:q} --round {wildcards.round}"
            " --rank {params.rank} --runtime {params.runtime:q} --results {RESULTS:q}"
            " --log {log.session:q}"
            " --engine-log {log.engine:q} {params.forced}"

    rule:
        name:
            f"only_{setting.run}_{setting.name}"
        input:
            [file for round_ in ROUNDS for file in users_files(setting, round_)],
        localrule: True
