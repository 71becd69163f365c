"""A job for each session, evaluation and round of a search: start an engine, measure or ask, stop.

The rules are generated, since each setting has its own numbers of users and outputs cannot be functions.
"""

for job in (*TARGETS.jobs(), *TARGETS.searches()):

    rule:
        name:
            job.rule
        input:
            job.needs,
        output:
            job.files,
            spec=LAYOUT.spec(job.name, job.digest),
        log:
            messages=LAYOUT.log(job.name),
            engine=LAYOUT.engine_log(job.name),
        priority: job.priority
        resources:
            **job.resources,
        params:
            verb=job.options,
            forced=rules_of.retry_failed(workflow),
        shell:
            NEW_SPEC + "exec python -m servebench {params.verb} --log {log.messages:q}"
            " --engine-log {log.engine:q} {params.forced}"


# For how many users each setting keeps the objectives. Its last round needs all others.
rule capacity:
    input:
        TARGETS.searched(),
    output:
        LAYOUT.capacities,
    log:
        LAYOUT.log("capacity"),
    params:
        verb=TARGETS.stated(),
    shell:
        "exec python -m servebench {params.verb} --log {log:q}"


for name, files in TARGETS.only().items():

    rule:
        name:
            name
        input:
            files,
        localrule: True
