"""Encode requests to bytes before they are due."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import httpx
import msgspec

from servebench import __version__
from servebench.faults import Fault
from servebench.load import body, prompts
from servebench.load.endpoint import Endpoint
from servebench.load.exchange import Exchange
from servebench.load.lengths import Fitted, Lengths
from servebench.load.stream import parse
from servebench.load.traces import Blocks, Entry, Trace, read_trace
from servebench.load.transport import head
from servebench.load.workload import Workload

_UNFITTED = Fitted()


@dataclass(frozen=True, slots=True)
class Request:
    """Hold a request ready to send; `payload` is its whole HTTP message."""

    prompt_id: str
    payload: bytes


class Requests:
    """Make the requests of a measurement, in the body that docs/load.md describes, with the endpoint's `extra` on top.

    The seeds are those of `load.run.measure`.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        workload: Workload,
        seed: int,
        number_seed: int | None = None,
        fitted: Fitted = _UNFITTED,
    ) -> None:
        self.source = prompts.load(workload, seed, number_seed, fitted.cuts)
        self._trace = workload.trace
        self.arrivals: Trace | None = None
        if workload.mode == "trace":
            assert workload.trace is not None
            self.arrivals = read_trace(workload.trace, workload.trace_speed, workload.trace_first_s)
        self._blocks = _blocks(self.source, fitted) if self.lengths_only else None
        self._seed = seed
        self._reply_tokens: Lengths | None = None
        if workload.reply_tokens is not None:
            self._reply_tokens = Lengths.parse("workload.reply_tokens", workload.reply_tokens)
        headers = {
            "accept": "text/event-stream",
            "accept-encoding": "identity",
            "user-agent": f"servebench/{__version__}",
            "content-type": "application/json",
            **endpoint.request_headers(),
        }
        for name, value in headers.items():
            if not f"{name}{value}".isprintable():
                raise Fault(f"endpoint.headers: {name!r} holds a line break or another control character; take it out")
        try:
            self._http = httpx.Request("POST", endpoint.chat_url, headers=headers)
        except (httpx.InvalidURL, UnicodeEncodeError) as error:
            raise Fault(f"endpoint.url, endpoint.headers: cannot be sent ({error}); give both in ASCII") from None
        base = {
            "model": endpoint.model,
            "stream": True,
            "stream_options": {"include_usage": True},
            "max_tokens": workload.max_tokens,
            "temperature": workload.temperature,
            "top_p": workload.top_p,
            "seed": workload.seed,
        }
        # Exactly so many tokens, for the engines that take these wishes; min_tokens is set for each request.
        exact = {"ignore_eos": True, "min_tokens": 1} if self._reply_tokens or self.lengths_only else {}
        self._body = body.build(base | exact, endpoint.extra)
        self._encode = msgspec.json.Encoder().encode

    def nth(self, n: int) -> Request:
        """Make the request of the n-th prompt, with its unique number line."""
        return self.ready(*self.source.request(n), self.reply_tokens(n))

    def ready(self, prompt_id: str, messages: list[prompts.Message], max_tokens: int | None = None) -> Request:
        """Encode a request; `max_tokens` replaces the body's limit under the limit's own name, if the body has one."""
        own = {name: max_tokens for name in body.LIMITS if max_tokens is not None and name in self._body}
        if max_tokens is not None and "min_tokens" in self._body:
            own["min_tokens"] = max_tokens
        content = self._encode({**self._body, **own, "messages": messages})
        return Request(prompt_id, head(self._http, len(content)) + content)

    def reply_tokens(self, n: int) -> int | None:
        """Return the tokens of the n-th request's reply; None where its end is the model's choice."""
        lengths = self._reply_tokens
        return None if lengths is None else lengths.draw(Random(f"{self._seed} reply {n}"))

    @property
    def lengths_only(self) -> bool:
        """Return whether the requests come from a trace that has lengths instead of texts."""
        return self.arrivals is not None and self.arrivals.lengths_only

    def trace(self, process: int = 0, processes: int = 1) -> list[tuple[float, Callable[[], Request]]]:
        """Return a process's share of the trace: (seconds after the start, maker of the request).

        Requests with texts are encoded beforehand; those of a trace of lengths would take too much memory.
        """
        assert self.arrivals is not None
        share = list(enumerate(self.arrivals.entries))[process::processes]
        makers = [(entry.arrival_s, self._maker(entry, n)) for n, entry in share]
        return makers if self.lengths_only else [(at_s, partial(_same, make())) for at_s, make in makers]

    def describe(self) -> dict[str, Any]:
        """Return, JSON-able, the fields of `measurement.PromptSet`; of a trace of lengths no characters are known."""
        if self.arrivals is None:
            return self.source.describe()
        entries = self.arrivals.entries
        chars = (
            prompts.prompt_chars(self.source.numbered(entry.messages, 0) for entry in entries if entry.messages)
            if not self.lengths_only
            else {}
        )
        name = Path(self._trace or "").name
        return {"name": name, "prompts": len(entries), "skipped": self.arrivals.skipped, "prompt_chars": chars}

    def _maker(self, entry: Entry, n: int) -> Callable[[], Request]:
        def make() -> Request:
            if entry.messages is not None:
                messages = self.source.numbered(entry.messages, n)
            else:
                assert self._blocks is not None
                messages = self._blocks.message(entry)
            return self.ready(f"line {entry.line}", messages, entry.max_tokens)

        return make


def _same(request: Request) -> Request:
    return request


def _blocks(source: prompts.PromptSource, fitted: Fitted) -> Blocks | None:
    """Make the blocks of a trace from the set's texts; None before these are fitted."""
    if not fitted.cuts:
        return None
    each = len({tokens for tokens, _ in fitted.cuts})
    texts = len(fitted.cuts) // each
    places = [fitted.cuts[i * each : (i + 1) * each] for i in range(texts)]
    ends = [max(chars for _, chars in some) for some in places]
    cut = [prompts.running(source.entries, i * len(source.entries) // texts, end) for i, end in enumerate(ends)]
    return Blocks(cut, places, fitted.added, source.number_seed)


@dataclass
class Conversation:
    """Hold the conversation that begins with the prompt of a number; it grows by each reply and each further turn."""

    requests: Requests
    number: int
    turn: int = 0
    _prompt_id: str = ""
    _history: list[prompts.Message] = field(default_factory=list)

    def request(self) -> Request | None:
        """Make the request of the next turn, with the history before it, or return None after the last turn."""
        source = self.requests.source
        if self.turn == 0:
            self._prompt_id, messages = source.request(self.number)
            self._history = list(messages)
        else:
            more = source.follow_up(self.number, self.turn)
            if more is None:
                return None
            self._history.append(more)
        self.turn += 1
        limit = self.requests.reply_tokens(self.number)
        return self.requests.ready(f"{self._prompt_id} turn {self.turn}", self._history, limit)

    def heard(self, exchange: Exchange) -> bool:
        """Add the reply to the history; return False when the reply failed, which ends the conversation."""
        parsed = parse(exchange)
        if parsed.status != "ok":
            return False
        self._history.append({"role": "assistant", "content": parsed.text or ""})
        return True
