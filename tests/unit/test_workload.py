"""Refuse workloads that cannot run, in one sentence, before anything is sent."""

import json
import re

import msgspec
import pytest

from servebench.configuration import sections
from servebench.configuration.schema import schema
from servebench.faults import Fault
from servebench.load import run
from servebench.load.arrivals import Pause
from servebench.load.endpoint import Endpoint
from servebench.load.line import Line
from servebench.load.requests import Requests
from servebench.load.traces import read_trace
from servebench.load.workload import Workload

# What both take as numbers, except what is sent on to the server as it is given.
NUMBERS = [
    key
    for key, node in schema()["$defs"]["Workload"]["properties"].items()
    if node.get("type") in ("integer", "number") and key not in ("processes", "seed", "top_p")
]


@pytest.mark.parametrize("url", ["http://", "http://:80", "http://127.0.0.1:abc", "http://[::1", "http://h:99999"])
def test_a_url_nobody_can_connect_to(url):
    with pytest.raises(Fault, match=r"endpoint\.url: .*has no host and port"):
        Endpoint(url=url, model="m")


@pytest.mark.parametrize("url", ["http://127.0.0.1", "https://host:443/v1", "http://[::1]:8000"])
def test_a_url_that_has_them(url):
    assert Endpoint(url=url, model="m").url == url


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -1.0, 1e300, 1.1e9])
@pytest.mark.parametrize(
    "key",
    [
        *("window_s", "warmup_s", "timeout_s", "idle_timeout_s", "connect_timeout_s", "spread_s"),
        *("rate", "temperature", "top_p"),
    ],
)
def test_numbers_that_are_none(key, value):
    with pytest.raises(Fault, match=rf"workload.{key}: .* is not (from .*|above 0, up) to 1e\+09"):
        Workload(**{key: value})


@pytest.mark.parametrize(
    ("key", "value", "kind"),
    [
        ("max_tokens", "8", "str"),
        ("max_tokens", 8.0, "float"),
        ("max_tokens", None, "null"),
        ("requests", True, "bool"),
        ("window_s", [60], "array"),
        ("keep_text", 1, "int"),
    ],
)
def test_a_value_of_the_wrong_type_is_named(key, value, kind):
    with pytest.raises(Fault, match=rf"^workload\.{key}: {re.escape(repr(value))} .*`{kind}`$"):
        Workload.from_dict({key: value})


def test_a_workload_keeps_each_value_as_it_is_written():
    made = Workload.from_dict({"window_s": 60, "temperature": 0, "rate": None})
    assert json.dumps([made.window_s, made.temperature, made.rate]) == "[60, 0, null]"
    with pytest.raises(Fault, match=r"^workload\.windows: is not a known key; known: .*window_s"):
        Workload.from_dict({"windows": 60})


@pytest.mark.parametrize("key", ["max_tokens", "min_targets", "requests", "turns", "shared_prefix_tokens"])
@pytest.mark.parametrize("value", [0, -1, 10**30])
def test_counts_that_are_none(key, value):
    with pytest.raises(Fault, match=f"workload.{key}: {value} is not from 1 to"):
        Workload(**{key: value})


def test_top_p_is_a_probability():
    assert Workload(top_p=1).top_p == 1
    with pytest.raises(Fault, match=r"^workload\.top_p: 2 "):
        Workload(top_p=2)


@pytest.mark.parametrize("key", ["window_s", "timeout_s", "rate"])
def test_less_than_the_clock_can_tell(key):
    with pytest.raises(Fault, match=f"workload.{key}: 1e-300 is not above 0"):
        Workload(**{key: 1e-300})


def test_the_longest_and_the_shortest():
    assert Workload(timeout_s=1e9, window_s=1e-9, warmup_s=0).timeout_s == 1e9


@pytest.mark.parametrize("key", ["prompts", "system", "instruction", "trace", "tokenizer"])
def test_half_a_surrogate_pair_in_what_is_asked(key):
    with pytest.raises(Fault, match=f"workload.{key}: cannot be sent as JSON in UTF-8 .*surrogates"):
        Workload(**{key: "a\udc80"})


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("model", "a\udc80"),
        ("url", "http://a/\udc80"),
        ("headers", {"x": "\udc80"}),
        ("extra", {"stop": ["\ud800"]}),
        ("extra", {"min_p": float("nan")}),
        ("extra", {"day": {1, 2}}),
    ],
)
def test_what_no_body_can_hold(key, value):
    with pytest.raises(Fault, match=f"endpoint.{key}: cannot be sent as JSON"):
        Endpoint(**{"url": "http://a", "model": "m", key: value})


@pytest.mark.parametrize(("key", "value"), [("url", "http://a/\x00"), ("headers", {"x": "é"})])
def test_what_no_head_can_hold(key, value):
    endpoint = Endpoint(**{"url": "http://a", "model": "m", key: value})
    with pytest.raises(Fault, match=r"^endpoint\.url, endpoint\.headers: "):
        Requests(endpoint, Workload(), 0)


@pytest.mark.parametrize(
    "text", ["nan", "inf", "exp:inf", "uniform:1,nan", "lognormal:nan,1", "1e300", "exp:1e10", "lognormal:1,1e300"]
)
def test_pauses_that_are_none(text):
    with pytest.raises(Fault, match=r"workload\.think: "):
        Pause.parse(text)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -1.0, 0.0])
@pytest.mark.parametrize("key", ["ttft_p95_s", "user_tok_s", "min_targets"])
def test_a_line_that_is_none(key, value):
    with pytest.raises(Fault, match=rf"line\.{key}: {value} is not positive"):
        Line(**{key: value})


def test_a_trace_that_is_no_file_and_one_that_is_no_text(tmp_path):
    (tmp_path / "latin.jsonl").write_bytes(b"\xff\xfe")
    for path in (tmp_path / "missing.jsonl", tmp_path):
        with pytest.raises(Fault, match=f"^{path}: (cannot be read|is not a file)"):
            read_trace(str(path))
    with pytest.raises(Fault, match=r"latin\.jsonl:1: is not JSON in UTF-8 \(.* byte 0xff"):
        read_trace(str(tmp_path / "latin.jsonl"))


def test_what_a_configuration_may_say_of_the_load_is_what_the_load_generator_takes():
    """The configuration has keys and defaults of its own: they are part of each measurement's digest as written."""
    taken = vars(Workload())
    assert set(sections.Workload.__struct_fields__) - {"processes"} <= set(taken)
    own = sections.defaults(sections.Workload)
    assert own == {key: taken[key] for key in own}


@pytest.mark.parametrize("value", [-1, 0, 1])
@pytest.mark.parametrize("key", NUMBERS)
def test_a_configuration_refuses_the_numbers_of_the_load_that_the_load_generator_refuses(key, value):
    def refused(make) -> bool:
        try:
            make()
        except (Fault, msgspec.ValidationError):
            return True
        return False

    configured = refused(lambda: msgspec.convert({key: value}, sections.Workload))
    assert configured == refused(lambda: Workload.from_dict({key: value}))


@pytest.mark.parametrize(
    ("users", "usable", "own", "processes"),
    [
        (1, 16, 0, 1),
        (64, 16, 0, 1),
        (65, 16, 0, 2),
        (256, 16, 0, 4),
        (4096, 16, 0, 8),
        (256, 1, 0, 1),
        (256, 2, 0, 1),
        (256, 16, 2, 2),
        (64, 16, 2, 1),
    ],
)
def test_a_load_process_for_every_64_users_on_half_of_the_cpus_or_on_its_own(
    monkeypatch, users, usable, own, processes
):
    monkeypatch.setattr(run, "usable", lambda: list(range(usable)))
    assert run.default_processes(users, range(own)) == processes
