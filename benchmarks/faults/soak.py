"""Load a server that fails at random for a long time, and compare both ledgers and the client's memory.

    python benchmarks/faults/soak.py --minutes 30 --users 64

The server, in a process of its own, counts how it answered each request: well, with an error, cut, reset, garbage. The
client runs as beside an evaluation, where replies are counted and not kept. In the end the server answers no more and
holds a request of each user; then both ledgers must agree exactly: as many replies of each kind as the client counted
of its class, and as many requests sent as replies, failures and requests held. The client's memory of the last fifth
of the time may be at most 5 % above that of the second fifth.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import random
import statistics
import sys
import threading
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
from servebench.load.endpoint import Endpoint  # noqa: E402
from servebench.load.run import START_DELAY_NS, prepare  # noqa: E402
from servebench.load.workers import Workers  # noqa: E402
from servebench.load.workload import Workload  # noqa: E402

# What the client calls each answer of the server.
CLASSES = {"ok": "ok", "error": "http_error", "cut": "truncated", "reset": "reset", "garbage": "in_band_error"}
PATIENCE_S = 120.0


def serve(pipe: Any, users: int, seed: int) -> None:
    """Answer until told to hold; when a request of each user is held, send how often each answer was given."""
    lock = threading.Lock()
    counts: Counter[str] = Counter()
    choice = random.Random(seed)
    holding = threading.Event()

    def script(request: Request) -> Iterator[Step]:
        with lock:
            how = choice.choices(list(CLASSES), [80, 8, 4, 4, 4])[0] if not holding.is_set() else "held"
            counts[how] += 1
        request.content = b""  # the double remembers every request
        if how == "held":
            yield PATIENCE_S
        elif how == "ok":
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
        holding.set()
        end = time.monotonic() + PATIENCE_S
        while counts["held"] < users and time.monotonic() < end:
            time.sleep(0.05)
        pipe.send(counts)
        pipe.recv()


def memory_mib() -> float:
    """Return the resident memory of the load's processes."""
    workers = [child for child in psutil.Process().children() if "servebench.load.worker" in child.cmdline()]
    return float(sum(worker.memory_info().rss for worker in workers)) / 2**20


def load(pipe: Any, users: int, seconds: float) -> tuple[dict[str, int], Counter[str], list[float]]:
    """Load for so long; return the client's ledger, the server's, and the client's memory, MiB, twice a second."""
    workload = Workload(
        prompts="en-short", max_tokens=8, warmup_s=1.0, spread_s=1.0, timeout_s=2 * PATIENCE_S, window_s=seconds
    )
    endpoint = Endpoint(url=pipe.recv(), model="m")
    _, jobs = prepare(endpoint, workload, users, processes=None, cpus=(), seed=0, number_seed=0)
    memory: list[float] = []
    with Workers(jobs) as workers:
        workers.gather("ready")
        workers.tell(start_ns=time.monotonic_ns() + START_DELAY_NS, spread_s=1.0)
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            workers.listen(0.5)
            if time.monotonic() >= end - seconds + 0.5 * len(memory):
                memory.append(memory_mib())
        pipe.send("hold")
        while not pipe.poll():
            workers.listen(0.1)
        workers.tell(stop=True)
        workers.gather("done")
        failed = sum(map(Counter, workers.values("refused")), Counter[str]())
        client = {"sent": sum(workers.values("begun")), "ok": sum(workers.values("answered")), **failed}
    return client, pipe.recv(), memory


def main() -> None:
    """Run, print both ledgers as JSON; exit with 1 when they differ or the memory grew."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=30)
    parser.add_argument("--users", type=int, default=64)
    given = parser.parse_args()
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    server = context.Process(target=serve, args=(theirs, given.users, 1))
    server.start()
    client, answered, memory = load(ours, given.users, given.minutes * 60)
    ours.send("end")
    server.join()
    fifth = max(1, len(memory) // 5)
    early, late = statistics.median(memory[fifth : 2 * fifth]), statistics.median(memory[-fifth:])
    sent = client.pop("sent")
    held = sent - sum(client.values())
    exact = client == {CLASSES[how]: answered[how] for how in CLASSES} and held == answered["held"] == given.users
    print(
        json.dumps(
            {
                "minutes": given.minutes,
                "users": given.users,
                "server": dict(answered),
                "client": {"sent": sent, **client, "under_way_at_the_end": held},
                "exact": exact,
                "memory_mib": {"second_fifth": round(early, 1), "last_fifth": round(late, 1)},
                "growth_percent": round(100 * (late / early - 1), 2),
            }
        )
    )
    sys.exit(not exact or late > 1.05 * early)


if __name__ == "__main__":
    main()
