"""Find processes in tests. One that has ended, a zombie of another test among them, is never found."""

import os

import psutil


def argv(process: psutil.Process) -> list[str]:
    """Return a process's command line, nothing of one that has ended."""
    try:
        return list(process.cmdline())
    except psutil.Error:
        return []


def below(pid: int | None = None, holding: str = "") -> list[psutil.Process]:
    """List the living descendants of a process (None: this one) whose command line holds `holding`."""
    found = psutil.Process(os.getpid() if pid is None else pid).children(recursive=True)
    return [process for process in found if argv(process) and holding in " ".join(argv(process))]


def alive(processes: list[psutil.Process]) -> list[psutil.Process]:
    """Return the processes that still run; a zombie does not."""
    return [p for p in processes if p.is_running() and p.status() != psutil.STATUS_ZOMBIE]
