"""What comes over the network: models, checked by SHA-256, engines' environments, questions. Kept in the cache."""


rule fetch:
    input:
        TARGETS.fetched(),


# The weights stay in the cache; the manifest is what other rules depend on.
rule fetch_model:
    input:
        TARGETS.requantized_from,
    output:
        LAYOUT.model("{model}"),
    log:
        LAYOUT.log("models/{model}"),
    priority: 1_000_000
    retries: 2
    resources:
        download=1,
    params:
        identity=TARGETS.model_identity,
        verb=TARGETS.fetching("fetch", models=TARGETS.plan.models),
    shell:
        "exec python -m servebench {params.verb} --log {log:q} --out {output:q}"


rule engine_environment:
    output:
        LAYOUT.environment("{environment}"),
    log:
        LAYOUT.log("engines/{environment}"),
    priority: 1_000_000
    retries: 2
    resources:
        download=1,
    params:
        lock=TARGETS.lock_digest,
        verb=TARGETS.fetching("environment"),
    shell:
        "exec python -m servebench {params.verb} --log {log:q} --out {output:q}"


rule task_questions:
    output:
        LAYOUT.questions("{task}"),
    log:
        LAYOUT.log("questions/{task}"),
    priority: 1_000_000
    retries: 2
    resources:
        download=1,
    params:
        wanted=TARGETS.task_set,
        verb=TARGETS.fetching("questions"),
    shell:
        "exec python -m servebench {params.verb} --wanted {params.wanted:q} --log {log:q} --out {output:q}"
