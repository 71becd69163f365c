"""Read llama-server's log: its start, and each request.

The lines are those of builds b10434 to b11549; older builds word them differently. A line that a build does not write
gives None. With `--log-prefix` off (as Ollama starts it) the time stamps are missing and `started_s` is None.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, fields
from typing import Any

N_SLOTS = re.compile(r"n_slots = (\d+)")
N_CTX_SLOT = re.compile(r"n_ctx_slot = (\d+)")
KV_UNIFIED = re.compile(r"kv_unified = '?(true|false)'?")
THREADS = re.compile(r"(?:system_info: |threadpool init, )n_threads = (\d+)")
OFFLOADED = re.compile(r"offloaded (\d+)/(\d+) layers to GPU")
# Logged from verbosity 4 on; only a prompt cache of 0 is a warning at any verbosity.
N_CTX = re.compile(r"llama_context: n_ctx\s+= (\d+)")
N_BATCH = re.compile(r"llama_context: n_batch\s+= (\d+)")
N_UBATCH = re.compile(r"llama_context: n_ubatch\s+= (\d+)")
CACHE_RAM = re.compile(r"prompt cache is enabled, size limit: (?:(\d+) MiB|no limit)")
NO_CACHE_RAM = re.compile(r"prompt cache is disabled|--cache-idle-slots requires --cache-ram")
BUILD = re.compile(r"build_info: (\S+)")
PRINTED_BUILD = re.compile(r"common_params_print_info: build (\d+) \((\w+)\)")

# llama.cpp rounds a context up to a multiple of it.
CONTEXT_PADDING = 256

STAMP = r"(?:(?P<m>\d+)\.(?P<s>\d+)\.(?P<ms>\d+)\.(?P<us>\d+) )?"
TASK = r".*?id\s+(?P<slot>\d+) \| task (?P<task>-?\d+) \| "
LAUNCH = re.compile(STAMP + r".*launch_slot_: " + TASK + "processing task")
# Logged from verbosity 4 on.
NEW_PROMPT = re.compile(TASK + r"new prompt, .*task\.n_tokens = (?P<tokens>\d+)")
CACHED = re.compile(TASK + r"cached n_tokens = (?P<tokens>\d+)")
SHIFT = re.compile(TASK + r"slot context shift")
PROMPT = re.compile(r"print_timing: " + TASK + r"prompt eval time =\s*(?P<took>[\d.]+) ms /\s*(?P<tokens>\d+) tokens")
EVAL = re.compile(r"print_timing: " + TASK + r"\s*eval time =\s*(?P<took>[\d.]+) ms /\s*(?P<tokens>\d+) tokens")
DRAFT = re.compile(r"print_timing: " + TASK + r"draft acceptance = (?P<rate>[\d.]+)")
RELEASE = re.compile(r"release: " + TASK + r"stop processing: n_tokens = (?P<tokens>\d+), truncated = (?P<cut>\d)")
CANCEL = re.compile(r"cancel task, id_task = (?P<task>\d+)")


def padded(context: int) -> int | None:
    """Return the context that llama.cpp uses instead of this one; None where it uses this one."""
    whole = -(-context // CONTEXT_PADDING) * CONTEXT_PADDING
    return None if whole == context else whole


@dataclass(slots=True)
class Request:
    """Hold one request, as logged. Times in seconds since the server's start, durations in ms; None: not logged."""

    task: int
    slot: int
    started_s: float | None
    busy_slots: int  # at its start, its own included
    prompt_ms: float | None = None
    prompt_tokens: int | None = None  # newly computed ones
    all_prompt_tokens: int | None = None
    cached_tokens: int | None = None  # of all prompt tokens
    eval_ms: float | None = None
    eval_tokens: int | None = None
    draft_acceptance: float | None = None
    total_tokens: int | None = None
    truncated: bool | None = None
    cancelled: bool = False
    context_shifts: int = 0


def start(log: str) -> dict[str, Any]:
    """Return the facts of the start.

    They are slots, n_ctx_slot, n_ctx (of all slots), kv_unified, n_batch, n_ubatch, cache_ram_mib (-1: no limit),
    threads, offloaded_layers, all_layers and build.
    """
    offloaded = OFFLOADED.search(log)
    unified = KV_UNIFIED.search(log)
    return {
        "slots": _int(N_SLOTS.search(log)),
        "n_ctx_slot": _int(N_CTX_SLOT.search(log)),
        "n_ctx": _int(N_CTX.search(log)),
        "n_batch": _int(N_BATCH.search(log)),
        "n_ubatch": _int(N_UBATCH.search(log)),
        "cache_ram_mib": _cache_ram(log),
        "kv_unified": unified[1] == "true" if unified else None,
        "threads": _int(THREADS.search(log)),
        "offloaded_layers": int(offloaded[1]) if offloaded else None,
        "all_layers": int(offloaded[2]) if offloaded else None,
        "build": _build(log),
    }


def _build(log: str) -> str | None:
    if found := BUILD.search(log):
        return found[1]
    found = PRINTED_BUILD.search(log)
    return f"b{found[1]}-{found[2]}" if found else None


def _cache_ram(log: str) -> int | None:
    if NO_CACHE_RAM.search(log):
        return 0
    found = CACHE_RAM.search(log)
    return int(found[1] or -1) if found else None


def requests(log: str) -> list[Request]:
    """Return all requests that got a slot, in order."""
    known: dict[int, Request] = {}
    busy: set[int] = set()
    for line in log.splitlines():
        if found := LAUNCH.search(line):
            busy.add(int(found["slot"]))
            known[int(found["task"])] = Request(int(found["task"]), int(found["slot"]), _seconds(found), len(busy))
        elif "print_timing" in line or "release:" in line:
            for pattern in (PROMPT, EVAL, DRAFT, RELEASE):
                if (found := pattern.search(line)) and (request := known.get(int(found["task"]))):
                    _note(request, pattern, found)
                    if pattern is RELEASE:
                        busy.discard(request.slot)
                    break
        elif " | task " in line:
            for pattern in (NEW_PROMPT, CACHED, SHIFT):
                if (found := pattern.search(line)) and (request := known.get(int(found["task"]))):
                    _note(request, pattern, found)
                    break
        elif (found := CANCEL.search(line)) and (request := known.get(int(found["task"]))):
            request.cancelled = True
    return list(known.values())


def ended(log: str) -> bool:
    """Return whether the log tells the end of every request in it: a server writes it after the reply."""
    return all(request.total_tokens is not None for request in requests(log))


def served(log: str, before: str) -> dict[str, list[Any]]:
    """Return the requests of a load as columns; {} for a server that does not log requests as llama-server does.

    `before` is the beginning of `log` until the load began; its requests are left out, however they ended.
    """
    of_the_load = requests(log)[len(requests(before)) :]
    names = [field.name for field in fields(Request)] if of_the_load else []
    return {name: [getattr(request, name) for request in of_the_load] for name in names}


def _note(request: Request, pattern: re.Pattern[str], found: re.Match[str]) -> None:
    if pattern is PROMPT:
        request.prompt_ms, request.prompt_tokens = float(found["took"]), int(found["tokens"])
    elif pattern is NEW_PROMPT:
        request.all_prompt_tokens = int(found["tokens"])
    elif pattern is CACHED:
        # Logged again after a context shift's re-evaluation; the first one is the request's.
        if request.cached_tokens is None:
            request.cached_tokens = int(found["tokens"])
    elif pattern is SHIFT:
        request.context_shifts += 1
    elif pattern is EVAL:
        request.eval_ms, request.eval_tokens = float(found["took"]), int(found["tokens"])
    elif pattern is DRAFT:
        request.draft_acceptance = float(found["rate"])
    else:
        request.total_tokens, request.truncated = int(found["tokens"]), found["cut"] == "1"


def _seconds(found: re.Match[str]) -> float | None:
    if found["s"] is None:
        return None
    return 60 * int(found["m"]) + int(found["s"]) + int(found["ms"]) / 1e3 + int(found["us"]) / 1e6


def _int(found: re.Match[str] | None) -> int | None:
    return int(found[1]) if found else None
