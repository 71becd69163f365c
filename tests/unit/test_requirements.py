"""Work out what an experiment needs before any of it has been fetched."""

import errno
import hashlib
import io
import json
import re
import shutil
import subprocess

import msgspec
import pytest
import yaml
from msgspec.structs import replace
from rich.console import Console
from typer.testing import CliRunner

import servebench
from servebench import configuration
from servebench.cli import app as cli
from servebench.cli import plan as plan_command
from servebench.engines import environment
from servebench.faults import Fault
from servebench.load.modes import MODES
from servebench.load.objective import Objective
from servebench.models import ollama
from servebench.models.checking import Wanted, accept
from servebench.outlook import duration, requirements

CONFIG = servebench.ROOT / "config"


@pytest.fixture(scope="module")
def h200():
    return configuration.read([CONFIG / "h200.yaml"])


def test_the_published_memory_of_llama_server_comes_near_what_is_asked_for(h200, tmp_path):
    """GPU memory as published: np4 11.6, np16 19.1, np64 49.1 GiB; what is needed at least is weights and KV cache."""
    needed = {one.setting: one.gib for one in requirements.memory(h200, tmp_path, tmp_path)}
    assert needed["llama-np4"] == pytest.approx(11.6)
    assert needed["llama-np16"] == pytest.approx(19.1)
    assert needed["llama-np64"] == pytest.approx(49.1)
    assert needed["llama-np64"] - needed["llama-np16"] == pytest.approx(30.0)


def test_vllm_needs_room_for_one_request_in_its_share(h200, tmp_path):
    (one,) = [one for one in requirements.memory(h200, tmp_path, tmp_path) if one.setting == "vllm-bf16"]
    assert (one.share, one.cache_gib) == (0.35, 0.625)
    assert one.gib == pytest.approx((30.8 + 0.625) / 0.35)


def test_each_model_is_fetched_once_and_its_size_is_about_until_it_is_known(h200, tmp_path):
    found = requirements.downloads(h200, tmp_path, tmp_path)
    assert [d.model.key for d in found][:3] == ["qwen3-14b-q4_k_m", "qwen3-14b-q8_0", "qwen3-14b-bf16"]
    assert {d.model.key for d in found} == set(h200.models)
    assert {d.model.key for d in found if d.exact or d.present or d.sha256} == {"qwen3-14b-bf16-gguf"}  # pinned
    manifest = tmp_path / "models" / "qwen3-14b-q8_0.json"
    manifest.parent.mkdir()
    (tmp_path / "blob").write_bytes(b"weights")
    layers = [{"count": 2, "kv_heads": 1, "key_size": 128, "value_size": 128, "window": None}]
    kept = {"size_bytes": 7, "sha256": "ab" * 32, "path": "blob", "facts": {"layers": 2, "kv_layers": layers}}
    manifest.write_text(json.dumps(kept | {"source": h200.models["qwen3-14b-q8_0"].source}))
    q8 = requirements.downloads(h200, tmp_path, tmp_path)[1]
    assert (q8.size_bytes, q8.exact, q8.present, q8.sha256) == (7, True, True, "ab" * 32)
    found = requirements.memory(h200, tmp_path, tmp_path)
    (one,) = [one for one in found if one.setting == "llama-np16-q8_0"]
    assert one.cache_gib == 16 * 4096 * 1024 / 2**30


def test_what_another_experiment_has_fetched_is_in_the_cache_however_it_is_pinned(h200, tmp_path):
    model = h200.models["qwen3-14b-q4_k_m"]
    (hub_file, snapshot), kept = (h200.models[key] for key in ("qwen3-14b-q8_0", "qwen3-14b-bf16")), tmp_path / "models"
    pinned = msgspec.structs.replace(model, key="pinned", sha256=hashlib.sha256(b"weights").hexdigest())
    plan = plan_of(h200, [model, hub_file, snapshot, pinned])
    assert not any(one.present for one in requirements.downloads(plan, tmp_path, tmp_path))
    for store in (kept / "ollama", kept / str(pinned.sha256)):
        ollama_store(store, model.source)
    file = kept / "hf" / "Qwen--Qwen3-14B-GGUF@None--Qwen3-14B-Q8_0.gguf" / "Qwen3-14B-Q8_0.gguf"
    part = kept / "hf" / "Qwen--Qwen3-14B@None" / "tokenizer.json"
    for path, accepted in ((file, file), (part, part.parent)):
        path.parent.mkdir(parents=True)
        path.write_bytes(b"weights")
        accept(accepted, Wanted())
    found = requirements.downloads(plan, tmp_path, tmp_path)
    assert [(one.size_bytes, one.exact, one.present) for one in found] == [(7, True, True)] * 4
    assert all(line.endswith(", in the cache") for line in plan_command.models(plan, tmp_path, tmp_path))
    next((kept / "ollama" / "manifests").rglob("14b")).write_text("cut")
    assert [one.present for one in requirements.downloads(plan, tmp_path, tmp_path)] == [False, True, True, True]


def plan_of(h200, fetched):
    """The plan with a setting for each of these models."""
    one = h200.settings["llama-np16"]
    settings = {model.key: msgspec.structs.replace(one, name=model.key, model=model) for model in fetched}
    known = {model.key: model for model in fetched}
    return msgspec.structs.replace(h200, settings=settings, models=known, evaluations=None)


def ollama_store(store, source):
    """Make an Ollama store that has this source, of seven bytes."""
    parts = []
    (store / "blobs").mkdir(parents=True)
    for kind, content in (("config", b"{}"), ("model", b"weights")):
        digest = f"sha256:{hashlib.sha256(content).hexdigest()}"
        ollama.blob_path(store, digest).write_bytes(content)
        parts.append({"mediaType": f"application/vnd.ollama.image.{kind}", "digest": digest})
    manifest = store / ollama.parse(source).manifest
    manifest.parent.mkdir(parents=True)
    manifest.write_text(json.dumps({"config": parts[0], "layers": parts[1:]}))


def test_sliding_windows_bound_the_cache_and_without_facts_it_is_not_known(tmp_path):
    """As `servebench kv-cache` has it: 28 of 35 layers keep 512 tokens of a stream, and a layer takes 1 KiB a token."""
    l4 = configuration.read([CONFIG / "l4-cloud.yaml"])
    windows = [
        {"count": 28, "kv_heads": 1, "key_size": 256, "value_size": 256, "window": 512},
        {"count": 7, "kv_heads": 1, "key_size": 256, "value_size": 256, "window": None},
    ]
    (tmp_path / "models").mkdir()

    def gib(facts):
        kept = {"source": l4.models["gemma-4-e2b-4bit"].source, "size_bytes": 7, "sha256": "ab" * 32, "path": "blob"}
        manifest = json.dumps(kept | {"facts": facts})
        (tmp_path / "models" / "gemma-4-e2b-4bit.json").write_text(manifest)
        return {one.setting: one.cache_gib for one in requirements.memory(l4, tmp_path, tmp_path)}["ollama-p32"]

    assert gib({"layers": 35, "kv_layers": windows}) == 32 * 1024 * (28 * 512 + 7 * 4096) / 2**30
    assert gib({}) is None


@pytest.mark.parametrize(
    ("args", "share"),
    [([], 0.35), (["--gpu-memory-utilization", "0.5"], 0.5), (["--gpu-memory-utilization=0.5"], 0.5),
     (["--gpu-memory-utilization", "0.5", "--gpu-memory-utilization=0.7"], 0.7)],
)  # fmt: skip
def test_the_share_of_the_device_is_the_one_the_engine_is_given(config, tmp_path, args, share):
    config["settings"]["vllm-bf16"]["args"] = args
    (one,) = [one for one in needed(config, tmp_path) if one.setting == "vllm-bf16"]
    assert one.share == share


@pytest.mark.parametrize("given", ["half", "0", "nan", "2"])
def test_a_share_that_is_none(config, tmp_path, given):
    config["settings"]["vllm-bf16"]["args"] = [f"--gpu-memory-utilization={given}"]
    with pytest.raises(Fault, match=f"^settings.vllm-bf16.args: '{given}' is not a share of the device's memory; give"):
        needed(config, tmp_path)


@pytest.fixture
def config():
    return yaml.safe_load((CONFIG / "h200.yaml").read_text(encoding="utf-8"))


def needed(config, tmp_path):
    return requirements.memory(configuration.load(config, [CONFIG / "h200.yaml"]), tmp_path, tmp_path)


def test_a_model_nothing_is_known_of_has_no_size(tmp_path):
    l4 = configuration.read([CONFIG / "l4-cloud.yaml"])
    (one,) = [d for d in requirements.downloads(l4, tmp_path, tmp_path) if d.model.key == "gemma-4-e2b-4bit"]
    assert one.size_bytes is None
    assert {one.setting for one in requirements.memory(l4, tmp_path, tmp_path) if one.gib is None} == set(l4.settings)


def test_engines_that_need_a_gpu_are_named_where_there_is_none(h200, tmp_path, monkeypatch):
    monkeypatch.setattr(requirements.gpu, "resolve", lambda device: None)
    first = next(plan_command.memory(h200, tmp_path, tmp_path))
    assert first.startswith("GPU: this machine has none, and these need one: ")
    named = set(first.partition(" one: ")[2].split(", "))
    assert {"vllm-bf16", "llama-np4"} <= named
    assert "ollama-p1" not in named, "Ollama's image runs on CPUs as well"


@pytest.mark.parametrize(
    ("there", "answer", "told"),
    [
        ([], 0, "NOT FOUND: docker, apptainer or podman"),
        (["docker"], 1, "daemon DOES NOT ANSWER"),
        (["docker"], 0, ""),
        (["docker", "apptainer"], 1, "daemon DOES NOT ANSWER"),  # docker is used where both are
        (["podman"], 1, "DOES NOT WORK"),
        (["podman", "apptainer"], 1, ""),
        (["apptainer"], 1, ""),
    ],
)
def test_what_keeps_images_from_being_run(h200, tmp_path, monkeypatch, there, answer, told):
    monkeypatch.setattr(shutil, "which", lambda name: f"/usr/bin/{name}" if name in there else None)

    def run(argv, **options):
        if answer:
            raise subprocess.CalledProcessError(answer, argv)

    monkeypatch.setattr(subprocess, "run", run)
    fault = requirements.container_fault(h200)
    assert (fault is None) == (not told) and told in (fault or "")
    line = next(line for line in plan_command.engines(h200, tmp_path) if "image docker.io/vllm" in line)
    assert line.endswith(fault or "c6e")


def test_a_program_is_looked_for_where_it_would_be_started(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    config = yaml.safe_load((CONFIG / "config.yaml").read_text(encoding="utf-8"))
    config["engines"]["llama-cpp"] = {"kind": "llama-server", "runtime": "binary", "binary": "~/llama-server"}
    loaded = configuration.load(config, [CONFIG / "config.yaml"])
    (line,) = plan_command.engines(loaded, tmp_path)
    assert "~/llama-server, NOT FOUND" in line
    (tmp_path / "llama-server").touch(mode=0o755)
    (line,) = plan_command.engines(loaded, tmp_path)
    assert line.endswith(f"program {tmp_path / 'llama-server'}")


def own_model(tmp_path, path):
    config = yaml.safe_load((CONFIG / "config.yaml").read_text(encoding="utf-8"))
    del config["evaluations"]
    model = {"source": f"file://{path}", "sha256": "ab" * 32}
    one = config["settings"]["np4"] | {"model": "mine"}
    config |= {"models": {"mine": model}, "settings": {"np4": one}}
    return configuration.load(config, [CONFIG / "config.yaml"])


def test_a_quantized_cache_needs_its_own_size_whether_the_file_is_there_or_not(h200, tmp_path):
    def gib(**asked):
        setting = msgspec.structs.replace(h200.settings["llama-np16"], **asked)
        plan = msgspec.structs.replace(h200, settings={"llama-np16": setting}, evaluations=None)
        (found,) = requirements.memory(plan, tmp_path, tmp_path)
        return found.cache_gib

    eight_bits = ("-ctk", "q8_0", "-ctv", "q8_0")
    assert (gib(), gib(args=eight_bits), gib(args=("-ctk", "q2_k"))) == (10.0, 10 * 34 / 64, None)
    layers = [{"count": 40, "kv_heads": 8, "key_size": 128, "value_size": 128, "window": None}]
    model = h200.settings["llama-np16"].model
    facts = {"layers": 40, "kv_bytes_per_token": 160 * 1024, "kv_layers": layers}
    manifest = {"source": model.source, "size_bytes": 7, "sha256": "ab" * 32, "path": "blob", "facts": facts}
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / f"{model.key}.json").write_text(json.dumps(manifest))
    assert (gib(), gib(args=eight_bits), gib(args=("-ctk", "q2_k"))) == (10.0, 10 * 34 / 64, None)


def test_the_key_of_a_server_is_said_to_be_missing_where_it_is_not_set(tmp_path, monkeypatch):
    l4 = configuration.read([CONFIG / "l4-cloud.yaml", CONFIG / "l4-cloud-url.yaml"])
    engine = msgspec.structs.replace(l4.engines["vllm"], api_key_env="FAR_KEY")
    setting = msgspec.structs.replace(next(iter(l4.settings.values())), engine=engine)
    plan = msgspec.structs.replace(l4, engines={"vllm": engine}, settings={setting.name: setting})
    monkeypatch.delenv("FAR_KEY", raising=False)
    (line,) = plan_command.engines(plan, tmp_path)
    assert line.endswith("a placeholder, its key in FAR_KEY, NOT SET: export it before the run")
    monkeypatch.setenv("FAR_KEY", "secret")
    (line,) = plan_command.engines(plan, tmp_path)
    assert line.endswith("a placeholder, its key in FAR_KEY")


def test_an_environment_that_is_in_the_cache_is_not_to_be_made(tmp_path, monkeypatch):
    plan = configuration.read([CONFIG / "config.yaml"])
    done = subprocess.CompletedProcess([], 0, stdout="[]", stderr="")
    monkeypatch.setattr(environment.subprocess, "run", lambda *_, **__: done)
    (line,) = plan_command.engines(plan, tmp_path)
    assert line.endswith(": environment llama-cpp, to be made")
    lock = servebench.ROOT / "envs" / "llama-cpp.lock"
    place = environment.place("llama-cpp", lock, tmp_path)
    (place / "bin").mkdir(parents=True)
    monkeypatch.setattr(environment.shutil, "rmtree", lambda *_, **__: None)
    (place / "bin" / "python").touch()
    environment.make("llama-cpp", lock, tmp_path)
    (line,) = plan_command.engines(plan, tmp_path)
    assert line.endswith(": environment llama-cpp, in the cache")


def test_a_model_on_this_machine_is_looked_at_and_not_downloaded(tmp_path):
    model = tmp_path / "mine"
    model.mkdir()
    sizes = {"num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8}
    (model / "config.json").write_text(json.dumps(sizes), encoding="utf-8")
    plan, size = own_model(tmp_path, model), (model / "config.json").stat().st_size
    (line,) = plan_command.models(plan, tmp_path, tmp_path)
    assert line == f"mine: file://{model}, 0 MB, sha256 abababababab…, there, to be taken into the cache"
    (one,) = requirements.memory(plan, tmp_path, tmp_path)
    setting = plan.settings["np4"]
    assert one.weights_gib == size / 2**30
    assert one.cache_gib == 2 * 2 * 2 * 8 * 2 * setting.slots * setting.context / 2**30
    assert not [line for line in plan_command.needs(plan, tmp_path, tmp_path) if line.startswith("disk for models")]


def test_a_model_that_is_not_where_its_source_says(tmp_path):
    (line,) = plan_command.models(own_model(tmp_path, "/no/m.gguf"), tmp_path, tmp_path)
    assert line.endswith("size not known, sha256 abababababab…, NOT FOUND: put it there or name another source")


def test_a_model_file_that_is_cut_is_named(tmp_path):
    (tmp_path / "m.gguf").write_bytes(b"GGUF\x03\0\0\0")
    with pytest.raises(Fault, match=f"^models.mine: {tmp_path}/m.gguf: "):
        requirements.memory(own_model(tmp_path, tmp_path / "m.gguf"), tmp_path, tmp_path)


def test_what_is_not_verified_is_listed(h200):
    where = [place for place, _ in requirements.unverified(h200)]
    not_pinned = [key for key in h200.models if key != "qwen3-14b-bf16-gguf"]
    assert sorted(where) == sorted([f"models.{key}" for key in not_pinned] + ["h200"] * len(h200.unverified))


def test_a_search_for_an_objective_on_a_p99_is_announced_with_its_longer_windows(h200):
    setting = h200.settings["ollama-p1"]
    longer = replace(h200, objectives={"tail": Objective(limits={"e2e_p99_s": 60.0})})
    (count, plain_s), (same, longer_s) = (duration.search_s(one, setting) for one in (h200, longer))
    assert count == same and longer_s - plain_s == pytest.approx(count * 80 * 6.4)


@pytest.mark.parametrize("kind", ["simulator", "url"])
def test_what_is_not_verified_is_listed_though_no_file_is_loaded(kind):
    config = yaml.safe_load((servebench.ROOT / "config" / "config.yaml").read_text(encoding="utf-8"))
    config["engines"] = {"llama-cpp": {"kind": kind, "url": "http://127.0.0.1:9"}}
    (key, other) = list(config["models"])[:2]
    config["models"] = {key: {"source": "hf://a/b", "unverified": "no revision"}, other: config["models"][other]}
    config["settings"] = {"one": config["settings"]["np4"] | {"model": key}}
    del config["evaluations"]
    assert list(requirements.unverified(configuration.load(config, ["c.yaml"]))) == [(f"models.{key}", "no revision")]


def test_a_measurement_takes_its_warm_up_its_window_and_the_queue(h200):
    """The window lasts until 20 requests were sent: at one slot 20 replies of 6.4 s, with more slots the 60 s."""
    one_user = duration.measurement_s(h200.settings["ollama-p1"], 1)
    assert one_user == pytest.approx(duration.OVERHEAD_S + 15 + 20 * 6.4 + 6.4)
    eight = duration.measurement_s(h200.settings["ollama-p1"], 8)
    assert eight == pytest.approx(duration.OVERHEAD_S + 20 * 6.4 + 2 * 8 * 6.4)
    p99 = duration.measurement_s(h200.settings["ollama-p1"], 1, least=100)
    assert p99 == pytest.approx(duration.OVERHEAD_S + 15 + 100 * 6.4 + 6.4)
    four_slots = duration.measurement_s(h200.settings["ollama-p4"], 8)
    assert four_slots == pytest.approx(duration.OVERHEAD_S + 15 + 60 + 2 * 6.4)


def test_the_plan_warns_of_numbers_of_users_with_too_few_requests_to_judge(h200):
    """60 s ÷ 6.4 s: 9 requests with one user, 18 with two, 37 with four."""
    assert list(duration.too_few(h200)) == []
    own = h200.settings["ollama-p4"]
    short = replace(own, workload={k: v for k, v in own.workload.items() if k != "min_targets"}, users=(1, 2, 4))
    (line,) = duration.too_few(replace(h200, settings={"ollama-p4": short}))
    assert line.startswith("ollama-p4: with 1, 2 users about 9 requests are expected")
    assert line.endswith("set workload.min_targets: 20")
    assert [duration.expected_requests(short, users) for users in (1, 2, 4, 8)] == [9, 18, 37, 37]


@pytest.mark.parametrize(
    ("workload", "requests"),
    [
        ({"mode": "open", "rate": 0.5}, 30),
        ({"mode": "open-users", "user_rate": 0.25}, 15),
        ({"mode": "count", "requests": 7}, 7),
        ({"think": "exp:6.4"}, 4),
        ({"think": "uniform:0,12.8"}, 4),
        ({"min_targets": 25}, 25),
    ],
)
def test_how_many_requests_are_expected_of_one_user(h200, workload, requests):
    own = h200.settings["ollama-p4"]
    base = {k: v for k, v in own.workload.items() if k != "min_targets"}
    assert duration.expected_requests(replace(own, workload=base | workload), 1) == requests


def test_every_example_keeps_the_window_open_until_it_can_be_judged():
    blocks = [yaml.safe_load(path.read_text(encoding="utf-8")) for path in CONFIG.glob("*.yaml")]
    for path in [CONFIG / "README.md", *CONFIG.parent.glob("docs/*.md"), CONFIG.parent / "README.md"]:
        text = path.read_text(encoding="utf-8")
        blocks += [yaml.safe_load(block) for block in re.findall(r"```yaml\n(.*?)```", text, re.S)]
    loads = [b["workload"] for b in blocks if isinstance(b, dict) and "settings" in b and "workload" in b]
    assert len(loads) >= 5
    assert {load["min_targets"] for load in loads if not MODES[load.get("mode", "closed")].ends_itself} == {20}


def test_completions_take_turns_in_slots():
    counted = configuration.read([CONFIG / "rtx4090.yaml"]).settings["ollama-p4"]
    reply_s = 256 / duration.USER_TOK_S
    assert duration.measurement_s(counted, 1) == pytest.approx(duration.OVERHEAD_S + 500 * reply_s)
    assert duration.measurement_s(counted, 50) == pytest.approx(duration.OVERHEAD_S + 125 * reply_s)


def test_an_evaluation_takes_its_replies_over_those_at_once(h200):
    asked = h200.evaluations
    tokens = 2 * (1119 * 8 + 250 * 350 + 300 * 50)
    q6 = asked.targets["Q6_K"]
    assert duration.evaluation_s(asked, q6) == pytest.approx(duration.start_s(q6) + tokens / 8 / duration.USER_TOK_S)
    q8 = asked.targets["Q8_0"]  # 100 questions more of an idle server, and in a queue of 16 users for 8 slots
    more = 100 * 350 * (1 + 2)
    assert duration.evaluation_s(asked, q8) - duration.start_s(q8) == pytest.approx(
        (tokens / 8 + more) / duration.USER_TOK_S
    )


def test_the_command_says_it_all(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SERVEBENCH_CACHE", str(tmp_path / "cache"))
    result = CliRunner().invoke(cli.app, ["plan", "--configfile", str(CONFIG / "h200.yaml")])
    assert result.exit_code == any(word in result.output for word in plan_command.LACKING), result.output
    for text in (
        "main: 18 sessions, 106 measurements",
        "extra: 14 sessions, 42 measurements",
        "148 to measure: about ",
        f"results: {tmp_path}/results/h200, not there yet",
        "qwen3-14b-q4_k_m: ollama://qwen3:14b, about 9.8 GB, not verified, to be fetched",
        "image docker.io/vllm/vllm-openai:v0.33.0@sha256:d825baf9",
        f"disk for models, {tmp_path}/cache: about 88.1 GB, ",
        "CPUs: 16 (8 for the server, 8 for the load) of ",
        "models.qwen3-14b-bf16: Neither the revision nor a hash of the file is published.",
        "The 400 documents, the system sentence",
    ):
        assert text in result.output
    left = {path.name for path in tmp_path.iterdir()}
    assert left <= {"cache"}, "a plan leaves only the bandwidth of a CPU's memory behind"


def test_how_long_a_setting_takes_is_not_cut_where_the_console_is_narrow(h200):
    console = Console(width=60, file=io.StringIO())
    console.print(plan_command.settings_table(h200))
    takes = [duration.minutes(duration.session_s(s)) for s in h200.settings.values()]
    said = console.file.getvalue()
    assert all(one in said for one in takes) and "…" not in said


def test_the_runs_of_a_grid_stand_in_one_table_and_what_is_alike_is_said_once(tmp_path):
    grid = configuration.read([CONFIG / "lengths.yaml"])
    console = Console(width=100, file=io.StringIO())
    console.print(plan_command.settings_table(grid))
    said = console.file.getvalue()
    assert said.count("each round") == 1 and all(f" {run} " in said for run in grid.runs)
    counts, *_ = plan_command.to_measure(grid, tmp_path / "lengths", ())
    assert counts.startswith(", ".join(grid.runs) + ": 2 sessions, 4 measurements ") and len(grid.runs) == 14


def test_several_configurations_stand_behind_one_option_as_for_snakemake(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    overlay = tmp_path / "site.yaml"
    overlay.write_text("experiment: h200-site\nruntime: {job_minutes: 240}\n", encoding="utf-8")
    with pytest.raises(SystemExit) as end:
        cli.main(["plan", "--configfile", str(CONFIG / "h200.yaml"), str(overlay), "--language", "en"])
    said = capsys.readouterr().out
    assert end.value.code == any(word in said for word in plan_command.LACKING)
    assert "experiment h200-site: 16 settings" in said


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (OSError(errno.ENOSPC, "No space left on device"), "No space left on device; make room and run the same again"),
        (IsADirectoryError(errno.EISDIR, "Is a directory", "out"), "out: Is a directory\n"),
    ],
)
def test_a_disk_that_is_full_and_a_place_that_is_none_are_said_in_one_line(monkeypatch, capsys, error, said):
    def fails(*_):
        raise error

    monkeypatch.setattr(plan_command, "command", fails)
    with pytest.raises(SystemExit) as end:
        cli.main(["plan"])
    err = capsys.readouterr().err
    assert (end.value.code, err.count("\n")) == (1, 1)
    assert err.startswith(f"servebench: {said}")


def test_a_language_nobody_wrote_is_refused_with_those_there_are(capsys):
    with pytest.raises(SystemExit) as end:
        cli.main(["plan", "--language", "xx"])
    assert end.value.code == 1
    assert capsys.readouterr() == ("", "servebench: --language: 'xx' is unknown; one of en, ja\n")


@pytest.mark.parametrize(
    ("memory", "there_gib", "told"),
    [
        # 10 GiB of weights and 0.5 GiB for each of 4 contexts
        ({"cache_gib": 2.0, "streams": 4}, 12.0, "room for 4 contexts of 4,096 tokens: s"),
        ({"cache_gib": 2.0, "streams": 4}, 24.0, "room for 28 contexts of 4,096 tokens: s"),
        ({"cache_gib": 2.0, "streams": 4}, 11.0, "room for 2 contexts of 4,096 tokens; slots: 2 would fit: s"),
        (
            {"cache_gib": 2.0, "streams": 4},
            10.25,
            "room for 0 contexts of 4,096 tokens; context: 2048 with slots: 1 would fit: s",
        ),
        ({"cache_gib": 2.0, "streams": 4}, 9.0, "room for 0 contexts of 4,096 tokens; the weights alone do not fit: s"),
        (
            {"cache_gib": 0.5, "share": 0.5},
            20.0,
            "room for 0 contexts of 4,096 tokens; the engine's share of the memory would have to be 53 %: s",
        ),
        ({"cache_gib": 0.5, "share": 0.9}, 20.0, "room for 16 contexts of 4,096 tokens: s"),
    ],
)
def test_the_room_for_contexts_and_what_would_fit(memory, there_gib, told):
    one = requirements.Memory(setting="s", weights_gib=10.0, context=4096, fills_device=True, **memory)
    device = requirements.Device(gpu=None, memory_gib=there_gib, free_gib=0.0)
    assert list(plan_command.room([one], device)) == [told]


def test_an_engine_that_takes_what_it_needs_has_nine_tenths_of_what_is_free():
    """0.9 x 20 = 18 GiB, 8 of them beside the weights: 16 contexts of 0.5 GiB."""
    one = requirements.Memory(setting="s", weights_gib=10.0, context=4096, cache_gib=2.0, streams=4)
    device = requirements.Device(gpu=None, memory_gib=64.0, free_gib=20.0)
    assert list(plan_command.room([one], device)) == ["room for 16 contexts of 4,096 tokens: s"]
