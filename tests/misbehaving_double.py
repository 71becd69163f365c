"""Misbehave as servers do in public reports; started by tests/fault/test_reports.py.

    python misbehaving_double.py OPTIONS      (JSON: see the defaults below)

Every request is one line of its output. It answers /health, /v1/models, /props as the simulator does, and a chat
completion of one word.
"""

import json
import signal
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

from http_double import CLOSE, HttpDouble, Request, Step

DEFAULTS: dict[str, Any] = {
    "port": 0,
    "share_port": False,  # SO_REUSEPORT, as some builds set it
    "listen": True,  # False: waits in silence
    "healthy_after_s": 0.0,
    "chat_after_s": 0.0,
    "refuse_first": 0,  # so many chat requests fail, and then all is well
    "fail_after": None,  # after so many good ones all fail
    "silent_after": None,  # after so many chat requests none is answered
}


class Misbehaving(HttpDouble):
    def __init__(self, options: dict[str, Any]) -> None:
        self.options, self.began = options, time.monotonic()
        self.port, self.share_port = options["port"], options["share_port"]
        self.chats, self.lock = 0, threading.Lock()

    def respond(self, request: Request) -> Iterator[Step]:
        status, content = self._chat() if request.method == "POST" else self._page(request.path)
        print(request.method, request.path, status, flush=True)
        # A new connection for each request: where two processes share the port, each of them answers at times.
        yield request.response(content, status, {"connection": "close"})
        yield CLOSE

    def _page(self, path: str) -> tuple[int, Any]:
        if path == "/health":
            return (200 if self._age_s() >= self.options["healthy_after_s"] else 503), {}
        if path == "/props":
            return 200, {"total_slots": 2, "n_ctx_slot": 512, "model_alias": "m", "memory_gib": None}
        return 200, {"data": [{"id": "m"}]}

    def _chat(self) -> tuple[int, Any]:
        with self.lock:
            self.chats += 1
            silent = self.options["silent_after"] is not None and self.chats > self.options["silent_after"]
            good = self.chats - self.options["refuse_first"]
        if silent:
            threading.Event().wait()
        failing = self.options["fail_after"] is not None and good > self.options["fail_after"]
        if self._age_s() < self.options["chat_after_s"] or good <= 0 or failing:
            return 503, {"error": {"message": "EngineCore is not there"}}
        choice = {"message": {"content": "Paris."}, "finish_reason": "stop"}
        return 200, {"choices": [choice], "usage": {"prompt_tokens": 9, "completion_tokens": 2}}

    def _age_s(self) -> float:
        return time.monotonic() - self.began


options = {**DEFAULTS, **json.loads(sys.argv[1])}
if not options["listen"]:
    signal.pause()
with Misbehaving(options):
    print("listening", flush=True)
    signal.pause()
