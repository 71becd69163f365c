"""A double of libnvidia-ml at the level of its C functions, for machines without a GPU.

Copied from NVML's header: names, argument order, return codes, the two calls with which lists are sized, "not
available" as all ones in a process's memory, samples newer than a time stamp only. pynvml itself is the real one. Not
shown: a driver's timing, permissions that depend on the user, or MIG's own limits beyond what a test sets.
"""

import ctypes
from collections.abc import Callable
from typing import Any

import pynvml as nvml
import pytest

SUCCESS, INVALID_ARGUMENT, NOT_SUPPORTED, NO_PERMISSION, NOT_FOUND, INSUFFICIENT = 0, 2, 3, 4, 6, 7
NOT_AVAILABLE = 2**64 - 1
GIB = 2**30


class Nvml:
    """Simulate one GPU. `processes`: bytes by pid; `using`: [(pid, µs, percent)]; `refuses`: functions that fail."""

    def __init__(self, uuids: tuple[str, ...] = ("GPU-aaaa-1",)) -> None:
        self.uuids = uuids
        self.processes: dict[int, int] = {}
        self.using: list[tuple[int, int, int]] = []
        self.used, self.total = 0, 141 * GIB
        self.refuses: dict[str, int] = {}

    def __getattr__(self, name: str) -> Callable[..., int]:
        if not name.startswith("nvml"):
            raise AttributeError(name)
        found: Callable[..., int] | None = getattr(type(self), f"c_{name.removeprefix('nvml')}", None)

        def call(*arguments: Any) -> int:
            if name in self.refuses:
                return self.refuses[name]
            return found(self, *arguments) if found else NOT_SUPPORTED

        return call

    def c_InitWithFlags(self, flags: int) -> int:
        return SUCCESS

    def c_Shutdown(self) -> int:
        return SUCCESS

    def c_DeviceGetCount_v2(self, count: Any) -> int:
        return put(count, len(self.uuids))

    def c_DeviceGetHandleByIndex_v2(self, index: Any, device: Any) -> int:
        return point(device, int(getattr(index, "value", index)) + 1)

    def c_DeviceGetHandleByUUID(self, uuid: Any, device: Any) -> int:
        name = uuid.value.decode()
        return point(device, self.uuids.index(name) + 1) if name in self.uuids else NOT_FOUND

    def c_DeviceGetDeviceHandleFromMigDeviceHandle(self, device: Any, whole: Any) -> int:
        mig = self.uuids[ctypes.cast(device, ctypes.c_void_p).value - 1].startswith("MIG")
        return point(whole, 1) if mig else INVALID_ARGUMENT

    def c_DeviceGetUUID(self, device: Any, text: Any, size: Any) -> int:
        text.value = self.uuids[ctypes.cast(device, ctypes.c_void_p).value - 1].encode()
        return SUCCESS

    def c_DeviceGetName(self, device: Any, text: Any, size: Any) -> int:
        text.value = b"NVIDIA H200"
        return SUCCESS

    def c_SystemGetDriverVersion(self, text: Any, size: Any) -> int:
        text.value = b"580.65.06"
        return SUCCESS

    def c_SystemGetCudaDriverVersion(self, version: Any) -> int:
        return put(version, 13000)

    def c_DeviceGetMemoryInfo(self, device: Any, memory: Any) -> int:
        memory._obj.total, memory._obj.used, memory._obj.free = self.total, self.used, self.total - self.used
        return SUCCESS

    def c_DeviceGetComputeRunningProcesses_v3(self, device: Any, count: Any, array: Any) -> int:
        if array is None:
            needed = len(self.processes)
            put(count, needed)
            return INSUFFICIENT if needed else SUCCESS
        for entry, (pid, used) in zip(array, self.processes.items(), strict=False):
            entry.pid, entry.usedGpuMemory = pid, used
        return put(count, len(self.processes))

    def c_DeviceGetGraphicsRunningProcesses_v3(self, device: Any, count: Any, array: Any) -> int:
        return put(count, 0)

    def c_DeviceGetProcessUtilization(self, device: Any, array: Any, count: Any, since: Any) -> int:
        newer = [sample for sample in self.using if sample[1] > since.value]
        if not newer:
            return NOT_FOUND
        if array is None:
            put(count, len(newer))
            return INSUFFICIENT
        for entry, (pid, at, percent) in zip(array, newer, strict=False):
            entry.pid, entry.timeStamp, entry.smUtil = pid, at, percent
        return put(count, len(newer))

    def c_DeviceGetUtilizationRates(self, device: Any, rates: Any) -> int:
        rates._obj.gpu = 80
        return SUCCESS

    def c_DeviceGetPowerUsage(self, device: Any, milliwatts: Any) -> int:
        return put(milliwatts, 412_500)

    def c_DeviceGetClockInfo(self, device: Any, kind: Any, megahertz: Any) -> int:
        return put(megahertz, 1980)

    def c_DeviceGetTemperature(self, device: Any, sensor: Any, degrees: Any) -> int:
        return put(degrees, 61)

    def c_DeviceGetCurrentClocksThrottleReasons(self, device: Any, reasons: Any) -> int:
        return put(reasons, nvml.nvmlClocksThrottleReasonSwPowerCap | nvml.nvmlClocksThrottleReasonGpuIdle)

    def c_DeviceGetTotalEccErrors(self, device: Any, kind: Any, counter: Any, count: Any) -> int:
        return put(count, 0)


def put(reference: Any, value: int) -> int:
    """Write through a byref(); success."""
    reference._obj.value = value
    return SUCCESS


def point(reference: Any, value: int) -> int:
    """Make a device handle."""
    ctypes.c_void_p.from_buffer(reference._obj).value = value
    return SUCCESS


def install(monkeypatch: pytest.MonkeyPatch, double: Nvml) -> Nvml:
    """Put the double in the library's place."""
    monkeypatch.setattr(nvml, "nvmlLib", double)
    monkeypatch.setattr(nvml, "_nvmlGetFunctionPointer_cache", {})
    return double
