"""Sample the machine: what driver and kernel report, and what stays unknown."""

import json
import os
import subprocess
import sys
import time
from typing import Any
from unittest.mock import Mock

import psutil
import pytest

import nvml_double
from nvml_double import GIB, NO_PERMISSION, NOT_AVAILABLE, NOT_SUPPORTED, Nvml
from processes import below
from servebench.machine import gpu, host, identity, sampler
from servebench.machine import watcher as watch
from servebench.machine.infrastructure import InfrastructureError
from waiting import until

OURS, OTHER = 4_000_001, 4_000_002


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> Nvml:
    """Pretend to be a machine with two GPUs."""
    return nvml_double.install(monkeypatch, Nvml(("GPU-aaaa-1", "GPU-bbbb-2")))


def sample(driver: Nvml, own: set[int] | None = None) -> dict[str, Any]:
    """Take one sample of the first GPU."""
    return gpu.Sampler("GPU-aaaa-1").sample({OURS} if own is None else own)


def test_gpus_are_described_and_chosen_by_uuid(driver: Nvml) -> None:
    first, second = gpu.gpus()
    assert (first.uuid, first.name, first.memory_gib, first.driver, first.cuda) == (
        "GPU-aaaa-1",
        "NVIDIA H200",
        141.0,
        "580.65.06",
        "13.0",
    )
    assert gpu.resolve("GPU-bbbb", {}) == second
    assert gpu.resolve("1", {}) == second
    assert gpu.resolve(None, {"CUDA_VISIBLE_DEVICES": "GPU-bbbb-2"}) == second
    assert gpu.resolve(None, {}) == first
    assert gpu.resolve("cpu", {}) is None
    with pytest.raises(InfrastructureError, match=r"runtime\.device: 'GPU-cccc' is not a GPU.*GPU-aaaa-1, GPU-bbbb-2"):
        gpu.resolve("GPU-cccc", {})


def test_a_machine_without_a_driver_has_no_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    double = nvml_double.install(monkeypatch, Nvml())
    double.refuses["nvmlInitWithFlags"] = 9  # driver not loaded
    assert gpu.gpus() == []
    assert gpu.resolve(None, {}) is None


def test_own_and_foreign_use_are_told_apart(driver: Nvml) -> None:
    driver.used = 50 * GIB
    driver.processes = {OURS: 30 * GIB, OTHER: 20 * GIB}
    driver.using = [(OURS, 100, 60), (OURS, 200, 80), (OTHER, 150, 12)]
    found = sample(driver)
    assert found["memory_bytes"] == 30 * GIB
    assert found["device_memory_bytes"] == 50 * GIB
    assert found["utilisation"] == pytest.approx(0.70)
    assert found["foreign_utilisation"] == pytest.approx(0.12)
    assert (found["device_utilisation"], found["power_w"], found["clock_mhz"]) == (0.8, 412.5, 1980)
    assert (found["temperature_c"], found["throttle"], found["ecc_errors"]) == (61, "power_cap", 0)


def test_only_what_is_newer_than_the_last_sample_counts(driver: Nvml) -> None:
    driver.processes = {OURS: GIB, OTHER: GIB}
    driver.using = [(OTHER, 100, 90)]
    sampler = gpu.Sampler("GPU-aaaa-1")
    assert sampler.sample({OURS})["foreign_utilisation"] == pytest.approx(0.9)
    assert sampler.sample({OURS})["foreign_utilisation"] == 0.0
    driver.using.append((OTHER, 200, 30))
    assert sampler.sample({OURS})["foreign_utilisation"] == pytest.approx(0.3)


def test_alone_on_the_gpu_there_is_no_foreign_use_even_where_shares_are_not_told(driver: Nvml) -> None:
    driver.processes = {OURS: GIB}
    driver.refuses["nvmlDeviceGetProcessUtilization"] = NOT_SUPPORTED
    found = sample(driver)
    assert found["foreign_utilisation"] == 0.0
    assert found["utilisation"] is None


@pytest.mark.parametrize("code", [NOT_SUPPORTED, NO_PERMISSION])
def test_what_the_driver_does_not_give_is_unknown_and_never_zero(driver: Nvml, code: int) -> None:
    driver.processes = {OURS: NOT_AVAILABLE, OTHER: GIB}
    for name in ("ProcessUtilization", "UtilizationRates", "PowerUsage", "ClockInfo", "Temperature", "TotalEccErrors"):
        driver.refuses[f"nvmlDeviceGet{name}"] = code
    driver.refuses["nvmlDeviceGetCurrentClocksThrottleReasons"] = code
    found = sample(driver)
    known = {name for name, value in found.items() if value is not None}
    assert known == {"device_memory_bytes"}
    driver.refuses["nvmlDeviceGetComputeRunningProcesses_v3"] = code
    assert sample(driver)["foreign_utilisation"] is None


def test_power_and_use_of_a_whole_gpu_are_not_those_of_its_mig_instance(driver: Nvml) -> None:
    driver.uuids, driver.used, driver.processes = ("GPU-aaaa-1", "MIG-cccc-3"), GIB, {OURS: GIB}
    found = gpu.Sampler("MIG-cccc-3").sample({OURS})
    assert (found["power_w"], found["device_utilisation"]) == (None, None)
    assert (found["memory_bytes"], found["device_memory_bytes"]) == (GIB, GIB)
    assert (found["clock_mhz"], found["temperature_c"], found["throttle"]) == (1980, 61, "power_cap")


def test_several_gpus_are_one_row(driver: Nvml) -> None:
    driver.used, driver.processes = 50 * GIB, {OURS: 30 * GIB}
    one = sample(driver)
    hot = one | {"foreign_utilisation": 0.3, "temperature_c": 80, "clock_mhz": 900, "throttle": "sw_thermal"}
    found = gpu.together([one, hot])
    assert (found["memory_bytes"], found["device_memory_bytes"], found["power_w"]) == (60 * GIB, 100 * GIB, 825.0)
    assert found["device_utilisation"] == pytest.approx(0.8)
    assert (found["foreign_utilisation"], found["temperature_c"], found["clock_mhz"]) == (0.3, 80, 900)
    assert found["throttle"] == "power_cap,sw_thermal"
    unknown = gpu.together([one, hot | {"power_w": None, "foreign_utilisation": None}])
    assert (unknown["power_w"], unknown["foreign_utilisation"]) == (None, None)
    assert gpu.together([one]) == one


def test_pids_of_another_namespace_make_foreign_use_unknown(driver: Nvml) -> None:
    driver.processes = {OTHER: GIB}
    driver.using = [(OTHER, 100, 90)]
    assert sample(driver)["foreign_utilisation"] is None
    assert sample(driver)["memory_bytes"] is None


def test_the_fingerprint_is_that_of_the_machine_and_not_of_the_moment(driver: Nvml) -> None:
    first = identity.machine()
    assert first == identity.machine()
    assert [found.uuid for found in first.gpus] == ["GPU-aaaa-1", "GPU-bbbb-2"]
    driver.uuids = ("GPU-aaaa-1",)
    assert identity.machine().fingerprint != first.fingerprint


BURN = "import time\nend = time.monotonic() + 300\nwhile time.monotonic() < end: pass"


def test_a_planted_foreign_process_is_seen_and_our_own_is_not() -> None:
    """A process that is nobody's child uses 1.5 s of CPU time, watched by two samplers, one of them with that
    process as its server: whatever else goes on, the other must see just as much more foreign use as it has used.
    """
    planted = subprocess.run(
        ["sh", "-c", f"setsid {sys.executable} -c '{BURN}' > /dev/null 2>&1 & echo $!"],
        capture_output=True,
        text=True,
        check=False,
    )
    burner = psutil.Process(int(planted.stdout))
    try:
        blind, owning = host.Sampler(os.getpid(), os.getpid()), host.Sampler(burner.pid, os.getpid())
        began, before_s = time.monotonic(), sum(burner.cpu_times()[:2])
        until(lambda: sum(burner.cpu_times()[:2]) >= before_s + 1.5, 120, "1.5 s of the burner's CPU time")
        seen, own = blind.sample(), owning.sample()
        used_s = sum(burner.cpu_times()[:2]) - before_s
        share = used_s / (len(host.cpus()) * (time.monotonic() - began))
    finally:
        burner.kill()
    assert share > 0.02
    assert seen["foreign_utilisation"] - own["foreign_utilisation"] == pytest.approx(share, abs=0.25 * share + 0.01)
    assert own["utilisation"] == pytest.approx(share, abs=0.25 * share + 0.01)
    assert own["memory_bytes"] > 2**20
    nobody = host.Sampler(None, os.getpid()).sample()  # a server that is not there
    assert (nobody["utilisation"], nobody["foreign_utilisation"]) == (None, None)


class Clock:
    """In place of `time` and of the machine: it goes on by itself only where somebody sleeps or takes a sample."""

    def __init__(self, *sample_s: float) -> None:
        self.now_s = 100.0
        self.began_s: list[float] = []
        self.left_s = list(sample_s)

    def monotonic(self) -> float:
        return self.now_s

    def monotonic_ns(self) -> int:
        return round(self.now_s * 1e9)

    def sleep(self, seconds: float) -> None:
        self.now_s += seconds

    def sample(self) -> dict[str, Any]:
        if not self.left_s:
            raise InterruptedError
        self.began_s.append(self.now_s)
        self.now_s += self.left_s.pop(0)
        return {}


def began(monkeypatch: pytest.MonkeyPatch, *sample_s: float) -> list[float]:
    """When the watching process as a session starts it takes its samples, s, if taking them lasts so long."""
    process = Mock()
    monkeypatch.setattr(subprocess, "Popen", process)
    watch.Watcher(1).close()
    (started,) = process.call_args.args
    clock = Clock(*sample_s)
    monkeypatch.setattr(sampler, "time", clock)
    monkeypatch.setattr(sampler, "follow_parent", lambda pid: None)
    monkeypatch.setattr(host, "Sampler", lambda *_: clock)
    monkeypatch.setattr(sys, "argv", ["sampler", started[-1]])
    with pytest.raises(InterruptedError):
        sampler.main()
    return [round(at_s - 100, 6) for at_s in clock.began_s]


def test_two_samples_a_second_are_taken_however_long_each_takes_up_to_half_a_second(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert began(monkeypatch, 0.0, 0.4, 0.1, 0.5, 0.0) == [0.5, 1.0, 1.5, 2.0, 2.5]
    assert began(monkeypatch, 0.1, 1.2, 0.1, 0.1) == [0.5, 1.0, 2.2, 2.7], "late ones are not made up for"
    stamps = [json.loads(line)["time_ns"] for line in capsys.readouterr().out.splitlines()]
    assert stamps[-4:] == [100_600_000_000, 102_200_000_000, 102_300_000_000, 102_800_000_000]


def test_the_watcher_samples_no_oftener_than_told_and_keeps_the_largest_memory() -> None:
    began = time.monotonic_ns()
    server = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    with watch.Watcher(server.pid, interval_s=0.1) as watcher:
        until(lambda: watcher.memory_gib, 60, "the first sample")
        server.kill()
        server.wait()
        until(lambda: (watcher.latest() or {})["memory_bytes"] is None, 60, "a sample without the server")
        table = watcher.table(began, time.monotonic_ns())
        assert table.schema == watch.TELEMETRY_SCHEMA
        assert table.num_rows * 0.1 <= (table["time_ns"][-1].as_py() - began) / 1e9
        assert watcher.kind == "host"
        sizes = table["memory_bytes"].to_pylist()
        assert sizes[-1] is None  # gone is unknown, not 0
        assert watcher.memory_gib == max(size for size in sizes if size is not None) / 2**30
        assert table["power_w"].null_count == table.num_rows
        assert watcher.table(0, 1).num_rows == 0


def test_a_server_that_is_not_ours_has_unknown_memory() -> None:
    with watch.Watcher(None, interval_s=0.1) as watcher:
        until(watcher.latest, 60, "the first sample")
        assert watcher.memory_gib is None
        assert watcher.table(0, time.monotonic_ns())["memory_bytes"].null_count > 0


def test_a_watching_process_that_died_is_an_error() -> None:
    watcher = watch.Watcher(os.getpid())
    (sampling,) = below(holding="servebench.machine.sampler")
    sampling.kill()
    until(lambda: sampling.status() == psutil.STATUS_ZOMBIE, 60, "the end of the watching process")
    with pytest.raises(InfrastructureError, match="the watching process ended with status -9"):
        watcher.table(0, 1)
    watcher.close()


def test_the_last_sample_is_read_without_disturbing_the_sampler() -> None:
    with watch.Watcher(os.getpid(), interval_s=0.02) as watcher:
        until(watcher.latest, 60, "the first sample")
        times = []
        while len(set(times)) < 15:
            latest = watcher.latest()
            assert latest is not None
            times.append(latest["time_ns"])
        rows = watcher.table(0, 2**62)["time_ns"].to_pylist()
        assert times == sorted(times)
        assert set(times) <= set(rows)
        assert rows == sorted(set(rows))
