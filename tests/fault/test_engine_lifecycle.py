"""However a session ends, its engine ends too, and the next session starts clean."""

import errno
import json
import os
import signal
import subprocess
import sys
import tempfile
import textwrap
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from processes import argv, below
from servebench import engines, plan
from servebench.engines import devices, launch, leftovers
from servebench.engines.base import Command
from servebench.engines.simulator import Simulator
from servebench.machine.infrastructure import ROOM
from waiting import until

GUARD = Path(launch.__file__).with_name("guard.py")
# An engine that will not hear SIGTERM, with one child in a session of its own and one whose parent has gone.
STUBBORN = """
    import signal, subprocess, time
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    subprocess.Popen(["setsid", "sleep", "300"])
    subprocess.run(["sh", "-c", "setsid sleep 300 & exit"])
    print("up", flush=True)
    time.sleep(300)
"""
SESSION = """
    import signal, sys, time
    from pathlib import Path
    from servebench import engines, plan
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    engine = plan.Engine(key="simulated", kind="simulator", options={})
    model = plan.Model(key="m", name="M")
    setting = plan.Setting(
        name="test", run="main", engine=engine, model=model, slots=2, context=512, users=(1,), workload={},
        prompts_sha256="",
    )
    with engines.launched(
        plan.Session(experiment="test", round=1, rank=0, setting=setting),
        model_path=None, environment=None, runtime=plan.Runtime(stop_timeout_s=3), log_path=Path(sys.argv[1]),
    ) as server:
        print(server.pid, flush=True)
        time.sleep(300)
"""


def gone(pid: int) -> bool:
    """Return whether the process has ended; a zombie that nobody reaps counts as ended."""
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


@pytest.fixture
def guarded(tmp_path: Path) -> Iterator[Callable[[str, float], tuple[subprocess.Popen[bytes], int]]]:
    """Start Python code under a guard; return (the guard, the pid of the engine)."""
    guards: list[Any] = []

    def start(code: str, stop_timeout_s: float) -> tuple[subprocess.Popen[bytes], int]:
        options = json.dumps(
            {"stop_timeout_s": stop_timeout_s, "cleanup": ["touch", str(tmp_path / "cleaned")], "cpus": []}
        )
        command = [sys.executable, "-I", str(GUARD), options, sys.executable, "-c", textwrap.dedent(code)]
        with (tmp_path / "log").open("wb") as log:
            guard = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log)
        guards.append(guard)
        assert guard.stdout
        pid = int(guard.stdout.readline())
        until(lambda: b"up" in (tmp_path / "log").read_bytes(), 60, "the engine's start")
        return guard, pid

    yield start
    for guard in guards:
        guard.kill()
        guard.wait()
        guard.stdin.close()
        guard.stdout.close()


def test_a_stubborn_engine_and_its_strayed_children_are_killed(guarded: Any, tmp_path: Path) -> None:
    guard, pid = guarded(STUBBORN, 0.5)
    tree = [process.pid for process in psutil.Process(guard.pid).children(recursive=True)]
    assert len(tree) == 3 and pid in tree
    began = time.monotonic()
    guard.stdin.close()
    assert guard.wait(60) == 0
    assert time.monotonic() - began >= 0.5
    assert all(gone(process) for process in tree)
    assert (tmp_path / "cleaned").exists()


def test_an_engine_that_ends_politely_is_not_killed(guarded: Any) -> None:
    guard, pid = guarded('import time\nprint("up", flush=True)\ntime.sleep(300)', 60)
    began = time.monotonic()
    guard.stdin.close()
    assert guard.wait(60) == 0
    assert time.monotonic() - began < 50  # of 60
    assert gone(pid)


def test_the_death_of_an_engine_is_told_by_its_status_and_its_children_end(guarded: Any) -> None:
    guard, pid = guarded(STUBBORN, 60)
    tree = [process.pid for process in psutil.Process(guard.pid).children(recursive=True)]
    os.kill(pid, signal.SIGKILL)
    assert guard.wait(60) == 128 + signal.SIGKILL
    assert all(gone(process) for process in tree)


@pytest.mark.skipif(sys.platform != "linux", reason="needs Linux: elsewhere a killed guard leaves its engine")
def test_a_killed_guard_takes_its_engine_with_it(guarded: Any) -> None:
    guard, pid = guarded('import time\nprint("up", flush=True)\ntime.sleep(300)', 60)
    guard.kill()
    until(lambda: gone(pid), 60, "the end of the engine")


@pytest.mark.outcome(
    "SIGKILL of the session",
    "SIGTERM of the session",
    "SIGINT of the session",
    at="the engine is up",
    into="simulator",
    kept="all before it",
    again="what is missing",
    reads="ended by SIG…; what was measured is kept",
    code="not 0",
)
@pytest.mark.parametrize("signum", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_no_engine_outlives_its_session(signum: int, tmp_path: Path) -> None:
    command = [sys.executable, "-c", textwrap.dedent(SESSION), str(tmp_path / "engine.log")]
    env = {**os.environ, "SERVEBENCH_LOCKS": str(tmp_path / "locks")}
    session = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=env)
    assert session.stdout
    pid = int(session.stdout.readline())
    children = [process.pid for process in psutil.Process(session.pid).children(recursive=True)]
    assert pid in children and len(children) == 2
    session.send_signal(signum)
    session.communicate(timeout=60)
    until(lambda: all(gone(child) for child in children), 60, "the end of guard and engine")


def simulated(**entry: Any) -> plan.Session:
    """A session on the simulator."""
    options = entry.pop("options", {})
    setting = plan.Setting(
        name="test",
        run="main",
        engine=plan.Engine(key="simulated", kind="simulator", options=options),
        model=plan.Model(key="m", name="M"),
        users=(1,),
        workload={},
        prompts_sha256="",
        **{"slots": 2, "context": 512, **entry},
    )
    return plan.Session(experiment="test", round=1, rank=0, setting=setting)


def start(session: plan.Session, tmp_path: Path, **runtime: Any) -> Any:
    """`engines.launched` with little patience."""
    return engines.launched(
        session,
        model_path=None,
        environment=None,
        runtime=plan.Runtime(**{"ready_timeout_s": 60, "stop_timeout_s": 3, **runtime}),
        log_path=tmp_path / "engine.log",
    )


@pytest.fixture(autouse=True)
def locks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Locks of this test's own."""
    monkeypatch.setenv("SERVEBENCH_LOCKS", str(tmp_path / "locks"))


def marked(tmp_path: Path) -> dict[str, str]:
    """What an engine's processes have in their environment in a session on this test's device."""
    with devices.held("cpu", count=1, uses_gpu=False) as held:
        return {**os.environ, **leftovers.mark(held.paths)}


@pytest.mark.outcome(
    "a forged note in a lock",
    at="start",
    into="files",
    kept="all; no process is ended",
    again="nothing",
    reads="nothing",
    code="0",
)
def test_what_a_killed_session_left_running_is_ended_by_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leftovers, "PATIENCE_S", 0.2)
    left = subprocess.Popen(["setsid", "sleep", "300"], env=marked(tmp_path))
    other = subprocess.Popen(["sleep", "300"])
    lock = next((tmp_path / "locks").iterdir())
    # Neither the note of an older servebench nor one that somebody forged ends a process.
    created = psutil.Process(other.pid).create_time()
    lock.write_text(json.dumps({"processes": [[other.pid, created]], "container": None}))
    with start(simulated(), tmp_path) as server:
        assert gone(left.pid)
        assert server.alive() and not gone(other.pid)
    assert lock.read_text() == ""
    other.kill()
    other.wait()
    left.wait()


@pytest.mark.outcome(
    "an engine's process that does not end",
    at="the next session",
    into="simulator",
    kept="all before it",
    again="once it is gone",
    reads="processes of an earlier session do not end: …",
    code="1",
)
def test_what_an_earlier_session_left_and_does_not_end_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stuck = subprocess.Popen(["sleep", "300"], env=marked(tmp_path))
    monkeypatch.setattr(leftovers, "PATIENCE_S", 0.2)
    monkeypatch.setattr(leftovers, "ENDING_S", 0.2)
    with monkeypatch.context() as patch:
        patch.setattr(psutil.Process, "kill", lambda _: None)  # as in a call of the kernel that does not return
        with pytest.raises(engines.InfrastructureError, match=f"earlier session do not end: {stuck.pid}; restart"):
            failing(simulated(), tmp_path)
    assert stuck.poll() is None
    failing(simulated(), tmp_path)
    assert gone(stuck.pid)
    stuck.wait()


# A simulator with a child in a session of its own, one whose parent has gone, and, if asked, one without environment.
FAMILY = """
    import os, runpy, subprocess, sys
    subprocess.Popen(["setsid", "sleep", "300"])
    subprocess.run(["sh", "-c", "setsid sleep 300 & exit"])
    if "bare" in sys.argv:
        subprocess.Popen(["setsid", "env", "-i", "sleep", "300"])
    sys.argv = sys.argv[1:3]
    runpy.run_path(sys.argv[0], run_name="__main__")
"""


class WithChildren(Simulator):
    """A simulator that has grandchildren of its session, as Ollama and vLLM have."""

    bare = False

    def command(self, port: int) -> Command:
        made = super().command(port)
        argv = [sys.executable, "-c", textwrap.dedent(FAMILY), *made.argv[1:3], *(["bare"] if self.bare else [])]
        return Command(argv=argv, env=made.env)


def sleeping(session: int) -> list[int]:
    """The pids of the `sleep 300` below a process."""
    return [process.pid for process in below(session) if argv(process)[:1] == ["sleep"]]


@pytest.mark.outcome(
    "SIGKILL of the guard",
    at="the engine is up, with children of its own",
    into="simulator",
    kept="all before it",
    again="what is missing",
    reads="the guard of the engine was killed by signal 9; run the same again",
    code="1",
)
@pytest.mark.skipif(sys.platform != "linux", reason="needs Linux: elsewhere nobody adopts what a guard leaves")
def test_when_the_guard_is_killed_the_session_ends_what_is_left_and_says_nothing_of_the_engine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(WithChildren, "bare", True)
    monkeypatch.setitem(engines.ADAPTERS, "simulator", WithChildren)  # type: ignore[misc]
    with start(simulated(), tmp_path) as server:
        until(lambda: len(sleeping(os.getpid())) == 3, 60, "the engine's children")
        left = sleeping(os.getpid())
        assert server.pid
        guard = psutil.Process(server.pid).parent()
        assert guard
        guard.kill()
        until(lambda: gone(server.pid), 60, "the end of the engine")

        def alive() -> bool:
            try:
                return server.alive()
            except engines.InfrastructureError as error:
                assert "guard of the engine was killed by signal 9" in str(error)
                return False

        until(lambda: not alive(), 60, "the session to notice")
        with pytest.raises(engines.InfrastructureError, match="guard"):
            server.check()
    assert all(map(gone, left))
    assert not set(left) & {child.pid for child in psutil.Process().children()}, "nor is a zombie of them left"
    # What ends after the engine is not this process's to wait for.
    orphan = int(subprocess.check_output(["sh", "-c", "setsid sleep 300 > /dev/null 2>&1 & echo $!"]))
    assert psutil.Process(orphan).ppid() != os.getpid()
    os.kill(orphan, signal.SIGKILL)


@pytest.mark.outcome(
    "SIGKILL of session and guard at once",
    at="the engine is up, with children of its own",
    into="simulator",
    kept="all before it",
    again="what is missing",
    reads="ending what an earlier session left running: …",
    code="0",
)
@pytest.mark.skipif(sys.platform != "linux", reason="needs Linux: elsewhere a killed guard leaves its engine")
def test_when_session_and_guard_are_killed_at_once_the_next_session_ends_what_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leftovers, "PATIENCE_S", 0.2)
    code = f"{textwrap.dedent(FAMILY)!r}"
    script = f"""
    import sys
    from servebench import engines
    from servebench.engines.base import Command
    from servebench.engines.simulator import Simulator
    class WithChildren(Simulator):
        def command(self, port):
            made = super().command(port)
            return Command(argv=[sys.executable, "-c", {code}, *made.argv[1:3]], env=made.env)
    engines.ADAPTERS["simulator"] = WithChildren
    """
    command = [sys.executable, "-c", textwrap.dedent(script) + textwrap.dedent(SESSION), str(tmp_path / "engine.log")]
    session = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    assert session.stdout
    engine = int(session.stdout.readline())
    until(lambda: len(sleeping(session.pid)) == 2, 60, "the engine's children")
    left = sleeping(session.pid)
    guard = psutil.Process(engine).parent()
    assert guard
    for victim in (guard, psutil.Process(session.pid)):
        victim.suspend()
    for victim in (guard, psutil.Process(session.pid)):
        victim.kill()
    session.communicate(timeout=60)
    until(lambda: gone(engine), 60, "the end of the engine")
    assert not any(map(gone, left))  # they have left their group, their session and their parent
    with start(simulated(), tmp_path) as server:
        assert server.alive()
        assert all(map(gone, left))


@pytest.mark.outcome(
    "an engine out of memory",
    at="start",
    into="simulator",
    kept="all before it",
    again="by retry",
    reads="a failed row with the reason",
    code="0",
)
def test_an_engine_that_dies_at_its_start_gives_its_last_words(tmp_path: Path) -> None:
    options = {"weights_gib": 20, "kv_bytes_per_token": 163_840, "device_gib": 24}
    with pytest.raises(engines.LaunchFailed, match=r"ended with status 1 before it was ready.*out of memory") as failed:
        with start(simulated(slots=64, context=4096, options=options), tmp_path):
            pass
    assert "needs 60.0 GiB of 24.0 GiB" in failed.value.log_tail


def failing(session: plan.Session, tmp_path: Path) -> None:
    with start(session, tmp_path):
        pass


@pytest.mark.outcome(
    "a full disk",
    at="start",
    into="simulator",
    kept="all before it",
    again="what is missing",
    reads="No space left on device; make room",
    code="1",
)
def test_a_full_disk_under_an_engine_that_dies_is_no_result_of_its_setting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out_of_memory = simulated(slots=64, options={"weights_gib": 30, "device_gib": 24})
    code = "import sys; sys.exit('OSError: [Errno 28] No space left on device: /cache/kernels')"
    with monkeypatch.context() as patch, pytest.raises(engines.InfrastructureError) as said:
        patch.setattr(Simulator, "command", lambda *_: Command(argv=[sys.executable, "-c", code]))
        failing(out_of_memory, tmp_path)
    assert "ended with status 1 before it was ready" in str(said.value)
    assert str(said.value).endswith(f"OSError: [Errno 28] No space left on device: /cache/kernels; {ROOM}")
    with pytest.raises(engines.LaunchFailed, match="out of memory"):  # there is room again, in the same log
        failing(out_of_memory, tmp_path)
    for number in (errno.ENOSPC, errno.EDQUOT, errno.EROFS):  # a log that takes nothing more cannot tell

        def full(number: int = number, **_: Any) -> None:
            raise OSError(number, os.strerror(number))

        with monkeypatch.context() as patch, pytest.raises(engines.InfrastructureError) as said:
            patch.setattr(tempfile, "TemporaryFile", full)
            failing(out_of_memory, tmp_path)
        assert str(said.value) == f"{tmp_path}: {os.strerror(number)}; {ROOM}"


@pytest.mark.outcome(
    "an engine that is never ready",
    at="start",
    into="simulator",
    kept="all before it",
    again="by retry",
    reads="a failed row with the reason",
    code="0",
)
def test_an_engine_that_is_never_ready_is_given_up(tmp_path: Path) -> None:
    with pytest.raises(engines.LaunchFailed, match=r"was not ready after 1 s \(healthy"):
        with start(simulated(options={"load_s": 60}), tmp_path, ready_timeout_s=1):
            pass


def test_fewer_slots_than_asked_stop_the_setting_with_both_values(tmp_path: Path) -> None:
    with pytest.raises(engines.AskedNotGot, match="slots: asked 8, got 1") as failed:
        with start(simulated(slots=8, options={"slots_served": 1}), tmp_path):
            pass
    assert failed.value.differences == [{"what": "slots", "asked": 8, "got": 1}]


def test_a_dead_server_is_noticed(tmp_path: Path) -> None:
    with start(simulated(), tmp_path) as server:
        os.kill(server.pid, signal.SIGKILL)
        until(lambda: not server.alive(), 60, "the end of the server")
        assert server.check() == [{"what": "server", "asked": "alive", "got": "dead"}]


def test_a_missing_program_is_said(tmp_path: Path) -> None:
    engine = plan.Engine(key="llama", kind="llama-server", runtime="binary", binary="no-such-llama-server")
    setting = plan.Setting(
        name="test",
        run="main",
        engine=engine,
        model=plan.Model(key="m", name="M"),
        slots=1,
        users=(1,),
        workload={},
        prompts_sha256="",
    )
    with (
        pytest.raises(
            engines.InfrastructureError, match=r"engines\.llama\.binary: no-such-llama-server is not a program"
        ),
        engines.launched(
            plan.Session(experiment="test", round=1, rank=0, setting=setting),
            model_path=tmp_path / "m.gguf",
            environment=None,
            runtime=plan.Runtime(device="cpu"),
            log_path=tmp_path / "engine.log",
        ),
    ):
        pass
