# servebench: measure what LLM servers really do when many people use them at once.
#   snakemake --cores 1 all                                    the quick start (config/config.yaml)
#   snakemake --cores 1 all --configfile config/FILE.yaml      another experiment
#   snakemake --cores 1 only_main_np4                          one setting, both rounds
#   snakemake --cores 1 capacity                               for how many users each setting meets the target
from snakemake.utils import min_version

min_version("9.17")


configfile: "config/config.yaml"


report: "rules/captions/workflow.rst"


include: "rules/common.smk"
include: "rules/fetch.smk"
include: "rules/engines.smk"
include: "rules/tables.smk"
include: "rules/charts.smk"


localrules:
    all,
    capacity,
    plan,
    fetch,
    fetch_model,
    engine_environment,
    task_questions,
    tables,
    charts,
    pictures,
    report,


onstart:
    rules_of.begin(TARGETS, workflow)


onsuccess:
    rules_of.end(TARGETS, workflow)


# Has a command of its own, so that it always runs, and says what is concluded where nothing is left to do.
rule all:
    default_target: True
    input:
        rules.report.output,
        rules.charts.output,
        rules.pictures.output,
        # Asked for by name: Snakemake does not make an intermediate file again just because it is gone (discarded).
        rules.tables.output,
        TARGETS.measured(),
        rules.plan.output,
    log:
        LAYOUT.log("all"),
    shell:
        "true 2> {log:q}"
