"""Watch the machine during a measurement: memory, use, use by others, power, clocks.

The table is the same with and without a GPU; what is not known is null, never 0.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from types import TracebackType
from typing import Any, Self

import pyarrow as pa

from servebench.machine.identity import machine
from servebench.machine.infrastructure import InfrastructureError

__all__ = ["TELEMETRY_SCHEMA", "Watcher", "machine"]

GIB = 2**30
# With GPUs: of the server's, as `gpu.together` has it, with `host_…` beside it. Without: of the CPUs, `host_…` is null.
# Of a MIG instance `device_utilisation` and `power_w` are null; clock, temperature, throttle, errors: its whole GPU's.
TELEMETRY_SCHEMA = pa.schema(
    [
        ("time_ns", pa.int64()),  # CLOCK_MONOTONIC
        ("memory_bytes", pa.int64()),  # of the server's process tree: GPU memory, or resident memory
        ("device_memory_bytes", pa.int64()),  # in use by anybody
        ("utilisation", pa.float64()),  # by the server's process tree, of the whole device: 0 to 1
        ("foreign_utilisation", pa.float64()),  # by processes that are neither the server's nor the load generator's
        ("device_utilisation", pa.float64()),  # by anybody
        ("power_w", pa.float64()),
        ("clock_mhz", pa.int64()),
        ("temperature_c", pa.int64()),
        ("throttle", pa.string()),  # what slows the clocks, joined by commas; "" for nothing
        ("ecc_errors", pa.int64()),  # uncorrected, since the driver was loaded
        ("cpu_throttled_s", pa.float64()),  # total of the server's control group and those above it
        ("client_cpu_throttled_s", pa.float64()),  # the same of the load generator
        ("host_memory_bytes", pa.int64()),
        ("host_foreign_utilisation", pa.float64()),
    ]
)


# The sampler needs no more of the environment, which may hold keys.
PASSED = re.compile(r"PATH|HOME|LANG|LC_\w+|TZ|TMPDIR|LD_LIBRARY_PATH|VIRTUAL_ENV|PYTHON\w+|CUDA_\w+|NVIDIA_\w+")


class Watcher:
    """Samples a server's process tree and its device, from its making until `close` or the end of the `with` block."""

    def __init__(self, pid: int | None, gpus: Sequence[str] = (), interval_s: float = 0.5) -> None:
        """Start sampling. `pid` is the server's main process (None: not our server); `gpus` are its GPUs' UUIDs."""
        self.kind = "nvml" if gpus else "host"
        options = {"pid": pid, "gpus": list(gpus), "interval_s": interval_s, "session": os.getpid()}
        # Closed with the watcher.
        self._file = tempfile.TemporaryFile()  # noqa: SIM115
        self._process = subprocess.Popen(
            [sys.executable, "-m", "servebench.machine.sampler", json.dumps(options)],
            stdin=subprocess.DEVNULL,
            stdout=self._file,
            env={name: value for name, value in os.environ.items() if PASSED.fullmatch(name)},
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Stop sampling."""
        self._process.terminate()
        self._process.wait()
        self._file.close()

    def table(self, start_ns: int, end_ns: int) -> pa.Table:
        """Return the samples of [start_ns, end_ns), as TELEMETRY_SCHEMA."""
        rows = [row for row in self._rows() if start_ns <= row["time_ns"] < end_ns]
        return pa.Table.from_pylist(rows, schema=TELEMETRY_SCHEMA)

    @property
    def memory_gib(self) -> float | None:
        """The largest memory of the server's process tree so far; None when it was never known."""
        known = [row["memory_bytes"] for row in self._rows() if row["memory_bytes"] is not None]
        return max(known) / GIB if known else None

    def _rows(self) -> Iterator[dict[str, Any]]:
        """Yield all complete samples so far. A sampler that died is an error, not a quiet end of the table."""
        if self._process.poll() is not None:
            status = self._process.returncode
            raise InfrastructureError(f"the watching process ended with status {status}; run the same again")
        yield from map(json.loads, self._written(0))

    def latest(self) -> dict[str, Any] | None:
        """Return the last complete sample; None before the first."""
        lines = self._written(max(0, os.fstat(self._file.fileno()).st_size - 4096))
        return dict(json.loads(lines[-1])) if lines else None

    def _written(self, start: int) -> list[bytes]:
        """Return the complete lines from a position on; the first may be cut.

        The sampler writes at the same file offset, so reading must not move it.
        """
        size = os.fstat(self._file.fileno()).st_size
        written = os.pread(self._file.fileno(), size - start, start)
        return written[: written.rfind(b"\n") + 1].splitlines()
