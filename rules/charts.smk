"""One job for each chart."""

from servebench.charts import NAMES as CHARTS


def charts_files():
    return expand(
        f"{RESULTS}/charts/{{chart}}.{{kind}}",
        chart=CHARTS,
        kind=("html", "svg", "png"),
    )


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
        style=planning.canonical(PLAN.charts),
        source=source_digest("charts/*"),
    shell:
        "exec {PYTHON} -m servebench chart {wildcards.chart} --style {params.style:q} --results {RESULTS:q} --log {log:q}"
