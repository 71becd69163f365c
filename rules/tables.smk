"""From raw records to tables and published JSON. These rules follow the code: they carry a digest of its content."""


rule plan:
    output:
        plan=f"{RESULTS}/plan.json",
        spec=spec_file("plan", planning.reported(PLAN)),
    log:
        f"{RESULTS}/logs/plan.log",
    priority: 2_000_000
    params:
        plan=literal(planning.canonical(planning.reported(PLAN))),
    shell:
        'rm -f "$(dirname {output.spec:q})"/* && touch {output.spec:q} && '
        "printf '%s\n' {params.plan:q} > {output.plan:q} 2> {log:q}"


rule tables:
    input:
        measurement_files(),
        evaluation_files(),
        rules.plan.output.spec,
        plan=rules.plan.output.plan,
    output:
        table_files(),
        [
            report(
                file,
                caption="captions/data.rst",
                category="Data",
                labels={"file": Path(file).name},
            )
            for file in published_files()
        ],
    log:
        f"{RESULTS}/logs/tables.log",
    params:
        results=experiment_folder,
        reference=reference_digest,
        source=source_digest("charts", "report"),
    shell:
        "exec python -m servebench tables --results {params.results:q} --log {log:q}"
