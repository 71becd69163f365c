"""List and sample NVIDIA GPUs by NVML. What the driver does not give is None, never 0."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

import pynvml as nvml

from servebench.machine.infrastructure import InfrastructureError

GIB = 2**30
HIDING = ("", "-1", "NoDevFiles", "void", "none")  # values of CUDA_VISIBLE_DEVICES that mean: no GPU
# Clock limits that mean the GPU is slower than it could be; idle and applications' settings are not among them.
THROTTLES: Mapping[str, int] = {
    "power_cap": nvml.nvmlClocksThrottleReasonSwPowerCap,
    "hw_slowdown": nvml.nvmlClocksThrottleReasonHwSlowdown,
    "sw_thermal": nvml.nvmlClocksThrottleReasonSwThermalSlowdown,
    "hw_thermal": nvml.nvmlClocksThrottleReasonHwThermalSlowdown,
    "hw_power_brake": nvml.nvmlClocksThrottleReasonHwPowerBrakeSlowdown,
}


@dataclass(frozen=True)
class Gpu:
    """One GPU (or MIG instance). `cuda` is the newest CUDA the driver supports, e.g. 13.0."""

    uuid: str
    name: str
    memory_gib: float
    driver: str
    cuda: str
    mig: bool


def gpus() -> list[Gpu]:
    """List all GPUs in NVML's order, MIG instances in place of the GPUs they are cut from; [] without NVML."""
    with _session() as there:
        return [_describe(handle) for handle in _handles()] if there else []


def resolve(device: str | None, environ: Mapping[str, str] = os.environ) -> Gpu | None:
    """Return the GPU to use: `device` (a UUID, its beginning, or an index), else the first that is `usable`.

    None means the CPU: no GPU is usable, or `device` is "cpu". Raises `InfrastructureError` for an unknown device.
    """
    return next(iter(usable(device, environ)), None)


def usable(device: str | None, environ: Mapping[str, str] = os.environ) -> list[Gpu]:
    """List the GPUs to choose from: those that `device` names, else CUDA_VISIBLE_DEVICES, else all.

    [] means the CPU: the machine has no GPU, `device` is "cpu", or CUDA_VISIBLE_DEVICES hides all GPUs. Raises
    `InfrastructureError` for an unknown GPU.
    """
    if device == "cpu":
        return []
    there, names = gpus(), named(device, environ)
    if not names:
        return [] if device is None and "CUDA_VISIBLE_DEVICES" in environ else there
    if not there and device is None:
        return []
    return [_find(name, there, "CUDA_VISIBLE_DEVICES" if device is None else "runtime.device") for name in names]


def named(device: str | None, environ: Mapping[str, str] = os.environ) -> list[str]:
    """Split the comma-separated names in `device` or CUDA_VISIBLE_DEVICES; [] without names."""
    names = [name.strip() for name in (device or environ.get("CUDA_VISIBLE_DEVICES", "")).split(",")]
    return [name for name in names if name not in HIDING]


def _find(name: str, there: list[Gpu], where: str) -> Gpu:
    found = [gpu for gpu in there if gpu.uuid.startswith(name)]
    if not found and name.isdigit() and int(name) < len(there):
        found = [there[int(name)]]
    if not found:
        known = ", ".join(gpu.uuid for gpu in there) or "none; use cpu"
        raise InfrastructureError(f"{where}: {name!r} is not a GPU of this machine; GPUs are: {known}")
    return found[0]


class Sampler:
    """Samples one GPU for one process tree, with one NVML session from its making to `close`."""

    def __init__(self, uuid: str) -> None:
        nvml.nvmlInit()
        self._handle = nvml.nvmlDeviceGetHandleByUUID(uuid)
        # A MIG instance has memory and processes of its own. Clock, temperature, throttling and errors are known for
        # the whole GPU and hold for the instance; the whole GPU's power and use are not the instance's.
        self._mig, self._whole = uuid.startswith("MIG"), self._handle
        with suppress(nvml.NVMLError):
            self._whole = nvml.nvmlDeviceGetDeviceHandleFromMigDeviceHandle(self._handle)
        self._seen_us = 0

    def sample(self, own: set[int]) -> dict[str, Any]:
        """Return one row of the telemetry without its time; `own` are the pids of the server's process tree."""
        holders = self.holders()
        using = self._using()
        ours_seen = holders is not None and any(pid in own for pid in holders)
        memory = _known(sum, [holders[pid] for pid in holders if pid in own]) if holders and ours_seen else None
        utilisation = None if self._mig else _try(nvml.nvmlDeviceGetUtilizationRates, self._whole)
        used = _try(nvml.nvmlDeviceGetMemoryInfo, self._handle)
        power_mw = None if self._mig else _try(nvml.nvmlDeviceGetPowerUsage, self._whole)
        return {
            "memory_bytes": memory,
            "device_memory_bytes": used.used if used is not None else None,
            "utilisation": None if using is None else sum(v for pid, v in using.items() if pid in own),
            "foreign_utilisation": self._foreign(own, holders, using, ours_seen),
            "device_utilisation": None if utilisation is None else utilisation.gpu / 100,
            "power_w": None if power_mw is None else power_mw / 1e3,
            "clock_mhz": _try(nvml.nvmlDeviceGetClockInfo, self._whole, nvml.NVML_CLOCK_SM),
            "temperature_c": _try(nvml.nvmlDeviceGetTemperature, self._whole, nvml.NVML_TEMPERATURE_GPU),
            "throttle": self._throttle(),
            "ecc_errors": _try(
                nvml.nvmlDeviceGetTotalEccErrors,
                self._whole,
                nvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED,
                nvml.NVML_VOLATILE_ECC,
            ),
        }

    def used_bytes(self) -> int | None:
        """Return the memory in use on the device, by any process."""
        used = _try(nvml.nvmlDeviceGetMemoryInfo, self._handle)
        return None if used is None else int(used.used)

    def close(self) -> None:
        """End the NVML session."""
        nvml.nvmlShutdown()

    def holders(self) -> dict[int, int | None] | None:
        """Return the bytes by pid of every process with memory on the GPU; None when the driver gives no list."""
        found: dict[int, int | None] = {}
        for query in (nvml.nvmlDeviceGetComputeRunningProcesses, nvml.nvmlDeviceGetGraphicsRunningProcesses):
            processes = _try(query, self._handle)
            if processes is None:
                if query is nvml.nvmlDeviceGetComputeRunningProcesses:
                    return None
                continue
            for process in processes:
                found[process.pid] = process.usedGpuMemory
        return found

    def _using(self) -> dict[int, float] | None:
        """Return the share of the GPU's time by pid since the last sample; None when the driver does not say."""
        try:
            samples = nvml.nvmlDeviceGetProcessUtilization(self._handle, self._seen_us)
        except nvml.NVMLError_NotFound:  # no process used the GPU since
            return {}
        except nvml.NVMLError as error:  # pynvml raises for an empty list, too
            return {} if error.value == nvml.NVML_SUCCESS else None
        shares: dict[int, list[float]] = {}
        for sample in samples:
            if sample.timeStamp > self._seen_us:
                shares.setdefault(sample.pid, []).append(sample.smUtil / 100)
        self._seen_us = max((sample.timeStamp for sample in samples), default=self._seen_us)
        return {pid: sum(values) / len(values) for pid, values in shares.items()}

    @staticmethod
    def _foreign(
        own: set[int], holders: dict[int, int | None] | None, using: dict[int, float] | None, ours_seen: bool
    ) -> float | None:
        """Return the share of the GPU's time that others used.

        None when the driver does not say, or lists processes but none of ours: then its pids are those of another
        namespace, and ours cannot be distinguished from others.
        """
        if holders is None or (holders and not ours_seen):
            return None
        if all(pid in own for pid in holders):
            return 0.0
        return None if using is None else sum(share for pid, share in using.items() if pid not in own)

    def _throttle(self) -> str | None:
        """Name what slows the clocks now, joined by commas; "" for nothing."""
        reasons = _try(nvml.nvmlDeviceGetCurrentClocksThrottleReasons, self._whole)
        return None if reasons is None else ",".join(name for name, bit in THROTTLES.items() if reasons & bit)


def together(samples: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Combine the samples of a server's GPUs into one row.

    Memory, power and errors are totals, use is a mean; foreign use, temperature and clock are the worst; throttles are
    those of any GPU. A value unknown for one GPU is unknown for all.
    """
    if len(samples) == 1:
        return dict(samples[0])
    ways: dict[str, Callable[[list[Any]], Any]] = {
        **dict.fromkeys(("memory_bytes", "device_memory_bytes", "power_w", "ecc_errors"), sum),
        **dict.fromkeys(("utilisation", "device_utilisation"), lambda values: sum(values) / len(values)),
        **dict.fromkeys(("foreign_utilisation", "temperature_c"), max),
        "clock_mhz": min,
        "throttle": lambda values: ",".join(name for name in THROTTLES if any(name in v.split(",") for v in values)),
    }
    return {name: _known(way, [sample[name] for sample in samples]) for name, way in ways.items()}


@contextmanager
def _session() -> Any:
    """Open an NVML session; yields False without a driver."""
    try:
        nvml.nvmlInit()
    except nvml.NVMLError:
        yield False
        return
    try:
        yield True
    finally:
        nvml.nvmlShutdown()


def _handles() -> list[Any]:
    found = []
    for index in range(nvml.nvmlDeviceGetCount()):
        whole = nvml.nvmlDeviceGetHandleByIndex(index)
        instances = []
        for slot in range(_try(nvml.nvmlDeviceGetMaxMigDeviceCount, whole) or 0):
            instance = _try(nvml.nvmlDeviceGetMigDeviceHandleByIndex, whole, slot)
            if instance is not None:
                instances.append(instance)
        found += instances or [whole]
    return found


def _describe(handle: Any) -> Gpu:
    cuda = nvml.nvmlSystemGetCudaDriverVersion()
    uuid = nvml.nvmlDeviceGetUUID(handle)
    return Gpu(
        uuid=uuid,
        name=nvml.nvmlDeviceGetName(handle),
        memory_gib=round(nvml.nvmlDeviceGetMemoryInfo(handle).total / GIB, 2),
        driver=nvml.nvmlSystemGetDriverVersion(),
        cuda=f"{cuda // 1000}.{cuda % 1000 // 10}",
        mig=uuid.startswith("MIG"),
    )


def _try(call: Callable[..., Any], *arguments: Any) -> Any:
    """Return what NVML gives; None when it gives nothing (no permission, not supported, MIG)."""
    try:
        return call(*arguments)
    except nvml.NVMLError:
        return None


def _known(total: Callable[[list[Any]], Any], values: Sequence[Any]) -> Any:
    """Return the total; None when a part is unknown."""
    return None if not values or any(value is None for value in values) else total(list(values))
