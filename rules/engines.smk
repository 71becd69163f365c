"""A job for each session and each evaluation: start an engine, measure every number of users or ask everything, stop.

The rules are generated, since each setting has its own numbers of users and outputs cannot be functions.
"""

for job in TARGETS.jobs():

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


for name, files in TARGETS.only().items():

    rule:
        name:
            name
        input:
            files,
        localrule: True
