"""A chat server in this process that answers as it is told and counts what it was asked."""

import json
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from servebench.tasks.task import Reply

PROBED = Reply(text="Paris", finish_reason="stop")


class ChatDouble:
    """`answer(model, prompt, time)` gives the reply to the `time`-th asking (from 1) of a prompt; None: the connection
    is dropped; a number: an error with this HTTP status. `asked`: how often each (model, prompt) was; `order`: in
    which order; `bodies`: the requests as they came; `keys`: their Authorization. Prompts that `knows` says False of
    are probes. `listing`: what it says of its models, after `delay_s`."""

    def __init__(self, answer: Callable[[str, str, int], Reply | int | None], knows: Callable[[str], bool]) -> None:
        self.answer, self.knows = answer, knows
        self.asked: Counter[tuple[str, str]] = Counter()
        self.order: list[tuple[str, str]] = []
        self.bodies: list[dict] = []
        self.keys: set[str | None] = set()
        self.listing, self.delay_s = b'{"data": []}', 0.0
        self.running = self.most_running = 0
        self.lock = threading.Lock()
        self.url = ""

    def reply(self, body: dict) -> Reply | int | None:
        prompt = body["messages"][-1]["content"]
        if not self.knows(prompt):
            return PROBED
        key = (body["model"], prompt)
        with self.lock:
            self.asked[key] += 1
            asking = self.asked[key]
            self.order.append(key)
            self.bodies.append(body)
            self.running += 1
            self.most_running = max(self.most_running, self.running)
        try:
            return self.answer(*key, asking)
        finally:
            with self.lock:
                self.running -= 1


def _handler(double: ChatDouble) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def setup(self) -> None:
            super().setup()
            self.connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

        def do_GET(self) -> None:
            time.sleep(double.delay_s)
            self.send(double.listing)

        def do_POST(self) -> None:
            double.keys.add(self.headers["authorization"])
            said = double.reply(json.loads(self.rfile.read(int(self.headers["content-length"]))))
            if said is None:
                self.close_connection = True
                self.connection.shutdown(socket.SHUT_RDWR)
            elif isinstance(said, int):
                self.send(json.dumps({"error": {"message": "told to"}}).encode(), said)
            else:
                message = {"role": "assistant", "content": said.text, "reasoning_content": said.reasoning}
                choice = {"index": 0, "message": message, "finish_reason": said.finish_reason}
                usage = {"prompt_tokens": 9, "completion_tokens": 3}
                self.send(json.dumps({"choices": [choice], "usage": usage}).encode())

        def send(self, body: bytes, status: int = 200) -> None:
            head = f"HTTP/1.1 {status} X\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
            self.wfile.write(head.encode() + body)

        def log_message(self, *args: object) -> None:
            pass

    return Handler


@contextmanager
def serving(double: ChatDouble) -> Iterator[ChatDouble]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(double))
    server.daemon_threads = True
    double.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield double
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
