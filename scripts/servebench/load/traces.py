"""Read recorded arrivals: our own JSON lines, Mooncake's, and the CSV files of Azure and BurstGPT.

The latter three hold no texts, only lengths: `Blocks` makes texts of these lengths.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np

from servebench.faults import Fault
from servebench.load import jsonl
from servebench.load.prompts import Message, chat, hashed, number
from servebench.load.workload import MOST

# Tokens of a prompt for which one of Mooncake's `hash_ids` stands.
BLOCK = 512
# Of one prompt or reply; more than any model's context, and few enough to be made.
MOST_TOKENS = 2**24


@dataclass(frozen=True, slots=True)
class Entry:
    """Hold one request of a trace; `line` is its line in the file, from 1.

    It has `messages`, or else `prompt_tokens` with the ids of the prompt's blocks: equal ids are equal texts.
    """

    line: int
    arrival_s: float
    messages: list[Message] | None
    max_tokens: int | None
    prompt_tokens: int | None = None
    blocks: tuple[str, ...] = ()


@dataclass(frozen=True)
class Trace:
    """Hold the requests of a trace by arrival, and how many lines hold a request that failed when it was recorded."""

    entries: list[Entry]
    skipped: int = 0

    @property
    def lengths_only(self) -> bool:
        """Return whether the trace has lengths instead of texts."""
        return any(entry.messages is None for entry in self.entries)


def read_trace(path: str, speed: float = 1.0, first_s: float | None = None) -> Trace:
    """Read a trace, cut it behind its first `first_s` seconds, and let it run `speed` times as fast.

    Forms: JSONL of `{"arrival_s": 0.25, "prompt": "…" | "messages": […], "max_tokens": 100}`, ordered by arrival (an
    entry without `max_tokens` takes the workload's; prompts get number lines); JSONL of Mooncake (`timestamp` in ms,
    `input_length`, `output_length`, `hash_ids`); CSV of Azure (`TIMESTAMP,ContextTokens,GeneratedTokens`) and BurstGPT
    (`Timestamp,…,Request tokens,Response tokens,…`; failed requests, with no response tokens, are skipped). A trace
    without texts begins with its first arrival. Raises Fault, which names the line.
    """
    found = _from_csv(Path(path)) if Path(path).suffix == ".csv" else _from_jsonl(Path(path))
    if not found.entries:
        raise Fault(f"{path}: holds no requests; give one a line")
    entries = found.entries
    if found.lengths_only:
        entries = sorted(entries, key=lambda entry: entry.arrival_s)
        begin_s = entries[0].arrival_s
        entries = [replace(entry, arrival_s=entry.arrival_s - begin_s) for entry in entries]
    if first_s is not None:
        entries = [entry for entry in entries if entry.arrival_s < first_s]
        if not entries:
            raise Fault(f"workload.trace_first_s: {first_s:g}: no request arrives so early in {path}; give more")
    return Trace([replace(entry, arrival_s=entry.arrival_s / speed) for entry in entries], found.skipped)


def _from_jsonl(path: Path) -> Trace:
    entries: list[Entry] = []
    for where, line, item in jsonl.lines(path):
        mooncake = "input_length" in item
        entry = _mooncake(where, line, item) if mooncake else _own(where, line, item)
        if not mooncake and entries and entry.arrival_s < entries[-1].arrival_s:
            before = f"{entries[-1].arrival_s} of line {entries[-1].line}"
            raise Fault(f"{where}: arrival_s: {entry.arrival_s} is before the {before}; sort the lines by arrival_s")
        entries.append(entry)
    return Trace(entries)


def _own(where: str, line: int, item: dict[str, Any]) -> Entry:
    arrival_s: Any = item.get("arrival_s")
    if type(arrival_s) not in (int, float) or not 0 <= arrival_s <= MOST:
        raise Fault(f"{where}: arrival_s: {arrival_s!r:.60} is not a number of seconds from 0 to {MOST:g}; give one")
    max_tokens = item.get("max_tokens")
    if max_tokens is not None and (type(max_tokens) is not int or not 1 <= max_tokens <= MOST):
        raise Fault(f"{where}: max_tokens: {max_tokens!r:.60} is not a positive integer; give one or leave it out")
    if "messages" in item:
        messages = chat(where, item)
    else:
        messages = [{"role": "user", "content": jsonl.text(where, item, "prompt")}]
    return Entry(line, float(arrival_s), messages, max_tokens)


def _mooncake(where: str, line: int, item: dict[str, Any]) -> Entry:
    at_ms = _count(where, item, "timestamp", least=0, most=MOST * 1000)
    tokens, reply = (_count(where, item, key) for key in ("input_length", "output_length"))
    ids = item.get("hash_ids", [])
    if not isinstance(ids, list) or (ids and len(ids) != -(-tokens // BLOCK)):
        raise Fault(
            f"{where}: hash_ids: {ids!r:.60} is not a list of {-(-tokens // BLOCK)} ids, one for {BLOCK} tokens each;"
            " correct it, or leave it out"
        )
    return Entry(line, at_ms / 1000, None, reply, tokens, _blocks(line, tokens, ids))


def _count(where: str, item: Mapping[str, Any], key: str, least: int = 1, most: float = MOST_TOKENS) -> int:
    """Return the whole number at `key`, which may be written as text (CSV). Raises Fault."""
    written = item.get(key)
    try:
        value = int(written) if isinstance(written, str) else written
    except ValueError:
        value = None
    if type(value) is not int or not least <= value <= most:
        told = f"{written!r:.60} is not an integer from {least} to {most:,.0f}"
        raise Fault(f"{where}: {key}: {told}; correct the line, or remove it")
    return value


def _blocks(line: int, tokens: int, ids: Sequence[Any] = ()) -> tuple[str, ...]:
    """Name the blocks of a prompt: by their ids, or else so that no other line has them."""
    return tuple(map(str, ids)) or tuple(f"line {line} block {i}" for i in range(-(-tokens // BLOCK)))


def _from_csv(path: Path) -> Trace:
    """Read Azure's or BurstGPT's rows; the header says whose they are."""
    text = jsonl.read(path).decode("utf-8-sig", errors="replace")
    rows = csv.reader(text.splitlines())
    header = [name.strip() for name in next(rows, [])]
    for columns, seconds in _FORMS:
        if set(columns) <= set(header):
            entries = list(_rows(path, header, rows, columns, seconds))
            kept = [entry for entry in entries if entry is not None]
            return Trace(kept, len(entries) - len(kept))
    known = " or ".join(",".join(columns) for columns, _ in _FORMS)
    raise Fault(f"{path}: {','.join(header)!r:.80} is not the header of a known trace; name a file with {known}")


def _rows(
    path: Path,
    header: list[str],
    rows: Iterator[list[str]],
    columns: tuple[str, str, str],
    seconds: Callable[[str], float],
) -> Iterator[Entry | None]:
    """Yield a trace's rows; None for a request without a reply, which failed when it was recorded."""
    when, prompt, reply = columns
    for line, row in enumerate(rows, 2):
        if not any(row):
            continue
        where, item = f"{path}:{line}", dict(zip(header, row, strict=False))
        try:
            arrival_s = seconds(item.get(when, ""))
            if not math.isfinite(arrival_s):
                raise ValueError
        except (ValueError, OverflowError):
            raise Fault(
                f"{where}: {when}: {item.get(when)!r:.60} is not a time; correct the line, or remove it"
            ) from None
        tokens, replied = _count(where, item, prompt, least=0), _count(where, item, reply, least=0)
        whole = tokens and replied
        yield Entry(line, arrival_s, None, replied, tokens, _blocks(line, tokens)) if whole else None


def _moment_s(text: str) -> float:
    """Return the seconds of "2023-11-16 18:17:03.9799600", whose digits may be more than microseconds."""
    whole, _, digits = text.strip().partition(".")
    fraction = "".join(digit for digit in digits.partition("+")[0] if digit.isdecimal())
    moment = datetime.fromisoformat(f"{whole.partition('+')[0]}+00:00")
    return moment.timestamp() + float(f"0.{fraction or 0}")


# The columns of arrival, prompt tokens and reply tokens, and how a time is read.
_FORMS: tuple[tuple[tuple[str, str, str], Callable[[str], float]], ...] = (
    (("TIMESTAMP", "ContextTokens", "GeneratedTokens"), _moment_s),
    (("Timestamp", "Request tokens", "Response tokens"), float),
)


@dataclass(frozen=True)
class Blocks:
    """Make prompts of a number of tokens from blocks of real text: equal names are equal texts.

    `places[i]` has (tokens, characters) of text i, ascending: behind so many of its characters it has that many tokens,
    number line included. `added`: tokens that the chat template adds. Each `seed` has number lines of its own.
    """

    texts: Sequence[str]
    places: Sequence[Sequence[tuple[int, int]]]
    added: int
    seed: int

    def message(self, entry: Entry) -> list[Message]:
        """Make the messages of a trace's request."""
        assert entry.prompt_tokens is not None
        left = entry.prompt_tokens - self.added
        parts = []
        for name in entry.blocks:
            if left > 0:
                parts.append(self._block(name, min(left, BLOCK)))
            left -= BLOCK
        return [{"role": "user", "content": "".join(parts) or "."}]

    def _block(self, name: str, tokens: int) -> str:
        """Return the first tokens of a block."""
        lot = hashed(f"{self.seed} block {name}")
        text, places = self.texts[lot % len(self.texts)], self.places[lot % len(self.texts)]
        counts, ends = zip(*places, strict=True)
        chars = round(float(np.interp(tokens, counts, ends)))
        return f"No. {number(lot, 0):012d}\n{text[:chars].rstrip()}"
