"""All charts in one job, and all PNG in another: starting takes longer than drawing. And the page."""

for job in ("charts", "report"):

    rule:
        name:
            job
        input:
            rules.tables.output,
            rules.plan.output,
        output:
            TARGETS.shown(job, report),
            spec=TARGETS.drawn_spec(job),
        log:
            LAYOUT.log(job),
        params:
            verb=TARGETS.draw(job),
        shell:
            NEW_SPEC + "exec python -m servebench {params.verb} --log {log:q}"


# A job of its own, so that where no font for Japanese is, the others are there.
rule pictures:
    input:
        TARGETS.charts("svg"),
        TARGETS.drawn_spec("charts"),
    output:
        TARGETS.charts("png"),
    log:
        LAYOUT.log("pictures"),
    params:
        verb=TARGETS.verb("pictures"),
    shell:
        "exec python -m servebench {params.verb} --log {log:q}"
