"""Make the prompts of simulated users from built-in sets or files, optionally behind a shared head.

A prompt made from a document is the instruction, a line with a number unique to the request, and the document; ready
messages get such a line before the first that is not the system's. So no text behind the number is ever served from a
prompt cache, though the head before it may be (docs/load.md).
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from hashlib import sha256
from itertools import cycle, islice
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from servebench.faults import Fault
from servebench.load import jsonl
from servebench.load.documents import Paragraph, documents
from servebench.load.tokens import counter
from servebench.load.workload import Workload

Message = dict[str, Any]

# In a checkout a link to config/prompts, in the wheel a copy of that folder.
BUILT_IN = Path(__file__).parent / "prompt_sets"
# Twelve-digit numbers, visited once each because the step is not a multiple of 2 or 5. The step is near the golden
# ratio, so that the numbers of successive requests differ from their first digit on and share nothing in a cache.
NUMBERS = 10**12
_STEP = 618_033_988_749
_SYSTEM = ("system", "developer")
# For a shared head without a tokenizer: characters per token of Qwen3 and SmolLM2 on the built-in sets.
_CHARS_PER_TOKEN = {"ja": 1.4, "en": 4.6}


@dataclass(frozen=True, slots=True)
class Entry:
    """Hold one prompt: a document to make a message of, or ready messages; and the user messages of further turns."""

    id: str
    document: str | None = None
    messages: list[Message] = field(default_factory=list)
    turns: list[str] = field(default_factory=list)

    @property
    def text(self) -> str:
        return self.document if self.document is not None else said(self.messages[-1])


@dataclass(frozen=True)
class PromptSource:
    """Make the prompts of one measurement: the same seeds and number give the same prompt on every machine.

    `seed` decides the order of the entries, `number_seed` the number lines.
    """

    name: str
    entries: list[Entry]
    system: str | None
    instruction: str | None
    seed: int
    number_seed: int
    # Conversations of the file that have no question or no text.
    skipped: int = 0
    number_lines: bool = True

    def request(self, n: int) -> tuple[str, list[Message]]:
        """Return (prompt_id, messages) of the measurement's n-th request, counted from 0.

        The seed shuffles the entries, which are then repeated in that order, so that each is sent about equally often.
        """
        entry = self._entry(n)
        return entry.id, self._messages(entry, n)

    def follow_up(self, n: int, turn: int) -> Message | None:
        """Return the user message of turn 1, 2, … in the conversation that request n begins; None after its last turn.

        Only a file's conversations end. A document is followed by other documents, without number lines: the history
        before them is already unique.
        """
        entry = self._entry(n)
        if entry.document is not None:
            text = self._entry(n + turn).text
            return {"role": "user", "content": f"{self.instruction}\n{text}" if self.instruction else text}
        return {"role": "user", "content": entry.turns[turn - 1]} if turn <= len(entry.turns) else None

    def describe(self) -> dict[str, Any]:
        """Return, JSON-able, the number of prompts and the lengths (characters) of their messages with number lines."""
        lengths = prompt_chars(self._messages(entry, 0) for entry in self.entries)
        return {"name": self.name, "prompts": len(self.entries), "skipped": self.skipped, "prompt_chars": lengths}

    def _messages(self, entry: Entry, n: int) -> list[Message]:
        if entry.document is not None:
            lines = [self.instruction, self._line(n) if self.number_lines else None, entry.document]
            messages = [{"role": "user", "content": "\n".join(line for line in lines if line is not None)}]
        else:
            messages = self.numbered(entry.messages, n)
        if self.system and messages[0].get("role") != "system":
            messages = [{"role": "system", "content": self.system}, *messages]
        return messages

    def numbered(self, messages: list[Message], n: int) -> list[Message]:
        """Put the n-th request's number line, if it gets one, before the first message that is not the system's."""
        spoken = [i for i, message in enumerate(messages) if message.get("content")]
        place = next((i for i in spoken if messages[i]["role"] not in _SYSTEM), next(iter(spoken), None))
        if not self.number_lines or place is None:
            return messages
        message, line = messages[place], f"{self._line(n)}\n"
        content = message["content"]
        content = line + content if isinstance(content, str) else [{"type": "text", "text": line}, *content]
        return [*messages[:place], {**message, "content": content}, *messages[place + 1 :]]

    def _line(self, n: int) -> str:
        return f"No. {number(self.number_seed, n):012d}"

    def _entry(self, n: int) -> Entry:
        return self._order[n % len(self._order)]

    @cached_property
    def _order(self) -> list[Entry]:
        lots = enumerate(self.entries)
        return [entry for _, entry in sorted(lots, key=lambda item: hashed(f"{self.seed} place of {item[0]}"))]


def number(seed: int, n: int) -> int:
    """Return the number (below 10^12) in the n-th request's number line, different for every n below 10^12.

    Each seed starts at a number of its own: two measurements of 10,000 requests share numbers once in 50 million times.
    """
    return (hashed(f"{seed} number line") + n * _STEP) % NUMBERS


def load(
    workload: Workload, seed: int, number_seed: int | None = None, cuts: Sequence[tuple[int, int]] = ()
) -> PromptSource:
    """Load the prompts that a workload names: a built-in set, a folder with a set.yaml, or a file.

    A file is plain text (*.txt) with a document in each line; JSONL of OpenAI's batch interface, of whose `body` the
    messages are sent; JSONL with `prompt` (a document, which gets the instruction) or `messages` in each line; or
    ShareGPT, JSON or JSONL, with `conversations` (their replies are not sent; conversations without a question are
    skipped and counted). `system` and `instruction` of the workload replace the set's; messages that begin with a
    system message keep it. `shared_prefix_tokens` puts about that many tokens of the prompts' own texts at the head of
    the system message. `seed` decides the order and `number_seed` (None: `seed`) the number lines.

    With `prompt_tokens`, the prompts are texts made of the set's documents, without its system message and instruction:
    one for each (tokens, characters) of `cuts`, which `lengths.fitted` finds. Raises Fault.
    """
    name = workload.prompts
    path = BUILT_IN / name if (BUILT_IN / name / "set.yaml").is_file() else Path(name)
    about: dict[str, str | None] = {}
    found: list[Entry | None]
    if (path / "set.yaml").is_file():
        about = _about(path / "set.yaml")
        found = [*_set_entries(path)]
    elif path.is_file():
        found = _file_entries(path)
    else:
        sets = ", ".join(sorted(file.parent.name for file in BUILT_IN.glob("*/set.yaml")))
        raise Fault(f"prompts: {name!r} is neither a file nor a prompt set; built-in sets: {sets}")
    entries = [entry for entry in found if entry is not None]
    if not entries:
        raise Fault(f"{path}: holds no prompts; give one JSON object a line, each with a question")
    numbers = seed if number_seed is None else number_seed
    if workload.prompt_tokens is not None:
        texts = cut(entries, cuts) if cuts else entries
        return PromptSource(name, texts, workload.system, None, seed, numbers, number_lines=workload.number_lines)
    system = about.get("system") if workload.system is None else workload.system
    instruction = about.get("instruction") if workload.instruction is None else workload.instruction
    if workload.shared_prefix_tokens is not None:
        count_tokens = counter(workload.tokenizer) or _estimate(about.get("language"))
        head = _shared_text(entries, workload.shared_prefix_tokens, count_tokens)
        own = next(
            (entry.id for entry in entries if entry.messages and entry.messages[0].get("role") == "system"), None
        )
        if own is not None:
            raise Fault(
                f"{path}: {own}: has its own system message, which a shared head cannot precede; remove one of the two"
            )
        # Head and system message become one message: some chat templates refuse a second system message.
        system = f"{head}\n\n{system}" if system else head
    skipped = len(found) - len(entries)
    return PromptSource(name, entries, system, instruction, seed, numbers, skipped, workload.number_lines)


def cut(entries: Sequence[Entry], cuts: Sequence[tuple[int, int]]) -> list[Entry]:
    """Make a document for each (tokens, characters): a text that starts at another entry each time, cut behind so many
    characters. Blanks at its end go, as some chat templates take them off. Raises Fault without any text."""
    return [
        Entry(f"{tokens} tokens {i}", running(entries, i * len(entries) // len(cuts), chars)[:chars].rstrip())
        for i, (tokens, chars) in enumerate(cuts)
    ]


def running(entries: Sequence[Entry], start: int, chars: int) -> str:
    """Join the entries' texts from the `start`-th on, starting over when they run out, to at least `chars`."""
    if not any(entry.text for entry in entries):
        raise Fault("prompts: hold no text to cut; name other prompts")
    pieces, have = [], 0
    for entry in islice(cycle(entries), start, None):
        if have >= chars:
            break
        pieces.append(entry.text + "\n")
        have += len(entry.text) + 1
    return "".join(pieces)


def prompt_chars(prompts: Iterable[Sequence[Message]]) -> dict[str, int]:
    """Return min, p5, p50, p95 and max of the prompts' lengths, characters."""
    chars = np.array([sum(len(said(message)) for message in messages) for messages in prompts])
    ranks = np.percentile(chars, (0, 5, 50, 95, 100), method="inverted_cdf")
    return dict(zip(("min", "p5", "p50", "p95", "max"), map(int, ranks), strict=True))


def said(message: Message) -> str:
    """Return the text of a message: a string, its parts joined, or "" for a tool call without text."""
    content = message.get("content") or ""
    return content if isinstance(content, str) else "".join(str(part.get("text") or "") for part in content)


def chat(where: str, item: dict[str, Any]) -> list[Message]:
    """Return the item's `messages`, each with a role, and with a string, parts or tool calls. Raises Fault."""
    messages = item["messages"]
    if not isinstance(messages, list) or not messages:
        raise Fault(f"{where}: messages: {messages!r:.60} is not a list of messages; give at least one")
    for i, message in enumerate(messages, 1):
        place = f"{where}: messages: message {i}"
        if not isinstance(message, dict) or not isinstance(message.get("role"), str):
            raise Fault(f"{place}: {message!r:.60} is not an object with `role` and `content`; make it one")
        content = message.get("content")
        parts = isinstance(content, list) and content and all(isinstance(part, dict) for part in content)
        if not isinstance(content, str) and not parts and not (content is None and message.get("tool_calls")):
            raise Fault(f"{place}: content: {content!r:.60} is not a string; give one, or remove the message")
    return messages


def hashed(what: str) -> int:
    """Hash `what` to a number below 2^64 that is the same in every version of Python."""
    return int.from_bytes(sha256(what.encode()).digest()[:8])


def _estimate(language: str | None) -> Callable[[str], int]:
    chars = _CHARS_PER_TOKEN.get(language or "en", _CHARS_PER_TOKEN["en"])
    return lambda text: round(len(text) / chars)


def _shared_text(entries: list[Entry], tokens: int, count_tokens: Callable[[str], int]) -> str:
    """Join the entries' texts, starting over when they run out, and cut the result at about `tokens`."""
    text, have = "", 0
    for entry in cycle(entries):
        piece = entry.text + "\n"
        adds = max(1, count_tokens(piece))
        if have + adds >= tokens:
            return text + piece[: -(-len(piece) * (tokens - have) // adds)]
        text, have = text + piece, have + adds
    raise Fault("prompts: hold no text for a shared head; name other prompts, or leave out shared_prefix_tokens")


def _about(path: Path) -> dict[str, str | None]:
    """Read `system`, `instruction` and `language` of a set.yaml; None for a missing key."""
    try:
        about = yaml.safe_load(jsonl.read(path).decode())
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise Fault(f"{path}: is not YAML in UTF-8 ({' '.join(str(error).split())}); correct it") from None
    if not isinstance(about, dict):
        raise Fault(f"{path}: {about!r:.60} is not a mapping of keys to values; give system, instruction, language")
    texts = {key: about.get(key) for key in ("system", "instruction", "language")}
    for key, found in texts.items():
        if not isinstance(found, str | None):
            raise Fault(f"{path}: {key}: {found!r:.60} is not a string; put it in quotes, or leave it out")
        jsonl.sendable(f"{path}: {key}", found)
    return texts


def _set_entries(folder: Path) -> list[Entry]:
    """Read a set's documents.jsonl, or compose documents from its paragraphs.jsonl."""
    path = folder / "documents.jsonl"
    if path.is_file():
        return [Entry(jsonl.text(at, line, "id"), jsonl.text(at, line, "text")) for at, _, line in jsonl.lines(path)]
    path = folder / "paragraphs.jsonl"
    keys = ("id", "topic", "text")
    paragraphs = [Paragraph(*(jsonl.text(at, line, key) for key in keys)) for at, _, line in jsonl.lines(path)]
    try:
        return [Entry(document.id, document.text) for document in documents(paragraphs)]
    except ValueError as error:
        raise Fault(f"{path}: {error}") from None


def _file_entries(path: Path) -> list[Entry | None]:
    """Read the prompts of a file; None for each conversation that is skipped."""
    if path.suffix == ".txt":
        lines = jsonl.read(path).decode(errors="replace").splitlines()
        return [Entry(f"line {i}", line) for i, line in enumerate(lines, 1) if line.strip()]
    if path.suffix == ".jsonl":
        return [_entry(where, i, line) for where, i, line in jsonl.lines(path)]
    items = jsonl.value(str(path), jsonl.read(path), "name a file of JSON lines *.jsonl")
    if not isinstance(items, list) or not all(isinstance(item, dict) for item in items):
        raise Fault(f"{path}: is not a list of objects; in ShareGPT each object has `conversations`")
    places = [(f"{path}: item {i}", i, item) for i, item in enumerate(items, 1)]
    return [_entry(where, i, jsonl.sendable(where, item)) for where, i, item in places]


def _entry(where: str, i: int, item: dict[str, Any]) -> Entry | None:
    """Read one prompt of a file; `i` is its id where the item has none. None for a conversation that is skipped."""
    id = str(item.get("id", i))
    if "prompt" in item:
        return Entry(id, jsonl.text(where, item, "prompt"))
    if "messages" in item:
        return Entry(id, messages=chat(where, item))
    if isinstance(asked := item.get("body"), dict) and "messages" in asked:
        return Entry(str(item.get("custom_id", i)), messages=chat(f"{where}: body", asked))
    if "conversations" not in item:
        raise Fault(f"{where}: has neither `prompt` nor `messages` nor `conversations`; add one")
    turns = item["conversations"]
    if not isinstance(turns, list) or not all(isinstance(m, dict) and "from" in m and "value" in m for m in turns):
        return None
    system = [m["value"] for m in turns if m["from"] == "system"][:1]
    asked = [m["value"] for m in turns if m["from"] in ("human", "user")]
    if not asked or not all(isinstance(words, str) and words for words in (*system, *asked)):
        return None
    head = [{"role": "system", "content": words} for words in system]
    return Entry(id, messages=[*head, {"role": "user", "content": asked[0]}], turns=asked[1:])
