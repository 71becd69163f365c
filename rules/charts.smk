"""All charts in one job, and all PNG in another: starting takes longer than drawing."""


rule charts:
    input:
        rules.tables.output,
        plan=f"{RESULTS}/plan.json",
    output:
        [
            report(
                file,
                category=chart.place.category,
                caption=f"captions/{chart.place.caption}.rst",
                labels={"chart": chart.name.replace("_", " ")},
            )
            for chart, file in zip(CHARTS.values(), charts_files("html"))
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
