"""Serve without a model: with slots, a queue, a prefill speed and a decode speed by batch size.

    python simulated.py OPTIONS        (JSON; see `Machine`)

It speaks the OpenAI API as llama-server does. Requests wait in one queue for a slot; a prompt is read at the prefill
speed, one at a time and while nobody decodes; then all that have a slot get a token per step. Its times are what its
options say, so a pipeline, a load generator or a chart can be tried, and be wrong visibly, without a GPU. It says
nothing about any real engine.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import math
import signal
import sys
import time
from bisect import bisect_left
from collections import deque
from dataclasses import dataclass, field
from typing import Any

import httptools

WORDS = ("tall ", "ship ", "sails ", "slow ", "over ", "calm ", "blue ", "seas ")


@dataclass(kw_only=True)
class Machine:
    """Hold the options. Speeds in tokens per second; `decode_tok_s`: of all streams together, by their number."""

    port: int
    model: str
    slots: int
    slots_served: int | None = None  # what it really does; some engines quietly serve fewer than asked
    context: int | None = None  # tokens per slot
    prefill_tok_s: float = 5000.0
    decode_tok_s: dict[str, float] = field(default_factory=lambda: {"1": 50.0, "16": 400.0})
    reply_tokens: tuple[int, int] | None = None  # least and most; None: as many as may be asked for
    load_s: float = 0.0  # from launch to health
    memory_gib: float | None = None  # of weights and cache
    device_gib: float | None = None  # more than this is an error at start

    def step_s(self, streams: int) -> float:
        """Return the seconds for one token of each of `streams`: log-log interpolation between the given speeds."""
        points = sorted((int(n), speed) for n, speed in self.decode_tok_s.items())
        numbers = [n for n, _ in points]
        at = bisect_left(numbers, streams)
        if at == 0:  # below the first point every stream keeps its speed
            total = points[0][1] * streams / points[0][0]
        elif at == len(points):  # beyond the last the machine is full
            total = points[-1][1]
        else:
            (n0, s0), (n1, s1) = points[at - 1], points[at]
            part = math.log(streams / n0) / math.log(n1 / n0)
            total = s0 * (s1 / s0) ** part
        return streams / total


def count_tokens(text: str) -> int:
    """Estimate a text's tokens as a tokenizer of today would count them: 4 ASCII characters or 1.4 others each."""
    others = sum(ord(character) > 127 for character in text)
    return max(1, round((len(text) - others) / 4 + others / 1.4))


class Request:
    """Hold one completion: what was asked, and how far it is."""

    def __init__(self, connection: Connection, body: dict[str, Any], machine: Machine) -> None:
        prompt = "\n".join(str(message.get("content", "")) for message in body["messages"])
        self.connection = connection
        self.stream = bool(body.get("stream"))
        self.usage_wanted = bool((body.get("stream_options") or {}).get("include_usage"))
        self.prompt_tokens = count_tokens(prompt)
        limit = int(body.get("max_tokens") or 256)
        self.reply_tokens, self.finish = limit, "length"
        if machine.reply_tokens and not body.get("ignore_eos"):
            least, most = machine.reply_tokens
            draw = int(hashlib.sha256(prompt.encode()).hexdigest()[:8], 16)
            natural = least + draw % (most - least + 1)
            if natural < limit:
                self.reply_tokens, self.finish = natural, "stop"
        self.done = 0
        self.gone = False

    def token(self) -> bool:
        """Send one token; returns whether it was the last."""
        self.done += 1
        if self.stream:
            self.connection.event(
                {"index": 0, "delta": {"content": WORDS[self.done % len(WORDS)]}, "finish_reason": None}
            )
        if self.done < self.reply_tokens:
            return False
        self.end()
        return True

    def end(self) -> None:
        """Finish the reply."""
        usage = {
            "prompt_tokens": self.prompt_tokens,
            "completion_tokens": self.done,
            "total_tokens": self.prompt_tokens + self.done,
            "prompt_tokens_details": {"cached_tokens": 0},
        }
        if self.stream:
            self.connection.event({"index": 0, "delta": {}, "finish_reason": self.finish})
            if self.usage_wanted:
                self.connection.event(None, usage=usage)
            self.connection.end_stream()
        else:
            text = "".join(WORDS[n % len(WORDS)] for n in range(1, self.done + 1))
            choice = {
                "index": 0,
                "message": {"role": "assistant", "content": text},
                "finish_reason": self.finish,
            }
            self.connection.answer(200, {"choices": [choice], "usage": usage})


class Engine:
    """Hold the slots and the queue, and run the loop that serves them."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.slots = machine.slots_served or machine.slots
        self.queue: deque[Request] = deque()
        self.running: list[Request] = []
        self.work = asyncio.Event()
        self.healthy_at = time.monotonic() + machine.load_s

    @property
    def healthy(self) -> bool:
        """Return whether the model would be loaded by now."""
        return time.monotonic() >= self.healthy_at

    def submit(self, request: Request) -> None:
        """Put a request at the end of the queue."""
        self.queue.append(request)
        self.work.set()

    def leave(self, request: Request) -> None:
        """Drop the requests of a client that is gone: its slot is free at the next step."""
        request.gone = True

    def facts(self) -> dict[str, Any]:
        """Return what /props says."""
        return {
            "total_slots": self.slots,
            "n_ctx_slot": self.machine.context,
            "model_alias": self.machine.model,
            "memory_gib": self.machine.memory_gib,
            "processing": len(self.running),
            "deferred": len(self.queue),
        }

    async def serve(self) -> None:
        """Admit, prefill and decode, step by step, for ever. Steps have due times, so that lateness does not add up."""
        due = time.monotonic()
        while True:
            self._drop_gone()
            if not (self.queue or self.running):
                self.work.clear()
                await self.work.wait()
                due = time.monotonic()
            while self.queue and len(self.running) < self.slots:
                request = self.queue.popleft()
                self.running.append(request)
                due = await self._until(due + request.prompt_tokens / self.machine.prefill_tok_s)
                if not request.gone and request.token():
                    self.running.remove(request)
            self._drop_gone()
            if self.running:
                due = await self._until(due + self.machine.step_s(len(self.running)))
                self.running = [r for r in self.running if not r.gone and not r.token()]

    def _drop_gone(self) -> None:
        self.running = [request for request in self.running if not request.gone]
        self.queue = deque(request for request in self.queue if not request.gone)

    @staticmethod
    async def _until(due: float) -> float:
        """Sleep until `due`; when `due` is more than 50 ms ago, count from now instead."""
        await asyncio.sleep(max(0.0, due - time.monotonic()))
        return due if time.monotonic() - due < 0.05 else time.monotonic()


class Connection(asyncio.Protocol):
    """Serve one HTTP/1.1 connection, kept alive."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.request: Request | None = None
        self.parser = httptools.HttpRequestParser(self)
        self.path, self.body = "", b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def connection_lost(self, exc: Exception | None) -> None:
        if self.request:
            self.engine.leave(self.request)

    def data_received(self, data: bytes) -> None:
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserError:
            self.transport.close()

    def on_url(self, url: bytes) -> None:
        self.path, self.body = url.decode(), b""

    def on_body(self, body: bytes) -> None:
        self.body += body

    def on_message_complete(self) -> None:
        if not self.engine.healthy:
            self.answer(503, {"error": {"message": "Loading model", "type": "unavailable_error", "code": 503}})
        elif self.path == "/health":
            self.answer(200, {"status": "ok"})
        elif self.path == "/props":
            self.answer(200, self.engine.facts())
        elif self.path == "/v1/models":
            self.answer(200, {"object": "list", "data": [{"id": self.engine.machine.model, "object": "model"}]})
        elif self.path == "/tokenize":
            self._tokenize()
        elif self.path == "/v1/chat/completions":
            self._complete()
        else:
            self.answer(404, {"error": {"message": f"no such path: {self.path}", "code": 404}})

    def _tokenize(self) -> None:
        try:
            tokens = count_tokens(str(json.loads(self.body)["content"]))
        except (ValueError, KeyError, TypeError) as error:
            self.answer(400, {"error": {"message": f"not a text to tokenize: {error!r}", "code": 400}})
            return
        self.answer(200, {"tokens": [0] * tokens})

    def _complete(self) -> None:
        try:
            request = Request(self, json.loads(self.body), self.engine.machine)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            self.answer(400, {"error": {"message": f"not a chat completion: {error!r}", "code": 400}})
            return
        context = self.engine.machine.context
        if context is not None and request.prompt_tokens >= context:
            message = f"the request exceeds the available context size: {request.prompt_tokens} of {context} tokens"
            self.answer(400, {"error": {"message": message, "type": "exceed_context_size_error", "code": 400}})
            return
        if context is not None and request.prompt_tokens + request.reply_tokens > context:
            request.reply_tokens, request.finish = context - request.prompt_tokens, "length"
        self.request = request
        if request.stream:
            self.transport.write(
                b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
            )
        self.engine.submit(request)

    def event(self, choice: dict[str, Any] | None, usage: dict[str, Any] | None = None) -> None:
        """Send one event of a stream."""
        chunk = {
            "id": "chatcmpl-simulated",
            "object": "chat.completion.chunk",
            "model": self.engine.machine.model,
            "choices": [choice] if choice else [],
            **({"usage": usage} if usage else {}),
        }
        self._chunk(b"data: " + json.dumps(chunk).encode() + b"\n\n")

    def end_stream(self) -> None:
        """Send the last chunk and [DONE]."""
        self._chunk(b"data: [DONE]\n\n")
        self.transport.write(b"0\r\n\r\n")
        self.request = None

    def answer(self, status: int, body: dict[str, Any]) -> None:
        """Send a JSON answer that is no stream."""
        self.request = None
        content = json.dumps({"model": self.engine.machine.model, **body}).encode()
        head = f"HTTP/1.1 {status} _\r\nContent-Type: application/json\r\nContent-Length: {len(content)}\r\n\r\n"
        self.transport.write(head.encode() + content)

    def _chunk(self, data: bytes) -> None:
        if not self.transport.is_closing():
            self.transport.write(b"%x\r\n%b\r\n" % (len(data), data))


async def main(machine: Machine) -> int:
    """Serve on 127.0.0.1 until SIGTERM or SIGINT."""
    if machine.memory_gib and machine.device_gib and machine.memory_gib > machine.device_gib:
        print(f"out of memory: needs {machine.memory_gib:.1f} GiB of {machine.device_gib:.1f} GiB", file=sys.stderr)
        return 1
    loop = asyncio.get_running_loop()
    ended = asyncio.Event()
    for signum in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(signum, ended.set)
    engine = Engine(machine)
    server = await loop.create_server(lambda: Connection(engine), "127.0.0.1", machine.port, backlog=1024)
    serving = asyncio.create_task(engine.serve())
    waiting = asyncio.create_task(ended.wait())
    await asyncio.wait([serving, waiting], return_when=asyncio.FIRST_COMPLETED)
    server.close()
    if serving.done():
        serving.result()  # the loop never ends but by an error
    return 0


if __name__ == "__main__":
    started = Machine(**json.loads(sys.argv[1]))
    print(f"simulated server: {started}", file=sys.stderr, flush=True)
    sys.exit(asyncio.run(main(started)))
