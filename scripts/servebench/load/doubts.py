"""Name the reasons why a measurement is invalid. Pure."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from math import sqrt
from typing import Any

import numpy as np

from servebench.load.line import Line
from servebench.load.modes import MODES
from servebench.load.rows import Rows
from servebench.marks import Mark, mark

# A client busier than CLIENT_CPU_LIMIT cannot be punctual; a window whose halves differ by STEADY_LIMIT has no rate.
CLIENT_CPU_LIMIT = 0.7
STEADY_LIMIT = 1.25
# A prompt of a given length may miss it by PROMPT_LIMIT, or by one token; and so many prompts or replies may miss it.
PROMPT_LIMIT, OFF_LIMIT = 0.01, 0.05
# Engines send one token a chunk, speculative decoding a few. Beyond this limit a chunk's arrival says little about when
# its tokens were made.
TOKENS_PER_CHUNK_LIMIT = 8


def _lengths(rows: Rows) -> Iterator[Mark]:
    """Yield a mark where more than `OFF_LIMIT` of prompts or replies have not the lengths that were asked for."""
    prompts = rows.known("prompt_tokens")
    if isinstance(rows.prompt_tokens, int) and len(prompts):
        off = int((np.abs(prompts - rows.prompt_tokens) > max(1, PROMPT_LIMIT * rows.prompt_tokens)).sum())
        if off > OFF_LIMIT * len(prompts):
            yield mark("prompts_of_other_length", prompts=off, requests=len(prompts), tokens=rows.prompt_tokens)
    if rows.reply_tokens is not None and rows.ok.any():
        early = int((rows.ok & (rows.table["finish_reason"].to_numpy() != "length")).sum())
        if early > OFF_LIMIT * int(rows.ok.sum()):
            yield mark("replies_ended_early", replies=early, requests=int(rows.ok.sum()))


def doubts(rows: Rows, figures: Mapping[str, Any], line: Line, calibrated_users: int | None) -> Iterator[Mark]:
    """Yield a mark for each reason why the measurement is invalid; too few targets make it only `reference_only`."""
    users, cpu, steadiness = figures["users"], figures["client_cpu_ratio"], figures["steadiness"]
    if calibrated_users is not None and users is not None and users > calibrated_users:
        yield mark("beyond_calibration", users=users, calibrated_users=calibrated_users)
    if cpu is not None and cpu > CLIENT_CPU_LIMIT:
        yield mark("client_busy", cpu_ratio=cpu, limit=CLIENT_CPU_LIMIT)
    enough = int(rows.target.sum()) >= line.min_targets
    if rows.no_reply:
        yield rows.no_reply
    elif figures["output_tok_s"] is None:
        yield mark("no_output")
    elif enough and not MODES[rows.mode].ends_itself and not _steady(rows):
        yield mark("silent_first_half") if steadiness is None else mark("unsteady_window", ratio=steadiness)
    if rows.backlog is not None and rows.falls_behind:
        yield mark("backlog_grows", start=rows.backlog[0], end=rows.backlog[1], due=int(rows.target.sum()))
    yield from _failures(rows, figures)
    if replies := figures["reasoning_replies"]:
        yield mark("reasoning_seen", replies=replies)
    several = rows.ok & (rows.chunks > 1)
    if several.any() and (each := rows.streamed[several].sum() / rows.chunks[several].sum()) > TOKENS_PER_CHUNK_LIMIT:
        yield mark("many_tokens_a_chunk", tokens=float(each))
    if rows.clumped:
        yield mark("clumped_stream", replies=rows.unseen, requests=int(rows.ok.sum()))
    if counted := int((rows.real & (rows.status == "ok") & (rows.table["tokens_from"].to_numpy() == "chunks")).sum()):
        yield mark("tokens_are_chunks", replies=counted)
    if beyond := int((rows.ok & (rows.stamps("cached_tokens") >= 0) & ~rows.told_cached).sum()):
        yield mark("cached_beyond_prompt", replies=beyond)
    if rows.max_tokens is not None and (longer := int((rows.real & (rows.tokens > rows.max_tokens)).sum())):
        yield mark("output_beyond_limit", replies=longer, max_tokens=rows.max_tokens)
    prompt_s, possible = rows.prompt_s
    if wrong := int((np.isfinite(prompt_s) & ~possible).sum()):
        yield mark("impossible_timings", replies=wrong)
    yield from _lengths(rows)
    if turns := _shrunk(rows):
        yield mark("prompts_shrank", turns=turns)
    if cancelled := int(((rows.table["phase"].to_numpy() == "window") & ~rows.real).sum()):
        yield mark("stopped_early", requests=cancelled)


def _failures(rows: Rows, figures: Mapping[str, Any]) -> Iterator[Mark]:
    """Yield what failed, and what was left open, beside good replies; where there are none, `no_reply` says it."""
    if rows.no_reply:
        return
    if failures := figures["failures"]:
        targets = figures["target_requests"]
        yield mark("requests_failed", failures=failures, requests=targets, statuses=rows.failed_statuses())
    if rows.warmup_failed:
        yield rows.warmup_failed
    if replies := figures["left_open"]:
        yield mark("left_open", replies=replies)


def _shrunk(rows: Rows) -> int:
    """Count the turns of conversations whose prompt has fewer tokens than the turn before: the server dropped messages.

    A turn's prompt holds all of the turn before.
    """
    if MODES[rows.mode].needs != "turns":
        return 0
    names = ("user", "prompt_id", "prompt_tokens")
    before: dict[int, tuple[str, int, int]] = {}
    count = 0
    for row in np.argsort(rows.sent_ns, kind="stable"):
        user, prompt_id, tokens = (rows.table[name][int(row)].as_py() for name in names)
        conversation, _, turn = prompt_id.rpartition(" turn ")
        if rows.status[row] != "ok" or tokens is None or not turn.isdigit():
            continue
        if user in before and before[user][:2] == (conversation, int(turn) - 1):
            count += tokens < before[user][2]
        before[user] = conversation, int(turn), tokens
    return count


def _steady(rows: Rows) -> bool:
    """Return whether the window's halves delivered about the same number of tokens.

    They did when neither has `STEADY_LIMIT` times the other's tokens, or when they differ by no more than three
    standard errors of the window's tenths: users who wait and stream together deliver tokens in waves, and one half may
    hold a wave more than the other though nothing has changed.
    """
    edges = np.linspace(*rows.window, 11)
    tenths = np.array([rows.tokens_between(*edge) for edge in itertools.pairwise(edges)])
    first, second = tenths[:5], tenths[5:]
    less, more = sorted((first.sum(), second.sum()))
    if less == 0 or more < STEADY_LIMIT * less:
        return bool(less)
    error = sqrt((first.var(ddof=1) + second.var(ddof=1)) / 5)
    return bool((more - less) / 5 <= 3 * error)
