"""What a configuration says briefly is written out: each combination, and what a server at a URL need not say."""

import copy

import pytest
import yaml

from servebench import ROOT, configuration
from servebench.configuration.shorthand import combinations, slug

QUICK = yaml.safe_load((ROOT / "config" / "config.yaml").read_text(encoding="utf-8"))
LLAMA = {"engine": "llama-cpp", "model": "smollm2-q4_1", "slots": 1, "context": 512, "users": [1, 4]}


def plan(settings, **more):
    config = copy.deepcopy(QUICK) | {"settings": settings} | more
    del config["evaluations"]
    return configuration.load(config, ["config/mine.yaml"])


def test_combinations_include_and_exclude_as_in_ci():
    matrix = {"fruit": ["apple", "pear"], "animal": ["cat", "dog"]}
    found = combinations(
        matrix,
        [
            {"color": "green"},
            {"color": "pink", "animal": "cat"},
            {"fruit": "apple", "shape": "circle"},
            {"fruit": "banana"},
            {"fruit": "banana", "animal": "cat"},
        ],
        None,
    )
    assert found == [  # the example of GitHub's documentation, without what it does to combinations of their own
        {"fruit": "apple", "animal": "cat", "color": "pink", "shape": "circle"},
        {"fruit": "apple", "animal": "dog", "color": "green", "shape": "circle"},
        {"fruit": "pear", "animal": "cat", "color": "pink"},
        {"fruit": "pear", "animal": "dog", "color": "green"},
        {"fruit": "banana"},
        {"fruit": "banana", "animal": "cat"},
    ]
    assert combinations(matrix, None, [{"fruit": "apple"}, {"animal": "dog"}]) == [{"fruit": "pear", "animal": "cat"}]


def test_a_matrix_makes_named_settings():
    matrix = {"slots": [1, 4], "quantization": ["Q4_1", "Q8_0"], "args": [["--kv-unified"], None]}
    exclude = [{"slots": 1, "args": ["--kv-unified"]}]
    found = plan({"np": {**LLAMA, "matrix": matrix, "exclude": exclude}, "alone": LLAMA})
    names = {name: (s.slots, s.model.quantization, s.args) for name, s in found.settings.items()}
    assert names == {
        "np-1-q4_1-none": (1, "Q4_1", ()),
        "np-1-q8_0-none": (1, "Q8_0", ()),
        "np-4-q4_1-kv-unified": (4, "Q4_1", ("--kv-unified",)),
        "np-4-q4_1-none": (4, "Q4_1", ()),
        "np-4-q8_0-kv-unified": (4, "Q8_0", ("--kv-unified",)),
        "np-4-q8_0-none": (4, "Q8_0", ()),
        "alone": (1, "Q4_1", ()),
    }


def test_a_matrix_over_the_workload_makes_runs():
    lengths = {"workload.prompts.tokens": [128, 256], "workload.reply_tokens": [16], "slots": [1, 2]}
    config_workload = {**QUICK["workload"]}
    del config_workload["max_tokens"]
    found = plan({"np": {**LLAMA, "matrix": lengths}}, workload=config_workload)
    assert list(found.runs) == ["main-128-16", "main-256-16"]
    assert {name: setting.run for name, setting in found.settings.items()} == {
        "np-128-16-1": "main-128-16",
        "np-128-16-2": "main-128-16",
        "np-256-16-1": "main-256-16",
        "np-256-16-2": "main-256-16",
    }
    load = found.settings["np-256-16-2"].workload
    assert (load["prompts"], load["prompt_tokens"], load["reply_tokens"]) == ("en-short", 256, 16)


def test_one_setting_of_a_matrix_is_measured_under_the_name_it_had_without():
    by_hand = plan({"np-4": {**LLAMA, "slots": 4}})
    matrix = plan({"np": {**{k: v for k, v in LLAMA.items() if k != "slots"}, "matrix": {"slots": [4]}}})
    assert matrix.settings == by_hand.settings


def test_slugs():
    assert [slug(value) for value in (16, "Q4_K_M", ["-fa", "on"], None, True, 0.5, [])] == [
        *("16", "q4_k_m", "fa-on", "none", "true", "0.5", "none")
    ]


URL = {"kind": "url", "url": "http://127.0.0.1:8000"}


def test_a_server_that_is_running_needs_nothing_invented():
    found = configuration.load(
        {"experiment": "mine", "engines": {"mine": URL}, "settings": {"now": {"engine": "mine", "users": [1, 8]}}},
        ["config/mine.yaml"],
    )
    (setting,) = found.settings.values()
    assert (setting.model.name, setting.slots, setting.context) == ("served", 8, None)
    assert setting.workload["min_targets"] == 20
    assert found.unverified == (
        "engines.mine: how many requests it works on at once is not known; slots are taken as 8, the most users",
    )


def test_its_model_may_have_any_name():
    settings = {"now": {"engine": "mine", "model": "Qwen/Qwen3-14B", "slots": 4, "users": [1]}}
    found = configuration.load(
        {"experiment": "mine", "engines": {"mine": URL}, "settings": settings}, ["config/m.yaml"]
    )
    (setting,) = found.settings.values()
    assert (setting.model.key, setting.model.name, found.unverified) == ("qwen-qwen3-14b", "Qwen/Qwen3-14B", ())


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        ({"matrix": [1]}, r"settings\.np\.matrix: is not a mapping of keys to lists"),
        ({"matrix": {"slots": 4}}, r"settings\.np\.matrix\.slots: 4 is not a list of values; write \[4\]"),
        ({"matrix": {"slots": []}}, r"settings\.np\.matrix\.slots: is empty; give at least one value"),
        ({"exclude": {"slots": 4}}, r"settings\.np\.exclude: is not a list of mappings"),
        ({"matrix": {"quantization": ["Q2_K"]}}, r"no model has the quantization Q2_K; name models by `model`"),
        ({"matrix": {"slots": [0]}}, r"settings\.np-0\.slots: 0 is smaller than 1"),
        ({"matrix": {"slotz": [1]}}, r"settings\.np-1\.slotz: is not a known key"),
        ({"matrix": {"slots": [2, 2]}}, r"settings\.np\.matrix: makes two settings named np-2"),
    ],
)
def test_a_wrong_matrix_is_named(setting, words):
    with pytest.raises(configuration.ConfigError, match=words):
        plan({"np": {**LLAMA, **setting}})


def test_a_model_without_a_file_is_none_for_an_engine_that_loads_one():
    with pytest.raises(configuration.ConfigError, match=r"models\.named: needs either source or requantize"):
        plan({"np": {**LLAMA, "model": "named"}}, models={**QUICK["models"], "named": {"name": "x"}})
