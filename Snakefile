# servebench: measure what LLM servers really do when many people use them at once.
#   snakemake --cores 1 all                                    the quick start (config/config.yaml)
#   snakemake --cores 1 all --configfile config/FILE.yaml      another experiment
#   snakemake --cores 1 only_main_np4                          one setting, both rounds
from snakemake.utils import min_version

min_version("9.17")


configfile: "config/config.yaml"


report: "rules/captions/workflow.rst"


include: "rules/common.smk"
include: "rules/models.smk"
include: "rules/engines.smk"
include: "rules/concurrency.smk"
include: "rules/quantization.smk"
include: "rules/tables.smk"
include: "rules/charts.smk"
include: "rules/report.smk"


localrules:
    all,
    plan,
    fetch,
    fetch_model,
    engine_environment,
    tables,
    charts,
    pictures,
    report,


onstart:
    check_keys()
    print_start()


onsuccess:
    print_end()


rule all:
    default_target: True
    input:
        f"{RESULTS}/report/index.html",
        charts_files(),
        published_files(),
        # Asked for by name: Snakemake does not make an intermediate file again just because it is gone (discarded).
        measurement_files(),
        evaluation_files(),
        rules.plan.output,
