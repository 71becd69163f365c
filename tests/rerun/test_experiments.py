"""The published experiments as `snakemake -n` sees them, and every published argument in what would be launched."""

import json
import os
import re
import shlex
import subprocess
import sys

import msgspec
import pytest
import yaml

import servebench
from servebench import configuration, engines, plan
from servebench.engines.base import Launch
from servebench.tables import read_reference

ROOT = servebench.ROOT
CONFIG = ROOT / "config"
EXPERIMENTS = {
    "config": ["config.yaml"],
    "h200": ["h200.yaml"],
    "h200-rehearsal": ["h200.yaml", "rehearsal.yaml"],
    "l4-cloud": ["l4-cloud.yaml"],
    "l4-cloud-url": ["l4-cloud.yaml", "l4-cloud-url.yaml"],
    "rtx4090": ["rtx4090.yaml"],
}


def load(name):
    return configuration.read([CONFIG / file for file in EXPERIMENTS[name]])


@pytest.fixture(scope="module")
def dry_run(tmp_path_factory):
    """(files, folder) -> the session jobs of a dry run: (rule, round, priority, measurement files)."""

    def run(name):
        folder = tmp_path_factory.mktemp(name)
        command = ["-m", "snakemake", "--snakefile", ROOT / "Snakefile", "--directory", folder, "--cores", "1", "-n"]
        command += ["--workflow-profile", ROOT / "profiles" / "default"]
        command += ["--configfile", *(CONFIG / file for file in EXPERIMENTS[name]), "--", "all"]
        done = subprocess.run([sys.executable, *command], capture_output=True, text=True, cwd=ROOT)
        assert done.returncode == 0, done.stdout + done.stderr
        jobs = []
        for block in re.split(r"\n(?=rule )", done.stdout + done.stderr):
            if block.startswith("rule session_"):
                outputs = re.search(r"^ +output: (.*)$", block, re.M)[1].split(", ")
                outputs = [file for file in outputs if file.endswith(".parquet")]
                round_, priority = (int(re.search(rf"{key}[=:] ?(\d+)", block)[1]) for key in ("round", "priority"))
                jobs.append((block.split(":")[0].removeprefix("rule session_"), round_, priority, outputs))
        assert not (folder / "results").exists(), "a dry run leaves nothing behind"
        return jobs

    return run


@pytest.mark.parametrize("name", ["config", "h200-rehearsal"])
def test_the_plan_names_the_files_that_were_given_and_no_others(name, tmp_path):
    (tmp_path / "config").symlink_to(CONFIG)  # as in the checkout, where the workflow finds its default
    command = ["-m", "snakemake", "--snakefile", ROOT / "Snakefile", "--directory", tmp_path, "--cores", "1", "-q"]
    planned = f"results/{load(name).experiment}/plan.json"
    command += ["--workflow-profile", ROOT / "profiles" / "default", planned]
    if name != "config":
        command += ["--configfile", *(CONFIG / file for file in EXPERIMENTS[name])]
    subprocess.run([sys.executable, *command], capture_output=True, text=True, cwd=ROOT, check=True)
    assert json.loads((tmp_path / planned).read_bytes())["files"] == [f"config/{file}" for file in EXPERIMENTS[name]]


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_a_dry_run_lists_exactly_the_plan_in_its_order(name, dry_run):
    loaded = load(name)
    jobs = sorted(dry_run(name), key=lambda job: -job[2])
    sessions = [(f"{s.setting.run}_{s.setting.name}", s.round) for s in loaded.sessions()]
    assert [(rule, round_) for rule, round_, _, _ in jobs] == sessions
    files = [file for *_, outputs in jobs for file in outputs]
    assert len(files) == len(set(files)) == loaded.measurements
    folder = f"results/{loaded.experiment}/measurements"
    assert files == [
        f"{folder}/{s.setting.run}/{s.setting.name}/round{s.round}/users{users:03d}.parquet"
        for s in loaded.sessions()
        for users in s.setting.users
    ]


@pytest.mark.parametrize("name", ["h200", "h200-rehearsal"])
def test_the_h200_cells_are_the_published_ones(name):
    """Every cell of the published tables, and no other: 53 + 21 a round, 106 + 42 in two."""
    loaded = load(name)
    ours = [(s.run, s.name, users) for s in loaded.settings.values() for users in s.users]
    published = [
        (row["run"], row["setting"], row["users"])
        for row in read_reference(CONFIG / "references" / "h200-concurrency.csv")
    ]
    assert ours == published
    count = {run: loaded.rounds * sum(cell[0] == run for cell in ours) for run in loaded.runs}
    assert count == {"main": 106, "extra": 42}
    assert loaded.runs["extra"]["control"] == "llama-np16-control"


@pytest.mark.parametrize("name", ["l4-cloud", "l4-cloud-url", "rtx4090"])
def test_every_published_cell_is_measured(name):
    """And stands as in the article's own table: users and value by engine and slots."""
    loaded = load(name)
    cells = read_reference(CONFIG / "references" / f"{loaded.reference}-concurrency.csv")
    article = read_reference(CONFIG / "references" / f"{loaded.reference}.csv")
    for cell in cells:
        setting = loaded.settings[cell["setting"]]
        assert cell["users"] in setting.users
        published = {value for key, value in cell.items() if key.endswith("_min") and value is not None}
        rows = [row for row in article if setting.name.startswith(row["engine"]) and row["users"] == cell["users"]]
        rows = [row for row in rows if row.get("slots") in (None, setting.slots)]
        assert any(published <= set(row.values()) for row in rows), cell


def test_the_published_numbers_of_users():
    l4 = {row["users"] for row in read_reference(CONFIG / "references" / "l4-cloud.csv")}
    assert l4 <= set(load("l4-cloud").settings["ollama-p1"].users)
    assert max(load("l4-cloud").settings["ollama-p32"].users) == 48
    main = [s for s in load("rtx4090").settings.values() if s.run == "main"]
    assert {s.users for s in main} == {(1, 10, 16, 50)}
    assert {(s.workload["mode"], s.workload["requests"]) for s in main} == {("count", 500)}
    prefix = [s for s in load("rtx4090").settings.values() if s.run == "shared-prefix"]
    assert {(s.workload["shared_prefix_tokens"], s.users) for s in prefix} == {(2000, (50,))}
    assert load("l4-cloud").cost["price_per_hour"] == 1.42
    assert load("l4-cloud").cost["currency"] == "USD"


IMAGES = {
    "ollama": "docker.io/ollama/ollama@sha256:910d0d8107b538fb0894e63163eb195de0cc7aefcbc666dc62d3b18f71124592",
    "llama": "ghcr.io/ggml-org/llama.cpp@sha256:4f27e30d776de6f162eaa9befed2c17fe05d51caffb74bbf276a897d3897bba7",
    "vllm": "docker.io/vllm/vllm-openai@sha256:d825baf9ce4b1b6bfc5ecc7b79880c7e6748c65a72d697ce3d47607aafa84c6e",
}
LLAMA = "-ngl 99 --jinja --reasoning-budget 0"
OLLAMA = "OLLAMA_CONTEXT_LENGTH=4096 OLLAMA_MAX_LOADED_MODELS=1 OLLAMA_KEEP_ALIVE=30m"
VLLM = "--gpu-memory-utilization 0.35 --max-model-len 4096 --max-num-seqs 256"
# As the source lists them: what differs between settings, and what all of an engine have in common.
H200 = {
    "ollama-p1": f"OLLAMA_NUM_PARALLEL=1 {OLLAMA}",
    "ollama-p4": f"OLLAMA_NUM_PARALLEL=4 {OLLAMA}",
    "ollama-p16": f"OLLAMA_NUM_PARALLEL=16 {OLLAMA}",
    "ollama-p64": f"OLLAMA_NUM_PARALLEL=64 {OLLAMA}",
    "llama-np4": f"-np 4 -c 16384 {LLAMA}",
    "llama-np16": f"-np 16 -c 65536 {LLAMA}",
    "llama-np64": f"-np 64 -c 262144 {LLAMA}",
    "llama-np16-q8_0": f"-np 16 -c 65536 {LLAMA}",
    "vllm-bf16": VLLM,
    "llama-np16-control": f"-np 16 -c 65536 {LLAMA}",
    "llama-np16-kv-unified": f"-np 16 -c 65536 --kv-unified {LLAMA}",
    "llama-np8": f"-np 8 -c 32768 {LLAMA}",
    "llama-np16-t8": f"-np 16 -c 65536 -t 8 {LLAMA}",
    "llama-np16-cache-ram0": f"-np 16 -c 65536 --cache-ram 0 {LLAMA}",
    "llama-np16-ub2048": f"-np 16 -c 65536 -b 2048 -ub 2048 {LLAMA}",
    "vllm-bf16-seqs256": VLLM,
}
RTX_VLLM = "--tensor-parallel-size 1 --gpu-memory-utilization 0.92 --max-num-seqs 256 --max-model-len 8192"
RTX_VLLM += " --block-size 16 --enable-chunked-prefill"
RTX4090 = {
    "vllm-bf16": RTX_VLLM,
    "vllm-prefix-cache-on": f"{RTX_VLLM} --enable-prefix-caching",
    "vllm-prefix-cache-off": f"{RTX_VLLM} --no-enable-prefix-caching",
    "ollama-p4": "OLLAMA_NUM_PARALLEL=4 OLLAMA_MAX_LOADED_MODELS=2 OLLAMA_KEEP_ALIVE=24h",
}
L4 = {"ollama-p1": "OLLAMA_NUM_PARALLEL=1", "ollama-p32": "OLLAMA_NUM_PARALLEL=32"}
# What a launcher gives by itself and the source leaves out, or does not have (--metrics, --generation-config).
OWN = {"-m", "--alias", "--served-model-name", "--host", "--port", "--metrics", "--generation-config"}


@pytest.fixture
def launched(tmp_path, monkeypatch):
    """(experiment, setting) -> the command line that would be run, with programs that are not there stood in for."""
    for program in ("docker", "ollama", "vllm"):
        (tmp_path / program).write_text("#!/bin/sh\n")
        (tmp_path / program).chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))

    def command(experiment, name):
        # Fewer CPUs than the experiment asks for would be refused.
        setting = msgspec.structs.replace(load(experiment).settings[name], cpus=None)
        launch = Launch(
            setting=setting,
            label="test",
            model_path=tmp_path / "models" / "blobs" / "sha256-00",
            environment=None,
            runtime=plan.Runtime(),
            log_path=tmp_path / "log",
            devices=(),
        )
        return engines.ADAPTERS[setting.engine.kind](launch).command(8080)

    return command


@pytest.mark.parametrize(
    ("experiment", "name", "published"),
    [(e, n, p) for e, all_ in (("h200", H200), ("rtx4090", RTX4090), ("l4-cloud", L4)) for n, p in all_.items()],
)
def test_every_published_argument_is_given_once_and_as_published(experiment, name, published, launched):
    made = launched(experiment, name)
    given = [*made.argv, *(f"{key}={value}" for key, value in made.env.items())]
    for flag, *value in flags(shlex.split(published)):
        places = [n for n, word in enumerate(given) if word == flag]
        assert places, f"{flag} is not given: {given}"
        assert all(given[n + 1 : n + 1 + len(value)] == value for n in places)
        assert len(places) == 1 or "=" in flag  # a variable may also stand in the container's --env
    image = IMAGES[name.split("-")[0]] if experiment == "h200" else given[0]
    assert image in made.argv
    unknown = {word for word in made.argv[made.argv.index(image) + 1 :] if re.match(r"--?[a-z]", word)}
    assert unknown <= OWN | set(published.split()), "given, but not published"


@pytest.mark.parametrize("experiment", ["h200", "rtx4090", "l4-cloud"])
def test_vllm_is_told_to_serve_the_model(experiment, launched):
    for name, setting in load(experiment).settings.items():
        if setting.engine.kind == "vllm":
            argv = launched(experiment, name).argv
            place = argv.index("serve")
            assert argv[place + 1].endswith("/sha256-00")
            before = argv[place - 1]
            assert before.startswith("docker.io/vllm/vllm-openai@sha256:") or before.endswith("/vllm")
            assert "--entrypoint" not in argv or argv[argv.index("--entrypoint") + 1] == "vllm"
            assert "--model" not in argv


def flags(words):
    """Split a command line into lists: a flag with its values, or VARIABLE=value."""
    found = []
    for word in words:
        if re.match(r"--?[a-zA-Z]|[A-Z_]+=", word):
            found.append([word])
        else:
            found[-1].append(word)
    return found


def test_the_evaluated_targets_are_the_published_ones_and_a_bridge_of_ours():
    asked = load("h200").evaluations
    published = [row["target"] for row in read_reference(CONFIG / "references" / "h200-quantization.csv")]
    assert list(asked.targets) == [*published, "BF16-GGUF"]
    assert {name: asked.targets[name].model.quantization for name in published} == {name: name for name in published}
    sources = {asked.targets[name].model.source.split("/")[3] for name in published}
    assert sources == {"Qwen3-14B-GGUF", "Qwen3-14B"}
    assert (asked.baseline, asked.repeats, list(asked.tasks)) == ("Q8_0", 2, ["jcommonsenseqa", "mgsm", "proofreading"])
    assert [task.questions for task in asked.tasks.values()] == [1119, 250, 300]
    assert asked.targets["Q4_K_M"].model.key != load("h200").settings["llama-np16"].model.key
    bridge = asked.targets["BF16-GGUF"]
    assert (bridge.engine.kind, bridge.model.quantization) == ("llama-server", "BF16")


def test_thinking_is_off_three_ways():
    settings = load("h200").settings
    assert all("--reasoning-budget" in s.args for s in settings.values() if s.engine.kind == "llama-server")
    assert {str(s.request) for s in settings.values() if s.engine.kind == "ollama"} == {"{'reasoning_effort': 'none'}"}
    bodies = [s.request for s in settings.values() if s.engine.kind == "vllm"]
    assert bodies == [{"chat_template_kwargs": {"enable_thinking": False}}] * 2


def test_ollama_and_llama_server_are_given_the_same_file():
    settings = load("h200").settings
    same = {s.model.key for s in settings.values() if s.engine.kind != "vllm" and s.name != "llama-np16-q8_0"}
    assert same == {"qwen3-14b-q4_k_m"}
    assert settings["llama-np16"].model.source == "ollama://qwen3:14b"


def test_published_facts_are_expected():
    expect = {name: setting.expect for name, setting in load("h200").settings.items()}
    assert [expect[f"ollama-p{n}"]["n_ubatch"] for n in (1, 4, 16, 64)] == [512, 1024, 2048, 2048]
    assert all(expect[f"ollama-p{n}"]["n_ubatch"] == expect[f"ollama-p{n}"]["n_batch"] for n in (1, 4, 16, 64))
    slots = {name: facts.get("n_ctx_slot") for name, facts in expect.items() if name.startswith("llama")}
    assert slots.pop("llama-np16-kv-unified") == 40960
    assert set(slots.values()) == {4096}
    assert expect["vllm-bf16"]["kv_cache_tokens"] == expect["vllm-bf16-seqs256"]["kv_cache_tokens"] == 122160
    assert {name: facts["threads"] for name, facts in expect.items() if "threads" in facts} == {
        name: 8 if name == "llama-np16-t8" else 96 for name in slots.keys() | {"llama-np16-kv-unified"}
    }


def test_the_load_and_the_line_are_the_published_ones():
    loaded = load("h200")
    (workload,) = {msgspec.json.encode(s.workload): s.workload for s in loaded.settings.values()}.values()
    assert workload["max_tokens"] == 256
    assert (workload["temperature"], workload["timeout_s"]) == (0, 120)
    assert (workload["warmup_s"], workload["window_s"], loaded.rounds) == (15, 60, 2)
    assert (loaded.line.ttft_p95_s, loaded.line.user_tok_s, loaded.line.min_targets) == (2.0, 10, 20)
    rule = loaded.runtime.foreign_use
    assert (rule.share, rule.samples, rule.action) == (0.05, 2, "discard")
    assert {str(s.cpus) for s in loaded.settings.values()} == {"{'server': 8, 'load': 8}"}


def test_every_image_has_its_digest():
    images = yaml.safe_load((ROOT / "envs" / "images.yaml").read_text(encoding="utf-8"))
    assert all(re.fullmatch(r"sha256:[0-9a-f]{64}", entry["digest"]) for entry in images.values())


@pytest.mark.parametrize("name", ["h200", "l4-cloud", "l4-cloud-url", "rtx4090"])
def test_what_nothing_pins_is_said_in_both_languages(name):
    loaded = load(name)
    texts = [loaded.title, *loaded.deviations, *loaded.unverified]
    texts += [model.unverified for model in loaded.models.values() if not model.sha256]
    assert all(set(text) == {"en", "ja"} for text in texts)


@pytest.mark.skipif(sys.platform == "darwin", reason="needs a Python that can be without UTF-8")
def test_without_utf_8_nothing_starts(tmp_path):
    command = [sys.executable, "-m", "snakemake", "--snakefile", ROOT / "Snakefile", "--directory", tmp_path, "-n"]
    env = {**os.environ, "LC_ALL": "C", "PYTHONUTF8": "0"}
    command += ["--cores", "1", "--configfile", CONFIG / "config.yaml"]
    done = subprocess.run(command, env=env, capture_output=True, text=True)
    assert done.returncode == 1
    assert "names and texts are ascii for Python here, not UTF-8; unset PYTHONUTF8, or export LC_ALL=C.UTF-8" in (
        done.stdout + done.stderr
    )
