"""All charts in one job: starting Python and the drawing engine takes longer than drawing."""


rule charts:
    input:
        rules.tables.output,
        plan=f"{RESULTS}/plan.json",
    output:
        report(charts_files("html"), category="Charts"),
        charts_files("svg", "png"),
    log:
        f"{RESULTS}/logs/charts.log",
    params:
        results=experiment_folder,
        style=planning.canonical(PLAN.charts),
        source=source_digest("charts/*", "tables/*"),
    shell:
        "exec python -m servebench charts --style {params.style:q} --results {params.results:q} --log {log:q}"
