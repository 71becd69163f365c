"""One job for each chart."""


rule chart:
    input:
        rules.tables.output,
        plan=f"{RESULTS}/plan.json",
    output:
        report(
            f"{RESULTS}/charts/{{chart}}.html",
            category="Charts",
            labels={"chart": "{chart}"},
        ),
        f"{RESULTS}/charts/{{chart}}.svg",
        f"{RESULTS}/charts/{{chart}}.png",
    log:
        f"{RESULTS}/logs/charts/{{chart}}.log",
    params:
        results=experiment_folder,
        style=planning.canonical(PLAN.charts),
        source=source_digest("charts/*"),
    shell:
        "exec python -m servebench chart {wildcards.chart} --style {params.style:q} --results {params.results:q} --log {log:q}"
