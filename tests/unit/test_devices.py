"""A session has its devices for itself: the first free ones, of those it may use, until its process ends."""

import os
import subprocess
import sys
import textwrap

import pytest

from servebench import plan
from servebench.engines import ADAPTERS, devices
from servebench.machine import gpu
from servebench.machine.infrastructure import InfrastructureError

GPUS = [
    gpu.Gpu(uuid=f"GPU-{n}{n}{n}", name="NVIDIA H200", memory_gib=140.0, driver="580", cuda="13.0", mig=False)
    for n in range(3)
]


@pytest.fixture(autouse=True)
def machine(tmp_path, monkeypatch):
    """Pretend to be a node named n1 with three GPUs and no restriction on which to use."""
    monkeypatch.setenv("SERVEBENCH_LOCKS", str(tmp_path))
    monkeypatch.setenv("SLURMD_NODENAME", "n1")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setattr(gpu, "gpus", lambda: GPUS)


def held(wanted=None, count=1, uses_gpu=True):
    return devices.held(wanted, count=count, uses_gpu=uses_gpu)


def test_each_session_takes_the_first_device_that_is_free():
    with held() as first, held() as second, held() as third:
        assert [d.names for d in (first, second, third)] == [("GPU-000",), ("GPU-111",), ("GPU-222",)]
    with held() as again:
        assert again.gpus == (GPUS[0],)


def test_several_gpus_are_taken_together_or_not_at_all(monkeypatch):
    with held(count=2) as two:
        assert two.names == ("GPU-000", "GPU-111")

        def elapsed(_):
            raise TimeoutError

        monkeypatch.setattr(devices.time, "sleep", elapsed)
        with pytest.raises(TimeoutError), held(count=2):
            pass
        with held() as third:
            assert third.names == ("GPU-222",), "what was tried for two is free again"


def test_more_gpus_than_may_be_used_is_an_error_that_says_so(monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
    with (
        pytest.raises(InfrastructureError, match="2 GPUs on n1 are needed, but only 1 can be used: GPU-111"),
        held(count=2),
    ):
        pass


@pytest.mark.parametrize(
    ("wanted", "visible", "names"),
    [
        (None, "2,0", ["GPU-222", "GPU-000"]),  # what a batch system gave, in its order, by UUID
        (None, "GPU-111", ["GPU-111"]),
        ("1,2", "0", ["GPU-111", "GPU-222"]),  # runtime.device wins
        ("cpu", "0", ["cpu"]),
        (None, "", ["cpu"]),  # all hidden
        (None, "NoDevFiles", ["cpu"]),
        (None, None, ["GPU-000", "GPU-111", "GPU-222"]),
    ],
)
def test_which_devices_may_be_used(wanted, visible, names):
    environ = {} if visible is None else {"CUDA_VISIBLE_DEVICES": visible}
    assert [name for name, _ in devices.candidates(wanted, uses_gpu=True, environ=environ)] == names


@pytest.mark.parametrize(
    ("wanted", "visible", "where"), [("7", None, "runtime.device"), (None, "7", "CUDA_VISIBLE_DEVICES")]
)
def test_a_gpu_that_is_not_there_is_an_error(wanted, visible, where):
    environ = {} if visible is None else {"CUDA_VISIBLE_DEVICES": visible}
    with pytest.raises(InfrastructureError, match=f"{where}: '7' is not a GPU of this machine"):
        devices.candidates(wanted, uses_gpu=True, environ=environ)


@pytest.mark.parametrize("uses_gpu", [True, False])
def test_without_a_driver_the_names_a_batch_system_gives_are_devices(uses_gpu, monkeypatch):
    monkeypatch.setattr(gpu, "gpus", list)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1")
    with held(uses_gpu=uses_gpu) as first, held(uses_gpu=uses_gpu) as second:
        assert (first.names, second.names) == (("0",), ("1",))
        assert not first.gpus


def test_the_same_device_number_on_another_node_is_another_device(monkeypatch):
    with held("0"):
        monkeypatch.setenv("SLURMD_NODENAME", "n2")
        with held("0") as other:
            assert other.names == ("GPU-000",)


def test_a_killed_holder_holds_nothing_and_leaves_word_of_its_container():
    code = """
        import os, signal
        from servebench.engines import devices
        with devices.held("cpu", count=1, uses_gpu=False) as held:
            held.remember(devices.Container("podman", "servebench-0123456789ab"))
            os.kill(os.getpid(), signal.SIGKILL)
    """
    assert subprocess.run([sys.executable, "-c", textwrap.dedent(code)]).returncode == -9
    with held("cpu", uses_gpu=False) as now:
        assert now.left() == [devices.Container("podman", "servebench-0123456789ab")]
        now.forget()
        assert now.left() == []


@pytest.mark.parametrize(
    "note",
    [b"", b"{}", b"5", b"null", b"[]", b"{", b"\xff", b'{"container": 5}', b'{"container": "-f"}'],
)
def test_a_note_that_names_no_container_of_ours_is_no_note(note, tmp_path):
    (tmp_path / "n1-cpu.lock").write_bytes(note)
    (tmp_path / "n1-cpu.lock").chmod(0o600)
    with held("cpu", uses_gpu=False) as now:
        assert now.left() == []


def another_users(path):
    os.chown(path, 12345, 12345)


SQUATTED = {
    "the folder is another user's": lambda folder, lock: another_users(folder),
    "others may write to the folder": lambda folder, lock: folder.chmod(0o777),
    "others may read the folder": lambda folder, lock: folder.chmod(0o755),
    "the folder is a link": lambda folder, lock: (folder.rename(folder.with_name("real")), folder.symlink_to("real")),
    "the folder is a file": lambda folder, lock: (folder.rmdir(), folder.touch()),
    "the lock is a link": lambda folder, lock: lock.symlink_to(folder.with_name("precious")),
    "the lock is another name of a file": lambda folder, lock: lock.hardlink_to(folder.with_name("precious")),
    "the lock is another user's": lambda folder, lock: (lock.touch(0o600), another_users(lock)),
    "others may lock it": lambda folder, lock: (lock.touch(0o600), lock.chmod(0o644)),
    "the lock is a folder": lambda folder, lock: lock.mkdir(),
    "the lock is a pipe": lambda folder, lock: os.mkfifo(lock, 0o600),
}


@pytest.mark.outcome(
    "locks: another user's folder",
    "locks: a folder others may write to",
    "locks: a link in the folder's place",
    "locks: a link in a lock's place",
    "locks: another user's lock",
    at="start",
    into="files",
    kept="all; no file is touched",
    again="what is missing",
    reads="belongs to another user …",
    code="1",
)
@pytest.mark.parametrize("how", SQUATTED)
def test_locks_that_others_could_have_laid_are_refused_and_nothing_of_the_users_is_touched(how, tmp_path, monkeypatch):
    if "another user's" in how and os.getuid() != 0:
        pytest.skip("needs root, to give a file to another user")
    precious, folder = tmp_path / "precious", tmp_path / "locks"
    precious.write_text("kept")
    precious.chmod(0o600)
    folder.mkdir(0o700)
    monkeypatch.setenv("SERVEBENCH_LOCKS", str(folder))
    SQUATTED[how](folder, folder / "n1-cpu.lock")
    with pytest.raises(InfrastructureError, match=r"locks.*; (remove it|chmod [67]00)"), held("cpu", uses_gpu=False):
        pass
    assert precious.read_text() == "kept"


def test_locks_lie_with_the_user_and_nowhere_else(tmp_path, monkeypatch):
    monkeypatch.delenv("SERVEBENCH_LOCKS")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    with held("cpu", uses_gpu=False) as now:
        assert now.paths == (str(tmp_path / "state/servebench/locks/n1-cpu.lock"),)
    assert (tmp_path / "state/servebench/locks").stat().st_mode & 0o777 == 0o700


def test_a_devices_name_is_no_path(tmp_path, monkeypatch):
    monkeypatch.setattr(gpu, "gpus", list)
    with held("../../out", uses_gpu=False):
        assert [path.name for path in tmp_path.iterdir()] == ["n1-..%2F..%2Fout.lock"]


@pytest.mark.parametrize(
    ("args", "count"),
    [
        ((), 1),
        (("--tensor-parallel-size", "4"), 4),
        (("--tensor-parallel-size=2", "--pipeline-parallel-size", "3"), 6),
        (("-tp", "2", "-tp", "8"), 8),  # the last one counts
        (("--tp-size", "2"), 2),
        (("--data-parallel-size", "2"), 2),
        (("-tp", "2", "-dp", "2"), 4),
        (("--tp", "2", "--pp-size", "3", "--dp-size=4"), 24),
        (("-tp", "2", "--prefill-context-parallel-size", "2"), 4),
        (("--data-parallel-size-local", "2"), 1),
        # The replicas share the tensor-parallel GPUs.
        (("--tp", "8", "--dp", "4", "--enable-dp-attention"), 8),
        (("--threads", "4", "-c", "2"), 1),
    ],
)
def test_a_setting_needs_the_gpus_its_arguments_name(args, count):
    model = plan.Model(key="m", name="M")
    engine = plan.Engine(key="e", kind="vllm")
    setting = plan.Setting(name="s", run="r", engine=engine, model=model, slots=1, users=(1,), args=args)
    assert ADAPTERS["vllm"].gpus(setting) == ADAPTERS["simulator"].gpus(setting) == count
    assert ADAPTERS["url"].gpus(setting) == 0
