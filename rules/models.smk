"""Model files, checked by sha256. The weights stay in the cache; the manifest is what other rules depend on."""


rule fetch:
    input:
        fetched_files(),


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
        "exec python -m servebench fetch {wildcards.model:q} --models {params.models:q}"
        " --runtime {params.runtime:q} --log {log:q} --out {output:q}"
