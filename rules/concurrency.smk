"""One session for each run, setting and round: start the engine once, measure every number of users, stop it.

The rules are generated, since each setting has its own numbers of users and outputs cannot be functions.
"""

for rank, setting in enumerate(PLAN.settings.values()):

    rule:
        name:
            f"session_{setting.run}_{setting.name}"
        input:
            model=model_manifest(setting),
            engine=engine_manifest(setting),
        output:
            users_files(setting, "{round}"),
            spec=session_spec_file(setting, "{round}"),
        log:
            session=f"{RESULTS}/logs/sessions/{setting.run}/{setting.name}/round{{round}}.log",
            engine=f"{RESULTS}/logs/sessions/{setting.run}/{setting.name}/round{{round}}.engine.log",
        priority: session_priority(rank)
        resources:
            **session_cpus(setting),
            gpu=ADAPTERS[setting.engine.kind].gpus(setting),
            url=int(setting.engine.kind == "url"),
            nodes=1,
            runtime=session_minutes(setting),
        params:
            results=experiment_folder,
            spec=literal(planning.session_spec(PLAN, setting)),
            models=untracked_models,
            engines=untracked_engines,
            runtime=untracked_runtime,
            rank=untracked_rank(rank),
            forced=untracked_forced,
        shell:
            'rm -f "$(dirname {output.spec:q})"/* && touch {output.spec:q} && '
            "exec python -m servebench session --spec {params.spec:q} --round {wildcards.round}"
            " --rank {params.rank} --runtime {params.runtime:q} --results {params.results:q}"
            " --models {params.models:q} --engines {params.engines:q} --log {log.session:q}"
            " --engine-log {log.engine:q} {params.forced}"

    rule:
        name:
            f"only_{setting.run}_{setting.name}"
        input:
            [file for round_ in ROUNDS for file in session_files(setting, round_)],
        localrule: True
