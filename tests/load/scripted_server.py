"""Provide a chat server that does exactly what a test scripts, byte by byte, and records its requests."""

import json
import ssl
from collections.abc import Callable, Iterable
from typing import Any

from http_double import HttpDouble, Request, Step


class ScriptedServer(HttpDouble):
    """`script` gives the steps that answer each request."""

    def __init__(self, script: Callable[[Request], Iterable[Step]], tls: ssl.SSLContext | None = None) -> None:
        self.respond, self.tls = script, tls


HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
END = b"0\r\n\r\n"


def framed(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


def event(value: dict[str, Any]) -> bytes:
    return b"data: " + json.dumps(value).encode() + b"\n\n"


def token(text: str = "word ") -> bytes:
    return event({"choices": [{"index": 0, "delta": {"content": text}, "finish_reason": None}]})


def finish(tokens: int, prompt_tokens: int = 7) -> bytes:
    usage = {"prompt_tokens": prompt_tokens, "completion_tokens": tokens, "total_tokens": tokens + prompt_tokens}
    return event({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}) + event(
        {"choices": [], "usage": usage}
    )


DONE = b"data: [DONE]\n\n"


def reply(tokens: int = 4, gap_s: float = 0.0) -> Iterable[Step]:
    """Return the steps of a good answer: HEAD, `tokens` chunks `gap_s` apart, usage, [DONE]."""
    yield HEAD
    for _ in range(tokens):
        yield framed(token())
        if gap_s:
            yield gap_s
    yield framed(finish(tokens)) + framed(DONE) + END


def refusal(status: int = 503, body: bytes = b'{"error": "busy"}') -> Iterable[Step]:
    yield b"HTTP/1.1 %d Busy\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%s" % (
        status,
        len(body),
        body,
    )
