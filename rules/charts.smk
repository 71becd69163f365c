"""All charts in one job: starting Python and the drawing engine takes longer than drawing."""

# Category and caption (rules/captions) of each chart in `snakemake --report`.
CHART_GROUPS = {
    "speed": "Speed: output_bars speed_bars output_by_users user_by_users",
    "waiting": "Waiting: ttft_by_users queueing slow_requests ttft_ecdf",
    "changes": "Single changes: slots ratios",
    "means": "Memory and cost: memory cost",
    "answers": "Answers: scores differences agreement",
    "trust": "Trust: timeline unstable client_error",
}


def reported_charts():
    """The HTML of every chart, with its place in Snakemake's report."""
    groups = {
        name: (caption, category)
        for caption, line in CHART_GROUPS.items()
        for category, names in [line.split(": ")]
        for name in names.split()
    }
    return [
        report(
            file,
            caption=f"captions/{groups[name][0]}.rst",
            category=groups[name][1],
            labels={"chart": name.replace("_", " ")},
        )
        for name, file in zip(CHARTS, charts_files("html"))
    ]


rule charts:
    input:
        rules.tables.output,
        plan=f"{RESULTS}/plan.json",
    output:
        reported_charts(),
        charts_files("svg", "png"),
    log:
        f"{RESULTS}/logs/charts.log",
    params:
        results=experiment_folder,
        style=planning.canonical(PLAN.charts),
        source=source_digest("charts/*", "tables/*"),
    shell:
        "exec python -m servebench charts --style {params.style:q} --results {params.results:q} --log {log:q}"
