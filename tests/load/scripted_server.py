"""A chat server that does exactly what a test writes down, byte by byte, and remembers what it was sent."""

import asyncio
import json
import socket
import struct
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from time import monotonic_ns
from typing import Any

RESET = "reset"  # RST, as a crashed process leaves it
CLOSE = "close"  # FIN
Step = bytes | float | str


@dataclass
class Received:
    """One request as it came: `number` counts all requests from 0, `connection` all connections."""

    number: int
    connection: int
    nth_on_connection: int
    head: bytes
    body: dict[str, Any]
    at_ns: int = field(default_factory=monotonic_ns)


Script = Callable[[Received], Iterable[Step]]


class ScriptedServer:
    """A context manager; `script` turns each request into steps: bytes to send, seconds to wait, RESET or CLOSE."""

    def __init__(self, script: Script, tls=None) -> None:
        self.script = script
        self.received: list[Received] = []
        self._tls = tls
        self._connections = 0
        self._loop = asyncio.new_event_loop()
        self._started = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self):
        self._thread.start()
        assert self._started.wait(10)
        scheme = "https" if self._tls else "http"
        self.url = f"{scheme}://localhost:{self.port}" if self._tls else f"{scheme}://127.0.0.1:{self.port}"
        return self

    def __exit__(self, *_):
        self.stop()

    def stop(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        serving = asyncio.start_server(self._serve, "127.0.0.1", 0, ssl=self._tls, backlog=1024)
        server = self._loop.run_until_complete(serving)
        self.port = server.sockets[0].getsockname()[1]
        self._started.set()
        self._loop.run_forever()
        server.close()
        tasks = asyncio.all_tasks(self._loop)
        for task in tasks:
            task.cancel()
        self._loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
        self._loop.run_until_complete(asyncio.sleep(0.01))  # connections close on the loop's next turn

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connection = self._connections
        self._connections += 1
        nth = 0
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                lengths = [line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")]
                content = await reader.readexactly(int(lengths[0].split(b":")[1])) if lengths else b"{}"
                received = Received(len(self.received), connection, nth, head, json.loads(content or b"{}"))
                self.received.append(received)
                nth += 1
                for step in self.script(received):
                    if isinstance(step, bytes):
                        writer.write(step)
                        await writer.drain()
                    elif step == RESET:
                        linger = struct.pack("ii", 1, 0)
                        writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
                        writer.transport.abort()
                        return
                    elif step == CLOSE:
                        return
                    else:
                        await asyncio.sleep(float(step))
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass
        finally:
            writer.close()


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
    """A good answer: HEAD, `tokens` chunks `gap_s` apart, usage, [DONE]."""
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
