"""Our client and the raw one, in turns, against the clock server: the table of docs/benchmarks.md.

The client has one core, with everything that belongs to it: for ours the parent, which draws the progress, too. Nothing
else may run on that core. The server has the other, under SCHED_FIFO where that is allowed. Every figure is of one run;
`--repeat` runs the pairs several times and prints each. CPU is that of the load's workers while it runs; the parent's,
from before the workers start until the records are read, stands beside it.

    python benchmarks/load/side_by_side.py --users 256 --itl-ms 20
    python benchmarks/load/side_by_side.py --users 1024 --itl-ms 40 --processes 2
"""

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import psutil
from rich.console import Console
from rich.table import Table

from servebench.cli.load import drawn
from servebench.load.calibrate import errors
from servebench.load.clock_server import Schedule, running
from servebench.load.endpoint import Endpoint
from servebench.load.run import measure
from servebench.load.workload import Workload

CLIENT_CPU, SERVER_CPU = 1, 0
RAW = Path(__file__).parent / "raw_client.py"


def on_one_core(pid: int, cpu: int) -> str:
    """Bind a process (0: this one) to a core; returns how it is scheduled there."""
    os.sched_setaffinity(pid, {cpu})
    try:
        os.sched_setscheduler(pid, os.SCHED_FIFO, os.sched_param(10))
    except PermissionError:
        return "normal scheduling"
    return "SCHED_FIFO"


class Memory:
    """Keep the largest memory (bytes) of each worker; the workers are looked for at the first report."""

    def __init__(self) -> None:
        self.bytes: dict[psutil.Process, int] = {}

    def note(self) -> None:
        if not self.bytes:
            children = psutil.Process().children()
            self.bytes = {child: 0 for child in children if "servebench.load.worker" in child.cmdline()}
        for worker in self.bytes:
            self.bytes[worker] = max(self.bytes[worker], worker.memory_info().rss)


def raw(url: str, users: int, schedule: Schedule, answers: int, spread_s: float) -> dict:
    command = [sys.executable, str(RAW), "--url", url, "--users", str(users), "--tokens", str(schedule.tokens)]
    command += ["--answer-s", str(schedule.answer_s), "--answers", str(answers)]
    command += ["--spread-s", str(spread_s)]
    found = json.loads(subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout)
    window_s = (found["window_ns"][1] - found["window_ns"][0]) / 1e9
    ideal = users * schedule.tokens / schedule.answer_s * window_s
    return found | {
        "delivered_ratio": found["window_chunks"] * schedule.tokens_per_chunk / ideal,
        "cpu_s_per_100k_chunks": found["cpu_s"] / found["chunks"] * 1e5,
        "parent_cpu_s": 0.0,
        "cpu_ratio": found["cpu_s"] / found["wall_s"],
        "processes": 1,
    }


def ours(url: str, users: int, schedule: Schedule, answers: int, spread_s: float, processes: int) -> dict:
    workload = Workload(
        prompts="en-short",
        max_tokens=schedule.tokens,
        warmup_s=2 * schedule.answer_s,
        window_s=answers * schedule.answer_s,
        spread_s=spread_s,
    )
    memory = Memory()
    endpoint = Endpoint(url=url, model="clock")
    with (
        Path(os.devnull).open("w", encoding="utf-8") as nowhere,
        drawn(Console(file=nowhere, force_terminal=True), "") as draw,
    ):

        def progress(state: dict) -> None:
            draw(state)
            memory.note()

        began_s = time.process_time()
        measured = measure(endpoint, workload, users, processes=processes, clock=True, progress=progress)
        parent_cpu_s = time.process_time() - began_s
    of_workers = {"worker_rss_bytes": sum(memory.bytes.values())}
    return errors(measured, schedule, users) | of_workers | {"parent_cpu_s": parent_cpu_s}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--users", type=int, default=256)
    parser.add_argument("--ttft-ms", type=float, default=50.0)
    parser.add_argument("--itl-ms", type=float, default=20.0)
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("--lockstep", action="store_true")
    parser.add_argument("--answers", type=int, default=4, help="length of the window in answers")
    parser.add_argument("--processes", type=int, default=1, help="of our client, all on the one core")
    parser.add_argument("--repeat", type=int, default=1)
    parser.add_argument("--out", type=Path, help="JSON file to write the figures to")
    parser.add_argument("--together", action="store_true", help="all users start at once, as peers' do")
    given = parser.parse_args()
    schedule = Schedule(ttft_ms=given.ttft_ms, itl_ms=given.itl_ms, tokens=given.tokens, lockstep=given.lockstep)
    spread_s = 0.0 if given.together else schedule.answer_s
    found = []
    with running(schedule) as (url, server):
        how = on_one_core(server, SERVER_CPU)
        os.sched_setaffinity(0, {CLIENT_CPU})
        for _ in range(given.repeat):
            for name in ("raw", "servebench"):
                busy_s = sum(psutil.Process(server).cpu_times()[:2])
                one = (
                    raw(url, given.users, schedule, given.answers, spread_s)
                    if name == "raw"
                    else ours(url, given.users, schedule, given.answers, spread_s, given.processes)
                )
                server_cpu_s = sum(psutil.Process(server).cpu_times()[:2]) - busy_s
                found.append({"client": name, "users": given.users, "server_cpu_s": server_cpu_s, **one})
    start = "together" if given.together else "spread"
    table = Table(title=f"{given.users} users, {start}, {given.itl_ms:g} ms a token, {given.tokens} tokens, {how}")
    for column in ("client", "processes", "TTFT error p50/p99 ms", "arrival error p50/p99 ms", "delivered ÷ ideal"):
        table.add_column(column)
    for column in ("CPU s per 100k chunks", "with the parent's", "CPU", "chunks"):
        table.add_column(column)
    for one in found:
        table.add_row(
            one["client"],
            str(one["processes"]),
            f"{one['ttft_error_p50_s'] * 1e3:.3f} / {one['ttft_error_p99_s'] * 1e3:.3f}",
            f"{one['arrival_error_p50_s'] * 1e3:.3f} / {one['arrival_error_p99_s'] * 1e3:.3f}",
            f"{one['delivered_ratio']:.4f}",
            f"{one['cpu_s_per_100k_chunks']:.3f}",
            f"{one['cpu_s_per_100k_chunks'] + one['parent_cpu_s'] / one['chunks'] * 1e5:.3f}",
            f"{one['cpu_ratio']:.2f}",
            f"{one['chunks']:,}",
        )
    Console(width=140).print(table)
    if given.out:
        given.out.write_text(json.dumps({"scheduling": how, "runs": found}, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
