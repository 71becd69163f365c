"""Load a server that fails at random for a long time, and compare both ledgers and the client's memory.

    python benchmarks/faults/soak.py --minutes 30 --users 64

The server, in a process of its own, counts how it answered each request: well, with an error, cut, reset. The client
runs as beside an evaluation, where replies are counted and not kept. In the end every request that reached the server
must be among the client's replies and failures, but for those under way when the load ended (one for each user at
most), and the client's memory of the last fifth of the time may be at most 5 % above that of the second fifth.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import multiprocessing
import random
import statistics
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "tests" / "load")]

from scripted_server import HEAD, ScriptedServer, framed, refusal, reply, token  # noqa: E402

from http_double import CLOSE, RESET, Request, Step  # noqa: E402
from servebench.load.beside import loaded  # noqa: E402
from servebench.load.endpoint import Endpoint  # noqa: E402
from servebench.load.workload import Workload  # noqa: E402


def serve(pipe: Any, seed: int) -> None:
    """Answer until told to stop; then send how often each answer was given."""
    counts: Counter[str] = Counter()
    choice = random.Random(seed)

    def script(request: Request) -> Iterator[Step]:
        how = choice.choices(["ok", "error", "cut", "reset", "garbage"], [80, 8, 4, 4, 4])[0]
        counts[how] += 1
        if how == "ok":
            yield from reply(8, gap_s=0.02)
        elif how == "error":
            yield from refusal(503)
        elif how == "garbage":
            yield HEAD + framed(b'data: {"choices": [5]}\n\n')
            yield CLOSE
        else:
            yield HEAD + framed(token())
            yield RESET if how == "reset" else CLOSE

    with ScriptedServer(script) as server:
        pipe.send(server.url)
        pipe.recv()
        time.sleep(1)  # of what is under way
        pipe.send(counts)


def memory_mib() -> float:
    """Return the resident memory of the load's processes."""
    workers = [child for child in psutil.Process().children() if "servebench.load.worker" in child.cmdline()]
    return float(sum(worker.memory_info().rss for worker in workers)) / 2**20


async def load(url: str, users: int, seconds: float) -> tuple[Any, list[float]]:
    """Load for so long; return the client's counts and its memory, MiB, twice a second."""
    workload = Workload(prompts="en-short", max_tokens=8, warmup_s=1.0, timeout_s=30.0, window_s=seconds)
    memory = []
    async with loaded(Endpoint(url=url, model="m"), workload, users) as counts:
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            memory.append(memory_mib())
            await asyncio.sleep(0.5)
    return counts, memory


def main() -> None:
    """Run, print both ledgers as JSON; exit with 1 when they differ or the memory grew."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=30)
    parser.add_argument("--users", type=int, default=64)
    given = parser.parse_args()
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    server = context.Process(target=serve, args=(theirs, 1))
    server.start()
    counts, memory = asyncio.run(load(ours.recv(), given.users, given.minutes * 60))
    ours.send("stop")
    answered: Counter[str] = ours.recv()
    server.join()
    fifth = max(1, len(memory) // 5)
    early, late = statistics.median(memory[fifth : 2 * fifth]), statistics.median(memory[-fifth:])
    told = counts.replies + counts.failures
    missing = sum(answered.values()) - told
    exact = 0 <= missing <= given.users and 0 <= answered["ok"] - counts.replies <= given.users
    print(
        json.dumps(
            {
                "minutes": given.minutes,
                "users": given.users,
                "server": dict(answered),
                "client": {"replies": counts.replies, "failures": counts.failures},
                "under_way_at_the_end": missing,
                "exact": exact,
                "memory_mib": {"second_fifth": round(early, 1), "last_fifth": round(late, 1)},
                "growth_percent": round(100 * (late / early - 1), 2),
            }
        )
    )
    sys.exit(not exact or late > 1.05 * early)


if __name__ == "__main__":
    main()
