"""Raise the number of sockets that a process may open."""

from __future__ import annotations

import resource


def raise_nofile() -> int:
    """Raise this process's limit of open files to the highest allowed, and return that."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    # macOS reports "unlimited" but refuses more than 10,240.
    wanted = 10_240 if hard == resource.RLIM_INFINITY else hard
    if soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
        soft = wanted
    return soft
