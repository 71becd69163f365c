"""Whatever a server at an address answers, attaching ends in time with a reason, and what was measured is kept."""

from __future__ import annotations

import gzip
import json
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from http_double import CLOSE, HttpDouble, Request, Step
from servebench import plan
from servebench.engines import url
from servebench.engines.base import Launch, LaunchFailed, Server
from servebench.engines.url import Url

GOOD = {"choices": [{"message": {"content": "Paris."}, "finish_reason": "stop"}], "usage": {"prompt_tokens": 9}}
MODELS = {"data": [{"id": "m"}]}
HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 1000000\r\n\r\n"


def drip(head: bytes, piece: bytes) -> Iterator[Step]:
    yield head
    for _ in range(1000):
        yield piece
        yield 0.05


def forever(piece: bytes) -> Iterator[Step]:
    while True:
        yield piece


def chat(**choice: Any) -> bytes:
    return json.dumps(GOOD | choice).encode()


# What each of them sends in place of a chat completion.
REPLIES: dict[str, Callable[[Request], Iterator[Step] | bytes]] = {
    "a byte now and then": lambda _: drip(HEAD, b" "),
    "a header now and then": lambda _: drip(b"HTTP/1.1 200 OK\r\n", b"x-more: 1\r\n"),
    "100 Continue for ever": lambda _: drip(b"", b"HTTP/1.1 100 Continue\r\n\r\n"),
    "nothing": lambda _: iter([30.0]),
    "a header without end": lambda _: forever(b"x" * 2**16),
    "a body without end": lambda _: forever_body(),
    "a gzip bomb": lambda r: r.response(gzip.compress(bytes(2**24)), 200, {"content-encoding": "gzip"}),
    "an unknown coding": lambda r: r.response(chat(), 200, {"content-encoding": "br"}),
    "a list": lambda r: r.response([]),
    "a number": lambda r: r.response(5),
    "null": lambda r: r.response(b"null"),
    "nothing at all": lambda r: r.response(b""),
    "choices of numbers": lambda r: r.response(chat(choices=[1])),
    "choices in a mapping": lambda r: r.response(chat(choices={})),
    "no choice": lambda r: r.response(chat(choices=[])),
    "usage in a list": lambda r: r.response(chat(usage=[1])),
    "negative usage": lambda r: r.response(chat(usage={"prompt_tokens": -1})),
    "usage beyond all records": lambda r: r.response(chat(usage={"prompt_tokens": 2**70})),
    "a message that is a list": lambda r: r.response(chat(choices=[{"message": [], "finish_reason": "stop"}])),
    "content that is a number": lambda r: r.response(chat(choices=[{"message": {"content": 5}}])),
    "a finish_reason that is a list": lambda r: r.response(
        chat(choices=[{"message": {"content": "a"}, "finish_reason": []}])
    ),
    "JSON nested deep": lambda r: r.response(b'{"choices": ' + b"[" * 10**5 + b"]" * 10**5 + b"}"),
    "not HTTP": lambda _: iter([b"SSH-2.0-OpenSSH_9.2\r\n", CLOSE]),
    "bytes that are no text": lambda r: r.response(bytes(range(256))),
    "a redirect": lambda r: r.response(b"", 307, {"location": "https://elsewhere.invalid/"}),
    "a redirect in a circle": lambda r: r.response(b"", 301, {"location": r.path}),
}


def forever_body() -> Iterator[Step]:
    yield b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n\r\n{"
    yield from forever(b" " * 2**20)


class Hostile(HttpDouble):
    """A good chat server until `turned`; from then on chats, or lists of models, are answered by `hostile`."""

    def __init__(self, hostile: Callable[[Request], Any], *, chats: bool = True, closes: bool = True) -> None:
        self.hostile, self.chats, self.closes, self.turned = hostile, chats, closes, False

    def respond(self, request: Request) -> Iterator[Step]:
        if self.turned and (request.method == "POST") is self.chats:
            said = self.hostile(request)
            yield from [said] if isinstance(said, bytes) else said
            if self.closes:
                yield CLOSE
        else:
            yield request.response(GOOD if request.method == "POST" else MODELS)


def attached(double: Hostile, tmp_path: Path, ready_timeout_s: float) -> Any:
    engine = plan.Engine(key="far", kind="url", url=double.url, options={"model": "m"})
    setting = plan.Setting(
        name="s", run="main", engine=engine, model=plan.Model(key="m", name="M"), slots=1, users=(1,)
    )
    runtime = plan.Runtime(ready_timeout_s=ready_timeout_s, cache=str(tmp_path))
    launch = Launch(
        setting=setting,
        label="",
        model_path=None,
        environment=None,
        runtime=runtime,
        log_path=tmp_path / "log",
        devices=(),
    )
    return url.attached(Url(launch))


def within(seconds: float, act: Callable[[], Any]) -> Any:
    began = time.monotonic()
    done = act()
    assert time.monotonic() - began < seconds
    return done


@pytest.mark.outcome(
    "reply: {}",
    at="attaching",
    into="scripted server",
    kept="all before it",
    again="by retry",
    reads="a failed row with the reason",
    code="0",
    each="REPLIES",
)
@pytest.mark.parametrize("how", REPLIES)
def test_attaching_ends_in_time_with_a_reason(how: str, tmp_path: Path) -> None:
    with Hostile(REPLIES[how]) as double:
        double.turned = True

        def attach() -> None:
            with pytest.raises(LaunchFailed) as failed, attached(double, tmp_path, 1.0):
                pass
            assert failed.value.reason.startswith(double.url)
            assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]", failed.value.reason)

        within(60, attach)


def test_a_redirect_says_where_it_leads(tmp_path: Path) -> None:
    with Hostile(REPLIES["a redirect"]) as double:
        double.turned = True
        with pytest.raises(
            LaunchFailed, match=r"HTTP 307 \(Location https://elsewhere\.invalid/.*\) for POST http://127\.0\.0\.1"
        ):
            with attached(double, tmp_path, 1.0):
                pass


@pytest.mark.outcome(
    "reply: {}",
    at="the check after a measurement",
    into="scripted server",
    kept="the measurement, as discarded, with its rows",
    again="by retry",
    reads="a failed row: asked a reply, got …",
    code="0",
    each="REPLIES",
    but=("a byte now and then", "100 Continue for ever"),
)
@pytest.mark.parametrize("chats", [True, False], ids=["the probe", "the list of models"])
@pytest.mark.parametrize("how", [name for name in REPLIES if "a byte" not in name and "100" not in name])
def test_the_check_after_a_measurement_ends_and_raises_nothing(
    how: str, chats: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("servebench.engines.base.PROBE_TIMEOUT_S", 1.0)
    with Hostile(REPLIES[how], chats=chats) as double, attached(double, tmp_path, 60.0) as server:
        assert isinstance(server, Server)
        monkeypatch.setattr(client_of(server), "timeout", 1.0)
        double.turned = True
        found = within(60, server.check)
        assert all(set(difference) == {"what", "asked", "got"} for difference in found)
        assert found or not chats, "no short reply came"


def client_of(server: Server) -> Any:
    """The client that the server's functions hold."""
    (client,) = (cell.cell_contents for cell in server.is_alive.__closure__ or () if hasattr(cell.cell_contents, "get"))
    return client


def test_what_a_server_says_of_itself_can_be_stored(tmp_path: Path) -> None:
    listing = b'{"data": [{"id": "m"}, {"id": "\\ud800"}, {"id": NaN}, {"id": [1e999, {"\\udfff": 1}]}, {"id": 5}]}'
    with Hostile(lambda r: r.response(listing), chats=False, closes=False) as double:
        double.turned = True
        with attached(double, tmp_path, 60.0) as server:
            json.dumps(server.facts["models"], allow_nan=False, ensure_ascii=False).encode()
            assert server.facts["models"][:2] == ["m", "\ufffd"]
