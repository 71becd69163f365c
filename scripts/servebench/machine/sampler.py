"""The watching process: `python -m servebench.machine.sampler OPTIONS`, one JSON line per sample on standard output.

It is a process of its own, so that neither the load generator's event loop nor its garbage collection delays a sample,
and no sample delays a request. It ends with the process that started it.
"""

from __future__ import annotations

import json
import sys
import time

from servebench.machine import gpu, host
from servebench.machine.lifeline import follow_parent
from servebench.machine.priority import give_way

# Behind the load processes; not last, because where a server keeps all CPUs busy it would sample every few seconds.
NICENESS = 10


def main() -> None:
    """Sample until killed.

    OPTIONS is JSON: pid (of the server, or null), gpus (UUIDs, [] for the CPU), interval_s, and session, the process to
    end with.
    """
    options = json.loads(sys.argv[1])
    session = options["session"]  # not getppid: the parent may have died before this line
    follow_parent(session)
    on_host = host.Sampler(options["pid"], session)
    on_gpus = [gpu.Sampler(uuid) for uuid in options["gpus"]]
    due = time.monotonic()
    while True:
        due = max(due + options["interval_s"], time.monotonic())
        time.sleep(max(0.0, due - time.monotonic()))
        row = on_host.sample()
        if on_gpus:
            row |= {f"host_{name}": row[name] for name in ("memory_bytes", "foreign_utilisation")}
            own = {process.pid for process in host.tree(options["pid"])}
            row |= gpu.together([on_gpu.sample(own) for on_gpu in on_gpus])
        print(json.dumps({"time_ns": time.monotonic_ns(), **row}), flush=True)


if __name__ == "__main__":
    give_way(NICENESS)
    main()
