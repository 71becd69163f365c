"""What a block of bytes costs in our protocol: the time of `data_received`, and the part of it that looks for [DONE].

    python benchmarks/load/receive.py

A connection gets 50,000 events of the clock server, each in a block of its own, without a network. The same blocks go
through a protocol that only stamps and keeps them. Then the test of a block's end is timed, in its two forms. Prints
microseconds of CPU for each block, the least of five passes.
"""

import asyncio
import gc
import json
import time
from collections.abc import Callable, Sequence
from time import monotonic_ns

from servebench.load.exchange import Exchange
from servebench.load.transport import Connection, Timeouts

HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
EVENT = (
    b'data: {"id":"chatcmpl-0","choices":[{"index":0,"delta":{"content":" token"},"finish_reason":null}],"n":%d}\n\n'
)
BLOCKS, PASSES = 50_000, 5


class Nowhere(asyncio.Transport):
    def write(self, data: bytes) -> None:
        pass

    def abort(self) -> None:
        pass


def least_us(take: Callable[[bytes], object], blocks: Sequence[bytes]) -> float:
    passes = []
    for _ in range(PASSES):
        began_s = time.process_time()
        for block in blocks:
            take(block)
        passes.append((time.process_time() - began_s) / len(blocks) * 1e6)
    return round(min(passes), 3)


async def main() -> None:
    events = [EVENT % (10**9 + n) for n in range(BLOCKS)]
    blocks = [b"%x\r\n%b\r\n" % (len(event), event) for event in events]
    connection = Connection("http://127.0.0.1/v1/chat/completions")
    connection.connection_made(Nowhere())
    exchange = Exchange(0, 0, 0, "p", 0)
    carrying = asyncio.create_task(connection.carry(exchange, b"", Timeouts(1.0, 1000.0)))
    await asyncio.sleep(0)
    connection.data_received(HEAD)
    gc.disable()
    kept: list[tuple[int, bytes]] = []
    found = {
        "data_received_us": least_us(connection.data_received, blocks),
        "stamp_and_keep_us": least_us(lambda block: kept.append((monotonic_ns(), block)), blocks),
        "nothing_us": least_us(lambda block: None, blocks),
        "ends_like_an_event_us": least_us(lambda block: block.endswith(b"}\n\n"), events),
        "done_in_the_last_bytes_us": least_us(lambda block: b"[DONE]" in block[-24:], events),
    }
    carrying.cancel()
    if len(exchange.blocks) != BLOCKS * PASSES:
        raise RuntimeError(f"the connection kept {len(exchange.blocks)} blocks: {exchange.error}")
    print(json.dumps(found, indent=1))


if __name__ == "__main__":
    asyncio.run(main())
