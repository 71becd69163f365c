"""A configuration is accepted, or refused with one line that names file, key, value and remedy."""

import copy
import json
import math
import re

import jsonschema
import msgspec
import pytest
import yaml
from snakemake.cli import parse_config

import servebench
from servebench import configuration, plan
from servebench.configuration import schema
from servebench.load.modes import MODES
from servebench.outlook import inventory
from servebench.sessions import job

CONFIG = servebench.ROOT / "config"
QUICKSTART = CONFIG / "config.yaml"


@pytest.fixture
def config():
    return yaml.safe_load(QUICKSTART.read_text(encoding="utf-8"))


def load(config):
    return configuration.load(config, [QUICKSTART])


def test_the_quick_start_in_order(config):
    loaded = load(config)
    order = [(s.round, s.setting.name) for s in loaded.sessions()]
    names = ["np1", "np4", "np4-kv-unified", "np4-q8_0"]
    assert order == [(1, n) for n in names] + [(2, n) for n in reversed(names)]
    assert loaded.measurements == 2 * sum(len(entry["users"]) for entry in config["settings"].values())


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda c: c["settings"]["np1"].update(slots=0), "settings.np1.slots: 0 is smaller than 1; use a positive int"),
        (lambda c: c["settings"]["np1"].update(slots="4"), 'settings.np1.slots: "4" is not an integer'),
        (lambda c: c["settings"]["np1"].update(slots=4.0), "settings.np1.slots: 4.0 is not an integer"),
        (lambda c: c["settings"]["np1"].update(users=[1.0]), "settings.np1.users.0: 1.0 is not an integer"),
        (lambda c: c["workload"].update(window_s=math.nan), "workload.window_s: NaN is not a number"),
        (lambda c: c["workload"].update(warmup_s=math.inf), "workload.warmup_s: Infinity is not a number"),
        (lambda c: c["workload"].update(prompts="docs"), "workload.prompts: 'docs' is neither a built-in set"),
        (lambda c: c["settings"]["np1"].update(slot=1), "settings.np1.slot: is not a known key; known here: args, con"),
        (lambda c: c["settings"]["np1"].pop("users"), "settings.np1: lacks users; add it"),
        (lambda c: c["settings"]["np1"].update(users=[]), "settings.np1.users: [] has fewer than 1 entries"),
        (lambda c: c["settings"]["np1"].update(users=4), "settings.np1.users: 4 is not a list; write [4]"),
        (lambda c: c["settings"]["np1"].update(users="1,2"), 'settings.np1.users: "1,2" is not a list; write [1, 2]'),
        (lambda c: c["settings"]["np1"].update(matrix={"slots": []}), "settings.np1.matrix.slots: is empty; give"),
        (lambda c: c["settings"]["np1"].update(matrix={"slots": 4}), "slots: 4 is not a list of values; write [4]"),
        (lambda c: c["settings"]["np1"].update(args="-fa"), 'settings.np1.args: "-fa" is not a list; write ["-fa"]'),
        (lambda c: c["settings"]["np1"].update(args="-ub 256"), 'args: "-ub 256" is not a list; write ["-ub", "256"]'),
        (lambda c: c["settings"]["np1"].update(args=["-ub 256"]), 'np1.args.0: "-ub 256" is an option and its value'),
        (lambda c: c["models"].update(x={"source": "/m.gguf"}), 'models.x.source: "/m.gguf" does not fit; write file'),
        (lambda c: c["settings"]["np1"].update(users=[4, 4]), "settings.np1.users: [4, 4] names an entry twice"),
        (lambda c: c["settings"]["np1"].update(model="gpt"), "settings.np1.model: 'gpt' is not defined; models are: s"),
        (lambda c: c["settings"]["np1"].update(engine="x"), "settings.np1.engine: 'x' is not defined; engines are: l"),
        (lambda c: c["settings"].update({"../up": c["settings"]["np1"]}), "settings: "),
        (lambda c: c["engines"]["llama-cpp"].update(kind="tgi"), "engines.llama-cpp.kind: 'tgi' is not an engine"),
        (lambda c: c["engines"]["llama-cpp"].update(environment="no"), "environment: there is no envs/no.lock"),
        (lambda c: c["engines"]["llama-cpp"].update(runtime="binary"), "engines.llama-cpp: lacks binary, which runtim"),
        (lambda c: c["models"]["smollm2-q4_1"].pop("sha256"), "models.smollm2-q4_1: lacks sha256"),
        (lambda c: c["models"]["smollm2-q4_1"].pop("sha256"), "; add it: sha256sum FILE prints it"),
        (lambda c: c["models"]["smollm2-q8_0"]["requantize"].update({"from": "no"}), "requantize.from: 'no' is not a"),
        (lambda c: c["models"]["smollm2-q4_1"].update(unverified="?"), "models.smollm2-q4_1.unverified: but sha256 or"),
        (lambda c: c["models"].update(x={"source": "hf://a/b/c.gguf@main"}), "models.x.source: 'hf://a/b/c.gguf@main'"),
        (lambda c: c["models"].update(x={"source": "ollama://qwen3:14b"}), "models.x.source: 'ollama://qwen3:14b' may"),
        (lambda c: c.update(runs={"main": {}, "extra": {"control": "np1"}}), "runs.extra.control: 'np1' is not a sett"),
        (lambda c: c["runtime"].update(ports=[9999, 2000]), "runtime.ports: [9999, 2000] is not a valid range; g"),
        (lambda c: c.update(reference="nothing"), "reference: there is no config/references/nothing-concurrency.csv"),
        (lambda c: c.update(cost={"price_per_hour": 1, "currency": "JPY"}), 'cost.currency: "JPY" is not one of USD'),
        (lambda c: c["workload"].pop("window_s"), "workload: lacks window_s, which mode closed needs"),
        (lambda c: c["workload"].update(mode="count"), "workload: lacks requests, which mode count needs"),
        (lambda c: c["workload"].update(prompts="nowhere"), "workload.prompts: 'nowhere' is neither a built-in set"),
        (lambda c: c["settings"]["np1"].update(context=32), "settings.np1.context: 32 is too small: prompts have "),
        (lambda c: c["workload"].update(max_tokens=1024), "settings.np1.context: 512 is too small: prompts have "),
        (
            lambda c: c["workload"].update(prompts={"tokens": 512}),
            "settings.np1.context: 512 is too small: prompts have 512 tokens and replies 12; give at least 524",
        ),
        (lambda c: c["workload"].update(prompts="README.md"), "README.md: is not JSON in UTF-8"),
        (lambda c: c["workload"].update(prompts="config/tasks/proofreading/sentences.jsonl"), "jsonl:1: has ne"),
        (lambda c: c["workload"].update(think="a while"), "workload.think: 'a while' is not a pause; write sec"),
        (lambda c: c["workload"].update(trace="nowhere.jsonl"), "nowhere.jsonl: cannot be read: No such file or direc"),
        (lambda c: c["workload"].update(trace="pyproject.toml"), "pyproject.toml:1: is not JSON"),
        (lambda c: c["settings"]["np1"].update(request={"n": 2}), "settings.np1.request.n: cannot be changed; what is"),
        (lambda c: c["engines"]["llama-cpp"].update(request={"model": "x"}), "engines.llama-cpp.request.model: cannot"),
        (lambda c: c["settings"]["np1"].update(request={"max_tokens": "8"}), "request.max_tokens: '8' is not a token"),
        (lambda c: c["settings"]["np1"].update(request={"max_tokens": -1}), "request.max_tokens: -1 is not a token c"),
        (lambda c: c["settings"]["np1"].update(request={"a": [float("inf")]}), "request.a.0: inf is not a JSON num"),
        (lambda c: c["settings"]["np1"].update(request={1: 2}), "settings.np1.request.1: 1 is not a string key"),
        (lambda c: c["settings"]["np1"].update(context=300), "np1.context: 300 is rounded up by llama-server; use 512"),
        (lambda c: c["settings"]["np4"].update(args=["-kvu"], context=300), "rounded up by llama-server; use 320"),
        (lambda c: with_asked(c, "ollama", context=96), "np4.context: 96 is rounded up by ollama; use 256"),
        (lambda c: with_asked(c, "ollama", request={"grammar": "x"}), "grammar: is ignored by ollama; use respo"),
        (lambda c: with_asked(c, "ollama", request={"max_completion_tokens": 9}), "is ignored by ollama; use max_t"),
        (lambda c: with_asked(c, "ollama")["engines"]["ollama"].update(request={"ignore_eos": 1}), "engines.ollama."),
        (lambda c: c["settings"]["np4"].update(env={"LLAMA_ARG_THREADS": "1"}), "LLAMA_ARG_THREADS: is not heard"),
        (lambda c: c["engines"]["llama-cpp"].update(options={"bogus": 1}), "options.bogus: is not an option"),
        (lambda c: c["engines"].update(u={"kind": "url", "url": "http://x", "options": {"b": 1}}), "options.b: is no"),
        (lambda c: c["engines"].update(s={"kind": "simulator", "options": {"b": 1}}), "s.options.b: is not an opti"),
        (lambda c: c["workload"].update(turns=3), "workload.turns: has no use in mode closed; leave it out"),
        (lambda c: c.update(runs={"main": {"workload": {"mode": "open", "rate": 1, "think": 1}}}), "think: has no us"),
        (lambda c: c["workload"].update(window_s=10**400), "workload.window_s: is a number greater than 2^53"),
        (lambda c: c.update(title="a\udcff"), "title: 'a\\udcff' has '\\udcff', which no file or server takes"),
        (lambda c: c["settings"]["np1"].update(args=["a\0"]), "settings.np1.args.0: 'a\\x00' has '\\x00', which"),
        (lambda c: c["engines"].update(u={"kind": "url", "url": "http://"}), "engines.u.url: 'http://' has no host"),
        (lambda c: c["engines"].update(u={"kind": "url", "url": "http://a:b@c"}), "engines.u.url: holds a user name"),
        (lambda c: c["engines"].update(u={"kind": "url", "url": "http://x:99999"}), "engines.u.url: 'http://x:99999'"),
        (lambda c: c.update(experiment="a/b"), 'experiment: "a/b" does not fit; use small letters, digits and . _ -'),
    ],
)  # fmt: skip
def test_a_fault_is_one_line_with_file_key_value_and_remedy(config, change, message):
    change(config)
    with pytest.raises(configuration.ConfigError) as error:
        load(config)
    assert any(
        line.startswith(f"config/config.yaml: {message}") or message in line for line in str(error.value).splitlines()
    )
    assert str(error.value).startswith("config/config.yaml: ")


ENGINES = {
    "llama": {"kind": "llama-server", "runtime": "binary", "binary": "llama-server"},
    "ollama": {"kind": "ollama", "runtime": "binary", "binary": "ollama"},
    "vllm": {"kind": "vllm", "runtime": "binary", "binary": "vllm"},
    "sglang": {"kind": "sglang", "runtime": "binary", "binary": "sglang"},
    "rehearsal": {"kind": "simulator"},
}


def with_asked(config, engine, **asked):
    """The quick start with four slots of 512 tokens on this engine, which these arguments or variables are given."""
    config["engines"] |= copy.deepcopy(ENGINES)
    config["settings"]["np4"] |= {"engine": engine, "slots": 4, "context": 512, **asked}
    return config


@pytest.mark.parametrize(
    ("engine", "asked", "key", "words"),
    [
        ("llama", {"args": ["-np", "8"]}, "args", ("-np 8", "slots: 4")),
        ("llama", {"args": ["--parallel=8"]}, "args", ("--parallel 8", "slots: 4")),
        ("llama", {"args": ["-np", "4", "-np", "2"]}, "args", ("-np 2", "slots: 4")),
        ("llama", {"args": ["-c", "512"]}, "args", ("-c 512", "context: 512", "2048 in all")),
        ("llama", {"args": ["--ctx_size", "0"]}, "args", ("--ctx_size 0", "context: 512")),
        ("llama", {"env": {"LLAMA_ARG_N_PARALLEL": "8"}}, "env.LLAMA_ARG_N_PARALLEL", ("8", "slots: 4")),
        ("ollama", {"env": {"OLLAMA_NUM_PARALLEL": "1"}}, "env.OLLAMA_NUM_PARALLEL", ("1", "slots: 4")),
        ("ollama", {"env": {"OLLAMA_CONTEXT_LENGTH": "2048"}}, "env.OLLAMA_CONTEXT_LENGTH", ("2048", "context: 512")),
        ("vllm", {"args": ["--max-num-seqs", "256"]}, "args", ("--max-num-seqs 256", "slots: 4")),
        ("vllm", {"args": ["--max-model-len=8k"]}, "args", ("--max-model-len 8k", "context: 512")),
        ("sglang", {"args": ["--max-running-requests", "5"]}, "args", ("--max-running-requests 5", "slots: 4")),
        ("sglang", {"args": ["--context-length", "2048"]}, "args", ("--context-length 2048", "context: 512")),
    ],
)
def test_what_asks_for_other_slots_or_another_context_is_refused(config, engine, asked, key, words):
    with pytest.raises(configuration.ConfigError) as error:
        load(with_asked(config, engine, **asked))
    (line,) = str(error.value).splitlines()
    assert line.startswith(f"config/config.yaml: settings.np4.{key}: ")
    assert all(word in line for word in words)


@pytest.mark.parametrize(
    ("engine", "asked"),
    [
        ("llama", {"args": ["-np", "4", "-c", "2048", "-ub", "8"]}),
        ("ollama", {"env": {"OLLAMA_NUM_PARALLEL": "4", "OLLAMA_CONTEXT_LENGTH": "512"}}),
        ("vllm", {"args": ["--max-num-seqs", "4", "--max-model-len=512"]}),
        ("sglang", {"args": ["--max-running-requests", "4", "--context-length", "512"]}),
        ("rehearsal", {"args": ["--max-num-seqs", "256"]}),  # a simulator reads no arguments
    ],
)
def test_what_asks_for_the_same_is_taken(config, engine, asked):
    assert load(with_asked(config, engine, **asked)).settings["np4"].slots == 4


def test_what_all_settings_of_an_engine_are_given_is_refused_there(config):
    config = with_asked(config, "vllm")
    config["engines"]["vllm"]["args"] = ["--max-num-seqs", "256"]
    with pytest.raises(configuration.ConfigError, match=r"engines\.vllm\.args: .*settings\.np4\.slots: 4;"):
        load(config)
    config["settings"]["np4"]["args"] = ["--max-num-seqs", "4"]
    assert load(config).settings["np4"].args == ("--max-num-seqs", "256", "--max-num-seqs", "4")


def test_a_fault_names_the_file_that_set_the_key(tmp_path):
    overlay = tmp_path / "over.yaml"
    overlay.write_text("settings: {np1: {slots: -1}}\n")
    with pytest.raises(configuration.ConfigError, match=re.escape(f"{overlay}: settings.np1.slots: -1")):
        configuration.read([QUICKSTART, overlay])


@pytest.mark.parametrize("mode", [5, "sideways", ["closed"], True])
def test_a_wrong_choice_is_one_fault_that_names_the_choices(config, mode):
    config["workload"]["mode"] = mode
    with pytest.raises(configuration.ConfigError) as error:
        load(config)
    (fault,) = str(error.value).splitlines()
    assert fault.startswith("config/config.yaml: workload.mode: ")
    assert fault.endswith(f"is not one of {', '.join(MODES)}")


def test_missing_keys_are_named_in_one_line():
    with pytest.raises(configuration.ConfigError) as error:
        configuration.load({"experiment": "x"}, [QUICKSTART])
    assert str(error.value) == "config/config.yaml: lacks engines, models, workload, settings; add them"


def specs(config):
    loaded = load(config)
    return {name: plan.session_spec(loaded, setting) for name, setting in loaded.settings.items()}


@pytest.mark.parametrize(
    "change",
    [
        lambda c: c["runtime"].update(ready_timeout_s=1, ports=[30000, 30100], device="1"),
        lambda c: c["models"]["smollm2-q4_1"].update(source="https://mirror.example/x.gguf"),
        lambda c: c["line"].update(user_tok_s=20),
        lambda c: c.update(title="other", charts={"width": 900}),
        lambda c: c["settings"].update({n: dict(reversed(s.items())) for n, s in reversed(c["settings"].items())}),
        lambda c: c["settings"]["np1"].update(note="said on the page", expect={"n_ctx_slot": 512}),
        lambda c: c["models"]["smollm2-q4_1"].update(about={"gib": 0.1, "kv_kib_per_token": 22.5}),
        lambda c: c.update(reference="h200", cost={"price_per_hour": 1.5}, deviations=["ours"], unverified=["theirs"]),
    ],
)
def test_what_does_not_determine_a_measurement_is_not_in_its_spec(config, change):
    before = specs(config)
    change(config)
    assert specs(config) == before


def test_the_example_of_an_own_configuration_lacks_only_what_is_the_reader_s(tmp_path):
    text = (servebench.ROOT / "config" / "README.md").read_text(encoding="utf-8")
    example, running, matrix, people = re.findall(r"^```yaml\n(.*?)^```$", text, re.M | re.S)
    path = tmp_path / "mine.yaml"
    path.write_text(example.replace("4f27…", "4f27" * 16), encoding="utf-8")
    loaded = configuration.read([path])
    assert (loaded.models["my-model"].sha256, loaded.settings["np4"].users) == ("4f27" * 16, (1, 4, 8))
    (at_url,) = configuration.load(yaml.safe_load(running), ["config/mine.yaml"]).settings.values()
    assert (at_url.engine.kind, at_url.model.name, at_url.users) == ("url", "served", (1, 4, 16))
    file = {"source": "file:///model.gguf", "sha256": "4f27" * 16}
    models = {key: file | {"quantization": kind} for key, kind in (("small", "Q4_K_M"), ("large", "Q8_0"))}
    made = configuration.load(
        yaml.safe_load(path.read_text(encoding="utf-8")) | {"models": models} | yaml.safe_load(matrix), [path]
    )
    assert list(made.settings) == ["np-1-q4_k_m", "np-1-q8_0", "np-4-q4_k_m", "np-4-q8_0", "np-16-q4_k_m"]
    assert [name for name, one in made.settings.items() if one.args] == ["np-4-q4_k_m", "np-4-q8_0"]
    found = configuration.load(yaml.safe_load(path.read_text(encoding="utf-8")) | yaml.safe_load(people), [path])
    assert list(found.judged_by) == ["line", "chat", "batch", "agent"]
    assert (found.rounds, found.search.rounds, found.search.most_rounds, found.search.most) == (2, 2, 8, 64)
    assert found.settings["np4"].workload["think"] == "lognormal:20,0.8"
    assert found.objectives["batch"].failures_share == 0.01 and found.objectives["chat"].requests == 100


@pytest.mark.parametrize(
    ("change", "place"),
    [
        ({"objectives": {"line": {"ttft_p95_s": 1}}}, "objectives.line"),
        ({"objectives": {"chat": {"min_targets": 5}}}, "objectives.chat"),
        ({"objectives": {"chat": {"speed": 5}}}, "objectives.chat.speed"),
        ({"objectives": {"chat": {"goodput_share": 2}}}, "objectives.chat.goodput_share"),
        ({"rounds": {"min": 3, "max": 2}}, "rounds"),
        ({"capacity": {"resolution": 0}}, "capacity.resolution"),
        ({"people": {"pause": "often"}}, "workload.think"),
    ],
)
def test_what_cannot_be_searched_for_is_refused(config, change, place):
    with pytest.raises(configuration.ConfigError, match=place):
        load(config | change)


def test_neither_objectives_nor_the_search_change_what_is_measured(config):
    before = specs(config)
    config |= {"objectives": {"chat": {"ttft_p95_s": 1}}, "capacity": {"most_users": 8}, "rounds": {"min": 2, "max": 8}}
    assert specs(config) == before


def test_what_determines_a_measurement_is(config):
    before = specs(config)
    changed = copy.deepcopy(config)
    changed["settings"]["np4"]["args"] = ["--no-cache-prompt"]
    after = specs(changed)
    assert [name for name in before if before[name] != after[name]] == ["np4"]
    changed = copy.deepcopy(config)
    changed["workload"]["max_tokens"] = 25
    assert not set(specs(changed).values()) & set(before.values())


def test_another_content_of_a_trace_is_another_measurement(config, tmp_path):
    assert "trace" not in "".join(specs(config).values())
    trace = tmp_path / "trace.jsonl"
    config["workload"].update(mode="trace", trace=str(trace))
    del config["workload"]["min_targets"]

    def written(content):
        trace.write_text(content)
        return specs(config)

    one, other = ('{"arrival_s": 0, "prompt": "One?"}', '{"arrival_s": 0, "prompt": "Other?"}')
    before, after, again = written(one), written(other), written(one)
    assert not set(before.values()) & set(after.values())
    assert again == before


def test_what_the_command_line_changes_is_kept_and_named_in_a_fault(config):
    given = {"rounds": 3, "title": "a b", "runtime": {"cache": "/c"}, "reference": None}
    loaded = configuration.load(config | given, [QUICKSTART], given)
    assert loaded.overrides == ("rounds=3", "title=a b", 'runtime={"cache": "/c"}', "reference=")
    assert parse_config(loaded.overrides) == given
    assert plan.from_json(plan.canonical(plan.reported(loaded))).overrides == ("rounds=3", "title=a b", "reference=")
    with pytest.raises(configuration.ConfigError, match=r"^--config: rounds: 0 is smaller than 1"):
        configuration.load(config | {"rounds": 0}, [QUICKSTART], {"rounds": 0})


def test_what_the_command_line_changes_is_read_as_snakemake_reads_it():
    given = ["rounds=3", "title=a b", 'runtime={"cache": "/c"}', "reference="]
    read = configuration.read([QUICKSTART], configuration.overrides(given))
    assert (read.rounds, read.title, read.runtime.cache, read.reference) == (3, "a b", "/c", None)
    assert read.runtime == msgspec.structs.replace(configuration.read([QUICKSTART]).runtime, cache="/c")
    assert configuration.overrides(read.overrides) == configuration.overrides(given)
    with pytest.raises(configuration.ConfigError, match=r"^--config: rounds: .*name=value"):
        configuration.overrides(["rounds"])


def test_values_inside_braces_on_the_command_line_have_the_types_of_yaml():
    given = [
        "workload={max_tokens: 9, system: 5}",
        'settings={np4: {env: {A: "1", B: on}, request: {top_k: 40}, users: [1, 3]}}',
        "title={en: 5, ja: b}",
    ]
    read = configuration.read([QUICKSTART], configuration.overrides(given))
    np4 = read.settings["np4"]
    assert (np4.workload["max_tokens"], np4.request, np4.users) == (9, {"top_k": 40}, (1, 3))
    assert (np4.workload["system"], np4.env, read.title) == ("5", {"A": "1", "B": "on"}, {"en": "5", "ja": "b"})
    with pytest.raises(configuration.ConfigError, match=r"^--config: workload\.max_tokens: 0 is smaller than 1"):
        configuration.read([QUICKSTART], configuration.overrides(["workload={max_tokens: 0}"]))
    with pytest.raises(configuration.ConfigError, match=r'^--config: workload\.max_tokens: "many" is not an integer'):
        configuration.read([QUICKSTART], configuration.overrides(["workload={max_tokens: many}"]))


def test_the_files_of_a_workload_are_the_project_s_wherever_it_is_run(monkeypatch, tmp_path):
    prompts, trace = "config/prompts/en-short/documents.jsonl", "config/tasks/proofreading/sentences.jsonl"
    monkeypatch.chdir(tmp_path)
    found = job.workload_of({"mode": "trace", "prompts": prompts, "trace": trace, "max_tokens": 4})
    assert [(tmp_path / name).resolve() for name in (found.prompts, found.trace)] == [
        configuration.prompts_path(prompts).resolve(),
        servebench.ROOT / trace,
    ]
    assert job.workload_of({"prompts": "en-short"}).prompts == "en-short"
    monkeypatch.chdir(servebench.ROOT)
    assert job.workload_of({"prompts": prompts}).prompts == prompts


def test_what_the_settings_of_an_engine_have_in_common(config):
    before = specs(config)
    engine, setting = config["engines"]["llama-cpp"], config["settings"]["np4-kv-unified"]
    engine.update(args=["--jinja"], env={"A": "1", "B": "1"}, request={"x": {"y": 1}}, expect={"threads": 2})
    setting.update(env={"B": "2"}, request={"seed": None})
    loaded = load(config).settings
    assert loaded["np1"].args == ("--jinja",)
    assert loaded["np4-kv-unified"].args == ("--jinja", "--kv-unified")
    assert loaded["np4-kv-unified"].env == {"A": "1", "B": "2"}
    assert loaded["np4-kv-unified"].request == {"x": {"y": 1}, "seed": None}
    assert loaded["np4-kv-unified"].expect == {"threads": 2}
    assert not set(specs(config).values()) & set(before.values())


def test_a_spec_holds_nothing_that_is_not_set(config):
    assert '"cpus"' not in specs(config)["np1"]
    config["cpus"] = {"server": 8, "load": 8}
    assert '"cpus":{"load":8,"server":8}' in specs(config)["np1"]


def test_null_in_an_overlay_takes_a_key_out(config, tmp_path):
    overlay = tmp_path / "over.yaml"
    overlay.write_text("engines: {llama-cpp: {kind: simulator, runtime: null, environment: null}}\ntitle: null\n")
    loaded = configuration.read([QUICKSTART, overlay])
    assert (loaded.engines["llama-cpp"].runtime, loaded.engines["llama-cpp"].pin) == (None, None)
    assert loaded.title == "quickstart"


@pytest.fixture
def evaluated(config):
    target = {"engine": "llama-cpp", "slots": 4, "context": 1024, "args": ["--no-mmap"]}
    config["evaluations"] = {
        "baseline": "Q8_0",
        "concurrency": 4,
        "tasks": {"mgsm": {"set": "small", "limit": 8, "max_tokens": 48}, "proofreading": {}},
        "margins": {"mgsm": 5},
        "under_load": {"users": 2, "task": "mgsm", "questions": 20},
        "targets": {q: {**target, "model": f"smollm2-{q.lower()}"} for q in ("Q4_1", "Q8_0")},
    }
    return config


def test_evaluations_as_they_are_run(evaluated):
    asked = load(evaluated).evaluations
    assert [(t.name, t.run, t.users, t.args) for t in asked.targets.values()] == [
        ("Q4_1", "evaluations", (4,), ("--no-mmap",)),
        ("Q8_0", "evaluations", (4,), ("--no-mmap",)),
    ]
    sizes = {name: (task.set, task.questions, task.max_tokens) for name, task in asked.tasks.items()}
    assert sizes == {"mgsm": ("small", 8, 48), "proofreading": ("full", 300, 256)}
    assert (asked.under_load.targets, asked.under_load.questions) == (("Q8_0",), 8)  # no more than are asked
    assert (asked.repeats, asked.answers) == (2, 616)
    assert plan.from_json(plan.canonical(plan.reported(load(evaluated)))).evaluations.baseline == "Q8_0"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda e: e.update(baseline="Q2_K"), "baseline: 'Q2_K' is not a target; targets are: Q4_1, Q8_0"),
        (lambda e: e["targets"]["Q4_1"].update(model="x"), "targets.Q4_1.model: 'x' is not defined; models are: smoll"),
        (lambda e: e["targets"]["Q4_1"].pop("context"), "targets.Q4_1: lacks context"),
        (lambda e: e["targets"]["Q4_1"].update(context=256), "targets.Q4_1.context: 256 leaves no room for a question"),
        (lambda e: e["targets"].pop("Q4_1"), "targets: "),
        (lambda e: e["tasks"].update(mgsm={"set": "no.tsv"}), "tasks.mgsm.set: 'no.tsv' is not a file; give one, 'sma"),
        (lambda e: e["tasks"].update(mgsm={"set": "config/config.yaml"}), "tasks.mgsm.set: "),
        (lambda e: e["tasks"]["proofreading"].update(set="small"), "tasks.proofreading.set: 'small': proofreading has"),
        (lambda e: e["tasks"]["mgsm"].update(limit=41), "tasks.mgsm.limit: 41 is more than the 40 questions of th"),
        (lambda e: e["tasks"]["mgsm"].update(limit=0), "tasks.mgsm.limit: 0 is smaller than 1"),
        (lambda e: e["tasks"].update(gsm8k={}), "tasks: "),
        (lambda e: e["margins"].update(jcommonsenseqa=2), "margins.jcommonsenseqa: needs the task jcommonsenseqa; add"),
        (lambda e: e["margins"].update(accuracy=2), "margins: "),
        (lambda e: e["under_load"].update(task="jcommonsenseqa"), "under_load.task: 'jcommonsenseqa' is not a task; t"),
        (lambda e: e["under_load"].update(targets=["Q8_0", "x"]), "under_load.targets.1: 'x' is not a target"),
        (lambda e: e["under_load"].pop("users"), "under_load: lacks users; add it"),
        (lambda e: e.update(repeats=3), "repeats: 3 is greater than 2"),
        (lambda e: e.update(concurrency=0), "concurrency: 0 is smaller than 1; use a positive integer"),
    ],
)  # fmt: skip
def test_faults_of_the_evaluations(evaluated, change, message):
    load(evaluated)
    change(evaluated["evaluations"])
    with pytest.raises(configuration.ConfigError, match=re.escape(f"config/config.yaml: evaluations.{message}")):
        load(evaluated)


def test_a_load_that_ends_by_itself_is_none_to_ask_beside(evaluated):
    evaluated["workload"] = {**evaluated["workload"], "mode": "count", "requests": 10}
    with pytest.raises(configuration.ConfigError, match=r"evaluations\.under_load: .*'count'.* use one of "):
        load(evaluated)


def target_specs(config):
    loaded = load(config)
    return {name: plan.target_spec(loaded, name) for name in loaded.evaluations.targets}


@pytest.mark.parametrize(
    "change",
    [
        lambda e: e.update(baseline="Q4_1", margins={}),
        lambda e: e["targets"]["Q4_1"].update(note="said on the page"),
    ],
)
def test_what_does_not_determine_replies_is_not_in_a_target_s_spec(evaluated, change):
    evaluated["evaluations"]["under_load"]["targets"] = ["Q8_0"]
    before = target_specs(evaluated)
    change(evaluated["evaluations"])
    assert target_specs(evaluated) == before


def test_more_questions_keep_their_file_and_other_replies_get_another(evaluated):
    def files():
        return {
            (name, task): plan.answers_digest(spec, task)
            for name, spec in target_specs(evaluated).items()
            for task in evaluated["evaluations"]["tasks"]
        }

    before, specs = files(), target_specs(evaluated)
    evaluated["evaluations"]["tasks"]["mgsm"]["limit"] = 9
    evaluated["evaluations"]["repeats"] = 1
    assert target_specs(evaluated).keys() == specs.keys()
    assert not set(target_specs(evaluated).values()) & set(specs.values())
    assert files() == before
    evaluated["evaluations"]["tasks"]["mgsm"]["max_tokens"] = 49
    assert {key for key, name in files().items() if name != before[key]} == {("Q4_1", "mgsm"), ("Q8_0", "mgsm")}
    evaluated["evaluations"]["tasks"]["mgsm"].update(max_tokens=48, request={"grammar": "root ::= [0-9]"})
    assert {key for key, name in files().items() if name != before[key]} == {("Q4_1", "mgsm"), ("Q8_0", "mgsm")}
    evaluated["evaluations"]["targets"]["Q4_1"]["args"] = []
    assert {key for key, name in files().items() if name == before[key]} == {("Q8_0", "proofreading")}


def test_questions_under_load_have_files_of_their_own(evaluated):
    spec = target_specs(evaluated)["Q8_0"]
    names = [plan.answers_digest(spec, "mgsm", condition) for condition in (None, "alone", "loaded")]
    assert len(set(names)) == 3
    evaluated["evaluations"]["under_load"]["users"] = 3
    spec = target_specs(evaluated)["Q8_0"]
    again = [plan.answers_digest(spec, "mgsm", condition) for condition in (None, "alone", "loaded")]
    assert [a == b for a, b in zip(names, again, strict=True)] == [True, True, False]


@pytest.mark.parametrize(("key", "value", "same"), [("window_s", 77, True), ("temperature", 0.5, False)])
def test_only_what_the_load_sends_makes_other_replies_under_load(evaluated, key, value, same):
    before = target_specs(evaluated)["Q8_0"]
    evaluated["workload"] = {**evaluated["workload"], key: value}
    assert (target_specs(evaluated)["Q8_0"] == before) is same


def test_a_level_more_leaves_the_other_measurements_their_names(config):
    before = specs(config)["np1"]
    config["settings"]["np1"]["users"] = [1, 2, 4, 16]
    after = specs(config)["np1"]
    assert before != after
    assert plan.measurement_id(before, 4, 1) == plan.measurement_id(after, 4, 1)
    names = {plan.measurement_id(after, users, round_) for users in (1, 2) for round_ in (1, 2)}
    assert len(names) == 4


def test_another_file_behind_an_unpinned_source_makes_other_measurements_and_pinning_it_makes_none(config, tmp_path):
    model = config["models"]["smollm2-q4_1"]
    del model["sha256"], model["size_bytes"]
    model |= {"source": "hf://someone/something/file.gguf", "unverified": "no revision is published"}
    loaded = load(config)
    manifest = tmp_path / "models" / "smollm2-q4_1.json"
    manifest.parent.mkdir()

    def digest(found):
        manifest.write_text(json.dumps({"source": model["source"], "sha256": found}))
        setting = loaded.settings["np1"]
        context = job.Context(
            spec=plan.session_spec(loaded, setting),
            models=loaded.models,
            engines=loaded.engines,
            results=tmp_path,
            runtime=loaded.runtime,
            engine_log=tmp_path / "log",
            retry_failed=False,
        ).identified(setting)
        return plan.measurement_id(context.spec, 1, 1)

    names = [digest(found) for found in ("a" * 64, "b" * 64, "a" * 64)]
    assert names[0] != names[1]
    assert names[0] == names[2]
    manifest.write_text(json.dumps({"source": "hf://someone/something/other.gguf", "sha256": "a" * 64}))
    assert inventory.manifest_of(loaded.models["smollm2-q4_1"], tmp_path) is None
    del model["unverified"]
    model["sha256"] = "a" * 64
    assert plan.measurement_id(specs(config)["np1"], 1, 1) == names[0]


def test_a_pinned_model_is_what_it_is_whatever_was_fetched(config, tmp_path):
    loaded = load(config)
    setting, spec = loaded.settings["np1"], specs(config)["np1"]
    context = job.Context(
        spec=spec,
        models=loaded.models,
        engines=loaded.engines,
        results=tmp_path,  # without any manifest
        runtime=loaded.runtime,
        engine_log=tmp_path / "log",
        retry_failed=False,
    )
    assert context.identified(setting).spec == spec


def test_a_spec_gives_its_session_back(config):
    loaded = load(config)
    for rank, setting in enumerate(loaded.settings.values()):
        session = plan.session_from_spec(plan.session_spec(loaded, setting), 2, rank, loaded.models, loaded.engines)
        assert (session.round, session.rank, session.experiment) == (2, rank, "quickstart")
        assert (session.setting.users, session.setting.args) == (setting.users, setting.args)
        assert (session.setting.model, session.setting.engine) == (setting.model, setting.engine)


@pytest.mark.parametrize("file", ["config.yaml", "h200.yaml", "rtx4090.yaml"])
def test_the_reported_plan_survives_json(file):
    loaded = configuration.read([QUICKSTART.with_name(file)])
    again = plan.from_json(plan.canonical(plan.reported(loaded)))
    for name in ("runs", "settings", "models", "engines"):
        assert list(getattr(again, name)) == list(getattr(loaded, name))
    if loaded.evaluations:
        assert list(again.evaluations.targets) == list(loaded.evaluations.targets)
        assert list(again.evaluations.tasks) == list(loaded.evaluations.tasks)
    assert again.settings.keys() and all(again.settings[n].users == s.users for n, s in loaded.settings.items())
    assert again.line == loaded.line


def test_the_plan_keeps_its_files_without_the_machines_paths_and_measures_the_same(config, tmp_path, monkeypatch):
    monkeypatch.chdir(servebench.ROOT / "config")
    loaded = configuration.load(config, ["h200.yaml", QUICKSTART, "../mine.yaml", tmp_path / "own.yaml"])
    assert loaded.files == ("config/h200.yaml", "config/config.yaml", "mine.yaml", "/path/to/own.yaml")
    assert plan.from_json(plan.canonical(plan.reported(loaded))).files == loaded.files
    for setting in loaded.settings.values():
        assert plan.session_spec(loaded, setting) == plan.session_spec(load(config), setting)


def test_schema_and_documented_keys_are_those_of_the_sections():
    readme = (CONFIG / "README.md").read_text(encoding="utf-8")
    assert (CONFIG / "schema.yaml").read_text(encoding="utf-8") == schema.as_yaml(), "make schema"
    assert readme == schema.documented(readme), "make schema"


def test_the_schema_is_one_and_an_editor_finds_no_fault_in_our_configurations():
    written = yaml.safe_load((CONFIG / "schema.yaml").read_text(encoding="utf-8"))
    jsonschema.Draft202012Validator.check_schema(written)
    validator = jsonschema.Draft202012Validator(written)
    for path in set(CONFIG.glob("*.yaml")) - {CONFIG / "schema.yaml"}:
        faults = validator.iter_errors(yaml.safe_load(path.read_text(encoding="utf-8")))
        # An overlay lacks the keys of the file under it, and takes keys out with null.
        assert {fault.validator for fault in faults if fault.instance is not None} <= {"required"}, path


def test_what_is_compared_takes_a_margin():
    margins = schema.schema()["$defs"]["Evaluations"]["properties"]["margins"]
    assert margins["propertyNames"]["enum"] == ["jcommonsenseqa", "mgsm", "proof_fixed", "proof_rewritten"]


def test_every_pattern_says_what_to_write():
    def silent(node):
        if isinstance(node, dict):
            if "pattern" in node and not node.get("errorMessage"):
                yield node["pattern"]
            node = list(node.values())
        for part in node if isinstance(node, list) else []:
            yield from silent(part)

    assert list(silent(schema.schema())) == []
    assert list(silent([{"pattern": "x"}])) == ["x"]


@pytest.mark.parametrize(
    "change",
    [
        lambda c: c.update(experiment="quickstart\n"),
        lambda c: c["settings"].update({"np1\n": c["settings"]["np1"]}),
        lambda c: c["models"]["smollm2-q4_1"].update(sha256="a" * 64 + "\n"),
        lambda c: c["models"].update(x={"source": f"hf://a/b/c.gguf@{'a' * 40}\n"}),
        lambda c: c["engines"].update(u={"kind": "url", "url": "http://a", "api_key_env": "KEY\n"}),
        lambda c: c["settings"]["np1"].update(expect={"n_ctx\n": 1}),
    ],
)
def test_a_line_break_at_the_end_fits_no_pattern(config, change):
    change(config)
    with pytest.raises(configuration.ConfigError):
        load(config)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (5, "title: 5 is not a string or a mapping"),
        ({"fr": "x"}, "title: lacks en; add it"),
        ({"en": "x", "fr": "y"}, "title.fr: is not a known key; known here: en, ja"),
    ],
)
def test_a_text_is_a_string_or_has_languages(config, value, message):
    with pytest.raises(configuration.ConfigError, match=re.escape(f"config/config.yaml: {message}")):
        load(config | {"title": value})


def test_what_a_configuration_leaves_out_is_as_documented():
    loaded = configuration.read([QUICKSTART], {"rounds": None, "line": None, "runtime": None})
    text = schema.tables()
    for key, value in {
        "rounds": loaded.rounds,
        "line.ttft_p95_s": loaded.line.ttft_p95_s,
        "runtime.ready_timeout_s": loaded.runtime.ready_timeout_s,
        "runtime.foreign_use.action": loaded.runtime.foreign_use.action,
        "workload.timeout_s": loaded.settings["np1"].workload["timeout_s"],
    }.items():
        assert re.search(rf"^\| `{re.escape(key)}` \| [^|]* \| `{value}` \|", text, re.M), key


@pytest.mark.parametrize("content", [b"- 1", b"text", b"5", b"\xff", b"a: [", b"a: 2024-99-99", b"a: \x01"])
def test_a_file_that_is_no_configuration(tmp_path, content):
    path = tmp_path / "mine.yaml"
    path.write_bytes(content)
    with pytest.raises(configuration.ConfigError, match=f"^{path}:.*(is not a mapping|is not valid YAML)") as error:
        configuration.read([path])
    assert "\n" not in str(error.value)


def test_wrong_indentation_is_one_line_with_its_place(tmp_path):
    path = tmp_path / "mine.yaml"
    path.write_text("experiment: x\n  title: y\n")
    with pytest.raises(configuration.ConfigError) as error:
        configuration.read([path])
    assert re.fullmatch(rf"{path}:2: is not valid YAML: mapping values .*; check this line.*", str(error.value))


def test_seconds_of_thinking_are_a_number_or_a_text(config):
    thinking = [load({**config, "workload": {**config["workload"], "think": think}}) for think in (0.5, "0.5")]
    assert [plan.settings["np1"].workload["think"] for plan in thinking] == ["0.5", "0.5"]


def test_a_key_that_one_run_of_several_uses_is_no_fault(config):
    counted = {"mode": "count", "requests": 4}
    load({**config, "runs": {"main": {}, "counted": {"workload": counted}}})  # min_targets is of no use to the second
