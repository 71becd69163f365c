"""Model files, checked by sha256. The weights stay in the cache; the manifest is what other rules depend on."""


def requantize_source(wildcards):
    """The manifest of the model a requantized one is made from."""
    requantize = PLAN.models[wildcards.model].requantize
    return [f"{RESULTS}/models/{requantize['from']}.json"] if requantize else []


def model_identity(wildcards):
    return planning.canonical(
        planning.model_identity(PLAN.models[wildcards.model], PLAN.models)
    )


def untracked_models(wildcards, resources):
    """The models as configured, with where they are fetched from: a new address fetches nothing again."""
    return planning.canonical(PLAN.models)


rule fetch_model:
    input:
        requantize_source,
    output:
        f"{RESULTS}/models/{{model}}.json",
    log:
        f"{RESULTS}/logs/models/{{model}}.log",
    priority: 1_000_000
    retries: 2
    resources:
        download=1,
    params:
        identity=model_identity,
        models=untracked_models,
        runtime=untracked_runtime,
    shell:
        "exec {PYTHON} -m servebench fetch {wildcards.model:q} --models {params.models:q}"
        " --runtime {params.runtime:q} --log {log:q} --out {output:q}"
