"""Engine environments: one virtual environment for each lock file under envs/, kept in the cache."""


rule engine_environment:
    output:
        f"{RESULTS}/engines/{{environment}}.json",
    log:
        f"{RESULTS}/logs/engines/{{environment}}.log",
    priority: 1_000_000
    retries: 2
    resources:
        download=1,
    params:
        lock=lock_digest,
        runtime=untracked_runtime,
    shell:
        "exec python -m servebench environment {wildcards.environment:q}"
        " --runtime {params.runtime:q} --log {log:q} --out {output:q}"
