"""The page."""


rule report:
    input:
        rules.tables.output,
        plan=f"{RESULTS}/plan.json",
    output:
        f"{RESULTS}/report/index.html",
    log:
        f"{RESULTS}/logs/report.log",
    params:
        style=planning.canonical(PLAN.charts),
        source=source_digest("charts/*", "report/*"),
    shell:
        "exec {PYTHON} -m servebench report --style {params.style:q} --results {RESULTS:q} --log {log:q}"
