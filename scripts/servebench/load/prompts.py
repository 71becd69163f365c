"""What the simulated people ask: built-in sets, files of prompts or conversations, one long shared head.

A prompt made from a document is the instruction, a line with a number that no other request has, the document:
so no document is ever served from a prompt cache, while the head before the number may be (experiment.md).
"""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from hashlib import sha256
from itertools import cycle
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from servebench.load.documents import Paragraph, documents
from servebench.load.tokens import counter
from servebench.load.workload import Workload

Message = dict[str, Any]

# In a checkout a link to config/prompts, in the wheel its content.
BUILT_IN = Path(__file__).parent / "prompt_sets"
# Twelve digits, and a step through them that is no multiple of 2 or 5, so that it meets each number once. Near the
# golden ratio: neighbours differ from their first digit on, and a cache can share no part of a number.
NUMBERS = 10**12
_STEP = 618_033_988_749
# For a shared head without a tokenizer: characters a token, as Qwen3 and SmolLM2 cut our own sets.
_CHARS_PER_TOKEN = {"ja": 1.4, "en": 4.6}


class PromptError(ValueError):
    """Prompts that cannot be used; the message names file, line, key and remedy."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A document that becomes a message, or messages as they are; `turns` are the user messages that may follow."""

    id: str
    document: str | None = None
    messages: list[Message] = field(default_factory=list)
    turns: list[str] = field(default_factory=list)

    @property
    def text(self) -> str:
        return self.document if self.document is not None else str(self.messages[-1]["content"])


@dataclass(frozen=True)
class PromptSource:
    """The prompts of one measurement: the same seed and number are the same prompt on every machine."""

    name: str
    entries: list[Entry]
    system: str | None
    instruction: str | None
    seed: int

    def request(self, n: int) -> tuple[str, list[Message]]:
        """(prompt_id, messages) of the measurement's n-th request, from 0. The entries come round and round in an
        order that the seed shuffles, so that all are asked about equally often."""
        entry = self._entry(n)
        return entry.id, self._messages(entry, n)

    def follow_up(self, n: int, turn: int) -> Message | None:
        """The user message of turn 1, 2, … in the conversation that request n begins; None when a file's
        conversation has no more. After a document come others, without number lines: the history before them is
        already like no other."""
        entry = self._entry(n)
        if entry.document is not None:
            text = self._entry(n + turn).text
            return {"role": "user", "content": f"{self.instruction}\n{text}" if self.instruction else text}
        return {"role": "user", "content": entry.turns[turn - 1]} if turn <= len(entry.turns) else None

    def describe(self) -> dict[str, Any]:
        """JSON-able: how many prompts, and the characters of their messages, number lines included."""
        chars = np.array([sum(len(str(m["content"])) for m in self._messages(entry, 0)) for entry in self.entries])
        ranks = np.percentile(chars, (0, 5, 50, 95, 100), method="inverted_cdf")
        lengths = dict(zip(("min", "p5", "p50", "p95", "max"), map(int, ranks), strict=True))
        return {"name": self.name, "prompts": len(chars), "prompt_chars": lengths}

    def _messages(self, entry: Entry, n: int) -> list[Message]:
        messages = entry.messages
        if entry.document is not None:
            lines = [f"No. {number(self.seed, n):012d}", entry.document]
            messages = [
                {"role": "user", "content": "\n".join([self.instruction, *lines] if self.instruction else lines)}
            ]
        if self.system and messages[0].get("role") != "system":
            messages = [{"role": "system", "content": self.system}, *messages]
        return messages

    def _entry(self, n: int) -> Entry:
        return self._order[n % len(self._order)]

    @cached_property
    def _order(self) -> list[Entry]:
        lots = enumerate(self.entries)
        return [entry for _, entry in sorted(lots, key=lambda item: _lot(f"{self.seed} place of {item[0]}"))]


def number(seed: int, n: int) -> int:
    """The number in the n-th request's number line, below 10^12: different for every n below 10^12. Another seed
    starts elsewhere, so that two measurements of 10,000 requests share numbers once in 50 million times."""
    return (_lot(f"{seed} number line") + n * _STEP) % NUMBERS


def load(workload: Workload, seed: int) -> PromptSource:
    """The prompts that a workload names: a built-in set, a folder with a set.yaml, or a file.

    A file is JSONL with `prompt` (a document: it gets instruction and number line) or `messages` (sent as they are)
    in each line, or ShareGPT, JSON or JSONL, with `conversations` (its replies are not sent). `system` and
    `instruction` of the workload replace the set's; messages that begin with a system message keep their own.
    `shared_prefix_tokens` puts about so many tokens of the prompts' own texts at the head of the system message.
    Raises PromptError.
    """
    name = workload.prompts
    path = BUILT_IN / name if (BUILT_IN / name / "set.yaml").is_file() else Path(name)
    about: dict[str, Any] = {}
    if (path / "set.yaml").is_file():
        about = yaml.safe_load((path / "set.yaml").read_text(encoding="utf-8"))
        entries = _set_entries(path)
    elif path.is_file():
        entries = _file_entries(path)
    else:
        sets = ", ".join(sorted(file.parent.name for file in BUILT_IN.glob("*/set.yaml")))
        raise PromptError(f"prompts: {name!r} is neither a file nor a prompt set; built-in sets: {sets}")
    if not entries:
        raise PromptError(f"{path}: holds no prompts; give one JSON object a line")
    system = about.get("system") if workload.system is None else workload.system
    instruction = about.get("instruction") if workload.instruction is None else workload.instruction
    if workload.shared_prefix_tokens is not None:
        count_tokens = counter(workload.tokenizer) or _estimate(about.get("language", "en"))
        head = _shared_text(entries, workload.shared_prefix_tokens, count_tokens)
        own = next(
            (entry.id for entry in entries if entry.messages and entry.messages[0].get("role") == "system"), None
        )
        if own is not None:
            raise PromptError(f"{path}: {own}: has a system message of its own, which a shared head cannot precede")
        # One system message: some chat templates refuse a second.
        system = f"{head}\n\n{system}" if system else head
    return PromptSource(name, entries, system, instruction, seed)


def _lot(what: str) -> int:
    """A number below 2^64 that no version of Python's `random` can change."""
    return int.from_bytes(sha256(what.encode()).digest()[:8])


def _estimate(language: str) -> Callable[[str], int]:
    chars = _CHARS_PER_TOKEN.get(language, _CHARS_PER_TOKEN["en"])
    return lambda text: round(len(text) / chars)


def _shared_text(entries: list[Entry], tokens: int, count_tokens: Callable[[str], int]) -> str:
    """The entries' texts one after the other, again from the first when they run out, cut at about `tokens`."""
    text, have = "", 0
    for entry in cycle(entries):
        piece = entry.text + "\n"
        adds = max(1, count_tokens(piece))
        if have + adds >= tokens:
            return text + piece[: -(-len(piece) * (tokens - have) // adds)]
        text, have = text + piece, have + adds
    raise PromptError("no text to make a shared head of")


def _set_entries(folder: Path) -> list[Entry]:
    """The documents of a set: documents.jsonl as they are, or composed of paragraphs.jsonl."""
    path = folder / "documents.jsonl"
    if path.is_file():
        return [Entry(line["id"], line["text"]) for _, line in _lines(path, "id", "text")]
    lines = _lines(folder / "paragraphs.jsonl", "id", "topic", "text")
    made = documents([Paragraph(line["id"], line["topic"], line["text"]) for _, line in lines])
    return [Entry(document.id, document.text) for document in made]


def _file_entries(path: Path) -> list[Entry]:
    if path.suffix == ".jsonl":
        return [_entry(f"{path}:{i}", i, line) for i, line in _lines(path)]
    try:
        items = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise PromptError(f"{path}: is not JSON ({error}); name a file of JSON lines *.jsonl") from error
    if not isinstance(items, list) or not all(isinstance(item, dict) for item in items):
        raise PromptError(f"{path}: is not a list of objects; ShareGPT has one with `conversations` for each")
    return [_entry(f"{path}: item {i}", i, item) for i, item in enumerate(items, 1)]


def _entry(where: str, i: int, item: dict[str, Any]) -> Entry:
    """One prompt of a file; `i` is its id where it gives none."""
    id = str(item.get("id", i))
    if "prompt" in item:
        return Entry(id, _text(where, item, "prompt"))
    key, role, text = ("messages", "role", "content") if "messages" in item else ("conversations", "from", "value")
    if key not in item:
        raise PromptError(f"{where}: has neither `prompt` nor `messages` nor `conversations`; add one")
    said = item[key]
    if not isinstance(said, list) or not said or not all(isinstance(m, dict) and role in m and text in m for m in said):
        raise PromptError(f"{where}: {key}: is not a list of objects with `{role}` and `{text}`; give at least one")
    if key == "messages":
        return Entry(id, messages=said)
    system = [{"role": "system", "content": m[text]} for m in said if m[role] == "system"][:1]
    turns = [_text(f"{where}: {key}", m, text) for m in said if m[role] in ("human", "user")]
    if not turns:
        raise PromptError(f"{where}: {key}: nobody asks anything in it; take it out")
    return Entry(id, messages=[*system, {"role": "user", "content": turns[0]}], turns=turns[1:])


def _lines(path: Path, *keys: str) -> Iterator[tuple[int, dict[str, Any]]]:
    """(line number, object) of a JSONL file, each with text under every key; empty lines are passed over."""
    for i, line in enumerate(path.read_text(encoding="utf-8").split("\n"), 1):
        if not line.strip():
            continue
        try:
            item = json.loads(line)
        except ValueError as error:
            raise PromptError(f"{path}:{i}: is not JSON ({error}); one JSON object a line") from error
        if not isinstance(item, dict):
            raise PromptError(f"{path}:{i}: is not a JSON object; one JSON object a line")
        for key in keys:
            _text(f"{path}:{i}", item, key)
        yield i, item


def _text(where: str, item: dict[str, Any], key: str) -> str:
    text = item.get(key)
    if not isinstance(text, str) or not text:
        raise PromptError(f"{where}: {key}: {text!r} is not a text; give some")
    return text
