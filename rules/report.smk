"""The page."""


rule report:
    input:
        rules.tables.output,
        plan=f"{RESULTS}/plan.json",
    output:
        report(
            f"{RESULTS}/report/index.html",
            caption="captions/page.rst",
            category="Page",
            labels={"page": "index"},
        ),
    log:
        f"{RESULTS}/logs/report.log",
    params:
        results=experiment_folder,
        style=literal(planning.canonical(PLAN.charts)),
        source=source_digest(),
    shell:
        "exec python -m servebench report --style {params.style:q} --results {params.results:q} --log {log:q}"
