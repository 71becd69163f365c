"""From raw records to tables, published JSON, and what the tables allow to say."""


rule plan:
    output:
        plan=LAYOUT.plan,
        spec=TARGETS.plan_spec(),
    log:
        LAYOUT.log("plan"),
    priority: 2_000_000
    params:
        plan=TARGETS.reported,
    shell:
        NEW_SPEC + "cp {params.plan:q} {output.plan:q} 2> {log:q}"


rule tables:
    input:
        TARGETS.measured(),
        rules.plan.output,
    output:
        TARGETS.tables(),
        TARGETS.published(report),
        verdicts=LAYOUT.table("verdicts"),
        spec=TARGETS.tables_spec(),
    log:
        LAYOUT.log("tables"),
    params:
        verb=TARGETS.verb("tables"),
        conclude=TARGETS.verb("conclude"),
        discarded=TARGETS.discarded,  # tracked: Snakemake does not make an input again just because it is gone
    shell:
        NEW_SPEC + "python -m servebench {params.verb} --log {log:q} && "
        "exec python -m servebench {params.conclude} >> {log:q}"
