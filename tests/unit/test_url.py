"""Measure a server we did not start: its round trip, and the facts it need not report."""

from __future__ import annotations

import asyncio
import json
import socket
import statistics
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from certificate import self_signed
from chat_double import PROBED, ChatDouble
from servebench import configuration, engines, plan
from servebench.engines import url
from servebench.engines.base import Launch
from servebench.faults import Fault
from servebench.load.calibration import Calibration
from servebench.load.endpoint import Endpoint
from servebench.load.run import measure
from servebench.load.workers import LoadError
from servebench.load.workload import Workload
from servebench.plan.layout import Layout
from servebench.sessions import job, measuring
from servebench.sessions.client import client_for, complete
from servebench.store.replies import Answer

DELAY_S = 0.03


@pytest.fixture
def double(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ChatDouble]:
    monkeypatch.setenv("SERVEBENCH_CACHE", str(tmp_path))
    with ChatDouble(lambda model, prompt, time: PROBED, lambda prompt: False) as made:
        yield made


@contextmanager
def attached(
    double: ChatDouble, ready_timeout_s: float = 60, api_key_env: str | None = None
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
    assert both.wait(60)
    other.join()


@pytest.mark.parametrize(("asked", "listed"), [("m", "m"), ("m", "m:latest"), ("m:7b", "m:7b")])
def test_a_model_is_listed_by_its_name_or_its_latest_tag(asked: str, listed: str) -> None:
    engine = plan.Engine(key="far", kind="url", url="http://127.0.0.1:9", options={"model": asked})
    setting = plan.Setting(
        name="s", run="main", engine=engine, model=plan.Model(key="m", name="M"), slots=1, users=(1,)
    )
    launch = Launch(
        setting=setting,
        label="",
        model_path=None,
        environment=None,
        runtime=plan.Runtime(),
        log_path=Path("/nowhere"),
        devices=(),
    )
    adapter = url.Url(launch)
    assert adapter.compare({"models": ["other:latest", listed]}) == []
    assert adapter.compare({"models": ["other:latest", f"{asked}x"]})[0]["asked"] == asked


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
    client = type("Client", (), {"get": lambda self, url: None})()
    monkeypatch.setattr(url.time, "monotonic_ns", lambda: next(ticks))
    found = url.round_trips(client, "http://far.invalid/v1/models")
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


@pytest.mark.parametrize("listed", ["m:7b", "*", "other"])
def test_a_model_that_answers_is_measured_whatever_is_listed_and_the_log_tells(
    double: ChatDouble, caplog: pytest.LogCaptureFixture, listed: str
) -> None:
    double.listing = json.dumps({"data": [{"id": listed}]}).encode()
    with attached(double) as server:
        assert server.check() == []
        assert server.facts["models"] == [listed]
    assert f"{double.url} answers to m and lists only: {listed}" in caplog.text


def test_a_whole_address_is_asked_as_it_is_and_the_models_beside_it(double: ChatDouble) -> None:
    root = double.url
    double.url = f"{root}/api/v3/chat/completions?api-version=1"
    with attached(double) as server:
        assert Endpoint(url=server.url, model=server.model).chat_url == double.url
        assert server.check() == []
    asked = {(request.method, request.path) for request in double.received}
    assert asked == {("POST", "/api/v3/chat/completions?api-version=1"), ("GET", "/api/v3/models?api-version=1")}


@pytest.mark.parametrize(("given", "kept"), [("", ""), ("/v1/", ""), ("/a/v1", "/a"), ("/api/v3/v1", "/api/v3/v1")])
def test_the_address_of_a_record_is_the_root_where_requests_go_to_the_same_place(
    double: ChatDouble, given: str, kept: str
) -> None:
    root = double.url
    double.url += given
    with attached(double) as server:
        assert server.url == root + kept
    assert {request.path.rpartition("/v1/")[0] for request in double.received} == {kept.removesuffix("/v1")}


def refused(double: ChatDouble, ready_timeout_s: float = 3600) -> str:
    """Return why the session gives up on the server."""
    with pytest.raises(engines.LaunchFailed) as failed, attached(double, ready_timeout_s):
        pass
    assert failed.value.reason.startswith(f"{double.url}/v1/chat/completions gave no token: ")
    return failed.value.reason


def answering(double: ChatDouble, *statuses: int | None) -> None:
    """Let the double answer its first requests with these HTTP statuses (None: with a closed connection)."""
    left = iter(statuses)
    double.answer, double.knows = lambda model, prompt, time: next(left, PROBED), lambda prompt: True


@pytest.mark.parametrize("status", [400, 401, 403, 404, 405, 422])
def test_what_no_waiting_changes_is_asked_once(double: ChatDouble, status: int) -> None:
    answering(double, status)
    assert f"HTTP {status}" in refused(double)
    assert len(double.received) == 1


@pytest.mark.parametrize("status", [429, 500, 502, 503, None])
def test_what_is_not_ready_yet_is_waited_for(
    double: ChatDouble, status: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(url.time, "sleep", lambda seconds: None)
    answering(double, status, status)
    with attached(double) as server:
        assert server.check() == []
    answering(double, *[status] * 10_000)
    assert status is None or f"HTTP {status}" in refused(double, ready_timeout_s=0.5)


def test_a_refused_connection_is_waited_for_only_shortly(double: ChatDouble, monkeypatch: pytest.MonkeyPatch) -> None:
    double.stop()
    monkeypatch.setattr(url.time, "sleep", lambda seconds: monkeypatch.setattr(url, "REFUSED_S", 0.0))
    reason = refused(double)
    assert "refused" in reason
    assert "is the server up?" in reason
    assert url.REFUSED_S == 0.0, "it was asked once more"


def test_plain_http_to_a_port_that_speaks_tls_and_the_reverse(
    double: ChatDouble, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    context, _ = self_signed(tmp_path)
    with socket.create_server(("127.0.0.1", 0)) as plain:
        double.url = f"https://127.0.0.1:{plain.getsockname()[1]}"
        threading.Thread(target=lambda: plain.accept()[0].sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")).start()
        assert "begin the address with http://" in refused(double)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ChatDouble, "tls", context)
        with ChatDouble(double.answer, double.knows) as encrypted:
            encrypted.url = encrypted.url.replace("https:", "http:")
            assert "begin the address with https://" in refused(encrypted)


def test_one_file_of_certificates_is_trusted_by_the_session_and_by_the_evaluations(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SERVEBENCH_CACHE", str(tmp_path))
    context, certificate = self_signed(tmp_path)
    monkeypatch.setattr(ChatDouble, "tls", context)

    async def answered(double: ChatDouble) -> Answer:
        endpoint = Endpoint(url=double.url, model="m")
        async with client_for(endpoint, 1) as client:
            return await complete(client, endpoint.chat_url, {"messages": [{"role": "user", "content": "?"}]})

    with ChatDouble(lambda model, prompt, time: PROBED, lambda prompt: False) as double:
        assert "SSL_CERT_FILE" in refused(double)
        assert "CERTIFICATE_VERIFY_FAILED" in (asyncio.run(answered(double)).failed or "")
        monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
        with attached(double) as server:
            assert server.check() == []
        assert asyncio.run(answered(double)).text == PROBED.text


@pytest.mark.parametrize("content", [None, "no certificate"])
def test_a_file_without_certificates_is_a_fault_before_anything_is_sent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: str | None
) -> None:
    file = tmp_path / "certificates.pem"
    if content is not None:
        file.write_text(content, encoding="utf-8")
    monkeypatch.setenv("SSL_CERT_FILE", str(file))
    with pytest.raises(Fault, match=r"^SSL_CERT_FILE: '.*certificates\.pem' "):
        measure(Endpoint(url="https://far.invalid", model="m"), Workload(mode="count", requests=1), 1)


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
        runtime=plan.Runtime(ready_timeout_s=60),
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
