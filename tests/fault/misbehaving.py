"""A server that does what public reports say servers do; started by tests/fault/test_reports.py.

    python misbehaving.py OPTIONS      (JSON: see the defaults below)

Every request is one line of its output. It answers /health, /v1/models, /props as the simulator does, and a chat
completion of one word.
"""

import json
import socket
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

OPTIONS = {
    "port": 0,
    "share_port": False,  # SO_REUSEPORT, as some builds set it
    "listen": True,  # False: waits in silence
    "healthy_after_s": 0.0,
    "chat_after_s": 0.0,
    "refuse_first": 0,  # so many chat requests fail, and then all is well
    "fail_after": None,  # after so many good ones all fail
    **json.loads(sys.argv[1]),
}
BEGAN = time.monotonic()
CHATS = [0]


class Handler(BaseHTTPRequestHandler):
    """One connection."""

    def do_GET(self) -> None:
        age_s = time.monotonic() - BEGAN
        if self.path == "/health":
            self._answer(200 if age_s >= OPTIONS["healthy_after_s"] else 503, {})
        elif self.path == "/props":
            self._answer(200, {"total_slots": 2, "n_ctx_slot": 512, "model_alias": "m", "memory_gib": None})
        else:
            self._answer(200, {"data": [{"id": "m"}]})

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["content-length"]))
        CHATS[0] += 1
        good = CHATS[0] - OPTIONS["refuse_first"]
        failing = OPTIONS["fail_after"] is not None and good > OPTIONS["fail_after"]
        if time.monotonic() - BEGAN < OPTIONS["chat_after_s"] or good <= 0 or failing:
            self._answer(503, {"error": {"message": "EngineCore is not there"}})
            return
        choice = {"message": {"content": "Paris."}, "finish_reason": "stop"}
        self._answer(200, {"choices": [choice], "usage": {"prompt_tokens": 9, "completion_tokens": 2}})

    def _answer(self, status: int, content: object) -> None:
        print(self.command, self.path, status, flush=True)
        body = json.dumps(content).encode()
        self.send_response(status)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *arguments: object) -> None:
        """Said by `_answer`."""


class Server(ThreadingHTTPServer):
    """On 127.0.0.1, sharing its port where told to."""

    daemon_threads = True
    allow_reuse_address = False

    def server_bind(self) -> None:
        if OPTIONS["share_port"]:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        super().server_bind()


if OPTIONS["listen"]:
    server = Server(("127.0.0.1", OPTIONS["port"]), Handler)
    print("listening", flush=True)
    server.serve_forever()
time.sleep(300)
