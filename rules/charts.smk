"""All charts in one job, and all PNG in another: starting takes longer than drawing. And the page."""


rule charts:
    input:
        rules.tables.output,
        rules.plan.output,
    output:
        TARGETS.drawn(report),
        TARGETS.charts("svg"),
        spec=TARGETS.drawn_spec("charts"),
    log:
        LAYOUT.log("charts"),
    params:
        verb=TARGETS.draw("charts"),
    shell:
        NEW_SPEC + "exec python -m servebench {params.verb} --log {log:q}"


# A job of its own, so that where no font for Japanese is, the others are there.
rule pictures:
    input:
        TARGETS.charts("svg"),
        rules.charts.output.spec,
    output:
        TARGETS.charts("png"),
    log:
        LAYOUT.log("pictures"),
    params:
        verb=TARGETS.verb("pictures"),
    shell:
        "exec python -m servebench {params.verb} --log {log:q}"


rule report:
    input:
        rules.tables.output,
        rules.plan.output,
    output:
        TARGETS.page(report),
        spec=TARGETS.drawn_spec("report"),
    log:
        LAYOUT.log("report"),
    params:
        verb=TARGETS.draw("report"),
    shell:
        NEW_SPEC + "exec python -m servebench {params.verb} --log {log:q}"
