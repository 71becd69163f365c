"""All charts in one job, and all PNG in another: starting takes longer than drawing."""

# Category and caption (rules/captions) of each chart in `snakemake --report`.
CHART_PLACES = {
    name: (category, f"captions/{caption}.rst")
    for category, caption, names in (
        ("Speed", "speed", "output_bars speed_bars output_by_users user_by_users"),
        ("Waiting", "waiting", "ttft_by_users queueing slow_requests ttft_ecdf"),
        ("Single changes", "changes", "slots ratios"),
        ("Memory and cost", "means", "memory cost"),
        ("Answers", "answers", "scores differences agreement"),
        ("Trust", "trust", "timeline unstable client_error"),
    )
    for name in names.split()
}


rule charts:
    input:
        rules.tables.output,
        plan=f"{RESULTS}/plan.json",
    output:
        [
            report(
                file,
                category=CHART_PLACES[name][0],
                caption=CHART_PLACES[name][1],
                labels={"chart": name.replace("_", " ")},
            )
            for name, file in zip(CHARTS, charts_files("html"))
        ],
        charts_files("svg"),
    log:
        f"{RESULTS}/logs/charts.log",
    params:
        results=experiment_folder,
        style=literal(planning.canonical(PLAN.charts)),
        source=source_digest("report"),
    shell:
        "exec python -m servebench charts --style {params.style:q} --results {params.results:q} --log {log:q}"


# A job of its own, so that where no font for Japanese is, the others are there.
rule pictures:
    input:
        charts_files("svg"),
    output:
        charts_files("png"),
    log:
        f"{RESULTS}/logs/pictures.log",
    params:
        results=experiment_folder,
        source=source_digest("report"),
    shell:
        "exec python -m servebench pictures --results {params.results:q} --log {log:q}"
