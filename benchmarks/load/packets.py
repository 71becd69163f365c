"""Our stamps against packet times: is the client's clock right, seen from outside?

tcpdump writes down when the kernel passed each of the clock server's packets over the loopback device (nanoseconds);
our client stamps the same bytes when they reach it. Needs root and tcpdump.

    python benchmarks/load/packets.py --users 64
"""

import argparse
import json
import os
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import side_by_side

from servebench.load.clock_server import Schedule, read_clock, running
from servebench.load.endpoint import Endpoint
from servebench.load.run import measure
from servebench.load.workload import Workload

_NANOSECOND_PCAP = 0xA1B23C4D


def packets(path: Path) -> Iterator[tuple[int, bytes]]:
    """(CLOCK_REALTIME ns, TCP payload) of every IPv4 packet of a nanosecond pcap file over Ethernet framing."""
    data = path.read_bytes()
    if struct.unpack_from("<I", data)[0] != _NANOSECOND_PCAP:
        raise ValueError(f"{path}: is not a little-endian nanosecond pcap file")
    at = 24
    while at + 16 <= len(data):
        seconds, nanoseconds, length, _ = struct.unpack_from("<IIII", data, at)
        frame = data[at + 16 : at + 16 + length]
        at += 16 + length
        ip = frame[14:]
        tcp = ip[(ip[0] & 15) * 4 :]
        yield seconds * 1_000_000_000 + nanoseconds, tcp[(tcp[12] >> 4) * 4 :]


def offset_ns() -> int:
    """CLOCK_REALTIME − CLOCK_MONOTONIC: the middle of the narrowest of many readings."""
    readings = []
    for _ in range(1000):
        before, real, after = time.monotonic_ns(), time.time_ns(), time.monotonic_ns()
        readings.append((after - before, real - (before + after) // 2))
    return min(readings)[1]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--users", type=int, default=64)
    given = parser.parse_args()
    schedule = Schedule(tokens=64)
    with tempfile.TemporaryDirectory() as folder, running(schedule) as (url, server):
        how = side_by_side.on_one_core(server, side_by_side.SERVER_CPU)
        path = Path(folder) / "loopback.pcap"
        port = url.rpartition(":")[2]
        command = ["tcpdump", "-i", "lo", "-n", "-s", "0", "-B", "65536", "--time-stamp-precision=nano"]
        with subprocess.Popen([*command, "-w", path, "tcp", "src", "port", port], stderr=subprocess.PIPE) as dump:
            time.sleep(1)
            before_ns = offset_ns()
            os.sched_setaffinity(0, {side_by_side.CLIENT_CPU})
            stamps = measure(
                Endpoint(url=url, model="clock"),
                Workload(max_tokens=64, warmup_s=3.0, window_s=5.0, spread_s=schedule.answer_s),
                given.users,
                processes=1,
                clock=True,
            ).clock
            after_ns = offset_ns()
            time.sleep(1)
            dump.terminate()
            said = dump.communicate()[1].decode()
        passed = {clock: at_ns for at_ns, payload in packets(path) for clock in read_clock(payload)}
    assert stamps is not None
    drift_ns = (before_ns + after_ns) // 2
    rows = zip(*(stamps[name].to_pylist() for name in ("received_ns", "due_ns", "sent_ns", "arrival_ns")), strict=True)
    late_ns = np.array([at - (passed[clock] - drift_ns) for *c, at in rows if (clock := tuple(c)) in passed])
    found = {
        "scheduling": how,
        "users": given.users,
        "chunks": stamps.num_rows,
        "matched": len(late_ns),
        "stamp_minus_packet_us": {f"p{p}": round(float(np.percentile(late_ns, p)) / 1e3, 1) for p in (0, 50, 99)},
        "clock_drift_us": round((after_ns - before_ns) / 1e3, 1),
    }
    print(json.dumps(found, indent=1))
    print(said.strip(), file=sys.stderr)


if __name__ == "__main__":
    main()
