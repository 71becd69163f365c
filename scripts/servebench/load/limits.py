"""Compare the limit of open files with the connections that a process needs, and raise it as far as allowed."""

from __future__ import annotations

import resource

from servebench.machine.infrastructure import InfrastructureError

# Of a worker besides its connections: pipes, the event loop, libraries; and old connections not yet closed.
OTHER_FILES = 64


def allowed_files() -> int:
    """Return how many files a process may open once `raise_nofile` was called."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    # macOS reports "unlimited" but refuses more than 10,240.
    return max(soft, 10_240 if hard == resource.RLIM_INFINITY else hard)


def raise_nofile() -> None:
    """Raise this process's limit of open files to the highest allowed."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < (wanted := allowed_files()):
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def check_open_files(users: int, processes: int) -> None:
    """Raise InfrastructureError when `users`, divided among `processes`, are more than each may open connections."""
    share = -(-users // processes)
    needed, allowed = share + OTHER_FILES, allowed_files()
    if needed > allowed:
        raise InfrastructureError(
            f"users: {users}: {share} connections in each load process need {needed} open files, and the limit is"
            f" {allowed}; {_remedy(needed)}, or divide the users among more processes"
        )


def too_many_open(error: OSError) -> InfrastructureError:
    """Return the error for a connection that this machine, not the server, refused."""
    allowed = allowed_files()
    return InfrastructureError(
        f"no connection could be opened ({error.strerror}): the limit is {allowed} open files; {_remedy(2 * allowed)}"
    )


def _remedy(files: int) -> str:
    return f"raise it (ulimit -n) in this shell with: sudo prlimit --pid $$ --nofile={files}:{files}"
