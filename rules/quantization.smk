"""How well each target answers: one job starts its engine once and asks everything. Nothing without `evaluations`.

The rules are generated, one per target, since each has its own model and engine.
"""

if PLAN.evaluations:

    rule task_questions:
        output:
            f"{RESULTS}/evaluations/questions/{{task}}",
        log:
            f"{RESULTS}/logs/questions/{{task}}.log",
        wildcard_constraints:
            task="|".join(PLAN.evaluations.tasks),
        priority: 1_000_000
        retries: 2
        localrule: True
        resources:
            download=1,
        params:
            wanted=task_set,
            runtime=untracked_runtime,
        shell:
            "exec python -m servebench questions {wildcards.task:q} --wanted {params.wanted:q}"
            " --runtime {params.runtime:q} --log {log:q} --out {output:q}"

    for rank, (name, target) in enumerate(PLAN.evaluations.targets.items()):

        rule:
            name:
                f"evaluate_{name}"
            input:
                model=model_manifest(target),
                engine=engine_manifest(target),
                questions=questions_files(),
            output:
                f"{RESULTS}/evaluations/{name}.parquet",
                spec=target_spec_file(name),
            log:
                evaluation=f"{RESULTS}/logs/evaluations/{name}.log",
                engine=f"{RESULTS}/logs/evaluations/{name}.engine.log",
            # After the last round of all sessions, whose priority is above 0.
            priority: -rank
            resources:
                **session_cpus(target),
                gpu=ADAPTERS[target.engine.kind].gpus(target),
                url=int(target.engine.kind == "url"),
                nodes=1,
                runtime=evaluation_minutes(target),
            params:
                results=experiment_folder,
                spec=literal(planning.target_spec(PLAN, name)),
                models=untracked_models,
                engines=untracked_engines,
                runtime=untracked_runtime,
                forced=untracked_forced,
            shell:
                'rm -f "$(dirname {output.spec:q})"/* && touch {output.spec:q} && '
                "exec python -m servebench evaluate --spec {params.spec:q} --models {params.models:q}"
                " --engines {params.engines:q} --runtime {params.runtime:q} --results {params.results:q}"
                " --log {log.evaluation:q} --engine-log {log.engine:q} {params.forced}"
