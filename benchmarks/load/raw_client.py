"""The least a client can do: stamp, keep, and send the next request when the last bytes came.

It knows nothing of HTTP: a reply is over when a block ends like the clock server's replies end. What it costs and how
late it is on a core is the limit any client in this language has there. Prints one JSON object.

    python benchmarks/load/raw_client.py --url URL --users 256 --answer-s 2.59 --spread-s 2.59 --answers 4
"""

import argparse
import asyncio
import gc
import json
import time
from time import monotonic_ns

import errors
import uvloop


class User(asyncio.Protocol):
    def __init__(self, payload: bytes) -> None:
        self.payload = payload
        self.sent_ns: list[int] = []
        self.blocks: list[tuple[int, bytes]] = []

    def connection_made(self, transport: asyncio.Transport) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.blocks.append((monotonic_ns(), data))
        if data.endswith(b"0\r\n\r\n"):
            self.send()

    def send(self) -> None:
        self.sent_ns.append(monotonic_ns())
        self.transport.write(self.payload)


async def load(host: str, port: int, users: int, answer_s: float, answers: int, tokens: int, spread_s: float) -> dict:
    loop = asyncio.get_running_loop()
    # As long as one of ours, with a prompt of the set en-short.
    body = json.dumps({"model": "clock", "stream": True, "max_tokens": tokens, "messages": "x" * 400}).encode()
    payload = b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n%s" % (len(body), body)
    crowd = [(await loop.create_connection(lambda: User(payload), host, port))[1] for _ in range(users)]
    gc.collect()
    gc.freeze()
    gc.disable()
    cpu_s, start_ns = time.process_time(), monotonic_ns()
    for place, user in enumerate(crowd):
        loop.call_later(spread_s * place / users, user.send)
    window_ns = start_ns + round(2 * answer_s * 1e9), start_ns + round((2 + answers) * answer_s * 1e9)
    await asyncio.sleep((2 + answers) * answer_s + 0.2)
    cpu_s, wall_s = time.process_time() - cpu_s, (monotonic_ns() - start_ns) / 1e9
    for user in crowd:
        user.transport.abort()
    arrivals = [(user, at_ns, block) for user in crowd for at_ns, block in user.blocks]
    return {"cpu_s": cpu_s, "wall_s": wall_s, "window_ns": window_ns} | errors.of_raw(arrivals, window_ns)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--url", required=True)
    parser.add_argument("--users", type=int, required=True)
    parser.add_argument("--answer-s", type=float, required=True)
    parser.add_argument("--answers", type=int, required=True)
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("--spread-s", type=float, required=True)
    given = parser.parse_args()
    host, port = given.url.removeprefix("http://").split(":")
    loading = load(host, int(port), given.users, given.answer_s, given.answers, given.tokens, given.spread_s)
    print(json.dumps(uvloop.run(loading)))


if __name__ == "__main__":
    main()
