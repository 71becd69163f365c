"""A server we did not start: how far away it is, and what it may keep to itself."""

from __future__ import annotations

import statistics
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from chat_double import PROBED, ChatDouble
from servebench import configuration, engines, plan
from servebench.engines import url
from servebench.faults import Fault
from servebench.load.calibration import Calibration
from servebench.load.endpoint import Endpoint
from servebench.load.run import measure
from servebench.load.workers import LoadError
from servebench.load.workload import Workload
from servebench.plan.layout import Layout
from servebench.sessions import job, measuring

DELAY_S = 0.03


@pytest.fixture
def double(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ChatDouble]:
    monkeypatch.setenv("SERVEBENCH_CACHE", str(tmp_path))
    with ChatDouble(lambda model, prompt, time: PROBED, lambda prompt: False) as made:
        yield made


@contextmanager
def attached(
    double: ChatDouble, ready_timeout_s: float = 5, api_key_env: str | None = None
) -> Iterator[engines.Server]:
    engine = plan.Engine(key="far", kind="url", url=double.url, options={"model": "m"}, api_key_env=api_key_env)
    model = plan.Model(key="m", name="M")
    setting = plan.Setting(name="s", run="main", engine=engine, model=model, slots=1, users=(1,))
    with engines.launched(
        plan.Session(experiment="e", round=1, rank=0, setting=setting),
        model_path=None,
        environment=None,
        runtime=plan.Runtime(ready_timeout_s=ready_timeout_s),
        log_path=Path("/nowhere"),
    ) as server:
        yield server


def test_two_sessions_do_not_measure_one_server_at_once(double: ChatDouble) -> None:
    both = threading.Event()

    def second() -> None:
        with attached(double):
            both.set()

    with attached(double):
        other = threading.Thread(target=second)
        other.start()
        assert not both.wait(1.0)
    assert both.wait(10)
    other.join()


def test_the_round_trip_is_at_least_as_long_as_the_server_is_known_to_take(double: ChatDouble) -> None:
    double.delay_s = DELAY_S
    with attached(double) as server:
        facts = server.facts
    low, middle, high = (facts[f"round_trip_{name}_s"] for name in ("min", "p50", "max"))
    assert DELAY_S <= low <= middle <= high


def test_the_round_trip_is_the_median_and_the_ends_of_the_requests(
    double: ChatDouble, monkeypatch: pytest.MonkeyPatch
) -> None:
    took_ns = [5_000_000, 1_000_000, 9_000_000, 2_000_000, 3_000_000, 4_000_000, 6_000_000, 7_000_000, 8_000_000]
    ticks = iter([t for n, took in enumerate(took_ns) for t in (10**12 * n, 10**12 * n + took)])
    client = type("Client", (), {"get": lambda self, path: None})()
    monkeypatch.setattr(url.time, "monotonic_ns", lambda: next(ticks))
    found = url.round_trips(client)
    assert found == pytest.approx(
        {
            "round_trip_p50_s": statistics.median(took_ns) / 1e9,
            "round_trip_min_s": 0.001,
            "round_trip_max_s": 0.009,
        }
    )


@pytest.mark.parametrize("listing", [b"<html>", b"[]", b'{"data": null}', b'{"object": "list"}', b'{"data": ["m"]}'])
def test_a_server_that_lists_no_models_is_taken_at_its_word(double: ChatDouble, listing: bytes) -> None:
    double.listing = listing
    with attached(double) as server:
        assert server.facts["models"] is None
        assert server.check() == []


def test_another_model_than_the_one_it_lists_is_said(double: ChatDouble) -> None:
    double.listing = b'{"data": [{"id": "other"}]}'
    with pytest.raises(engines.AskedNotGot, match="model: asked m, got other"), attached(double):
        pass


def test_a_key_goes_with_what_is_asked_and_with_the_load(
    double: ChatDouble, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    endpoints = []

    def measure(endpoint: Endpoint, *_: Any, **__: Any) -> None:
        endpoints.append(endpoint)
        raise LoadError("nothing is loaded here")

    monkeypatch.setenv("FAR_KEY", "secret")
    monkeypatch.setattr(measuring, "measure", measure)
    monkeypatch.setattr(measuring, "calibrated", lambda setting, users, *_: Calibration(max_users=users))
    config = {
        "experiment": "far",
        "engines": {"far": {"kind": "url", "url": double.url, "api_key_env": "FAR_KEY"}},
        "models": {"m": {"source": "file:///nowhere.gguf", "sha256": "0" * 64}},
        "workload": {"prompts": "en-short", "max_tokens": 4, "warmup_s": 1, "window_s": 1},
        "settings": {"s": {"engine": "far", "model": "m", "slots": 1, "users": [1]}},
    }
    loaded = configuration.load(config, ["config.yaml"])
    context = job.Context(
        spec=plan.session_spec(loaded, loaded.settings["s"]),
        models=loaded.models,
        engines=loaded.engines,
        results=tmp_path,
        runtime=plan.Runtime(ready_timeout_s=5),
        engine_log=tmp_path / "engine.log",
        retry_failed=False,
    )
    measuring.run(next(loaded.sessions()), context)
    assert double.keys == {"Bearer secret"}
    assert [endpoint.api_key_env for endpoint in endpoints] == ["FAR_KEY"]
    path = Layout(tmp_path).measurement(loaded.settings["s"], 1, 1)
    assert "secret" not in path.read_bytes().decode(errors="replace")


@pytest.mark.parametrize(
    ("key", "said"),
    [
        (None, "FAR_KEY is not set; export the key"),
        ("", "FAR_KEY is not set; export the key"),
        ("s3cret\n", r"FAR_KEY holds no key: character 7 of 7 is '\n', which no header may hold; export the key alone"),
        ("s3 cret", "FAR_KEY holds no key: character 3 of 7 is ' ', which no header may hold; export the key alone"),
        ("clé", r"FAR_KEY holds no key: character 3 of 3 is '\xe9', which no header may hold; export the key alone"),
    ],
)
def test_a_key_that_cannot_be_sent_is_a_fault_before_anything_is_sent(
    key: str | None, said: str, double: ChatDouble, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("FAR_KEY", raising=False)
    if key is not None:
        monkeypatch.setenv("FAR_KEY", key)
    with pytest.raises(engines.InfrastructureError) as fault, attached(double, api_key_env="FAR_KEY"):
        pass
    assert str(fault.value) == f"engines.far.api_key_env: {said}"
    endpoint = Endpoint(url=double.url, model="m", api_key_env="FAR_KEY")
    with pytest.raises(Fault) as fault:
        measure(endpoint, Workload(mode="count", requests=1), 1)
    assert str(fault.value) == f"endpoint.api_key_env: {said}"
    assert not double.keys


def test_a_header_with_a_line_break_is_a_fault(double: ChatDouble) -> None:
    endpoint = Endpoint(url=double.url, model="m", headers={"x-tenant": "a\r\nx-admin: 1"})
    with pytest.raises(Fault, match=r"endpoint\.headers: 'x-tenant' holds a line break"):
        measure(endpoint, Workload(mode="count", requests=1), 1)
