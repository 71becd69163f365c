"""Requests as bytes, ready before they are sent."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import Any

import httpx
import msgspec

from servebench import __version__
from servebench.load import prompts
from servebench.load.arrivals import read_trace
from servebench.load.exchange import Exchange
from servebench.load.stream import parse
from servebench.load.transport import head
from servebench.load.workload import Target, Workload

Messages = list[dict[str, Any]]


@dataclass(frozen=True, slots=True)
class Request:
    """`payload` is the whole HTTP request."""

    prompt_id: str
    payload: bytes


class Requests:
    """Makes the requests of one process: no two of a measurement carry the same number, nor do two processes share one.

    The parameters of the body are those of experiment.md (The request); `target.extra` goes over them, and a null
    there takes a parameter out.
    """

    def __init__(self, target: Target, workload: Workload, seed: int, process: int, processes: int) -> None:
        self._workload = workload
        self._process, self._processes = process, processes
        self._made = 0
        self._prompts = prompts.load(workload, seed)
        headers = {
            "accept": "text/event-stream",
            "accept-encoding": "identity",
            "user-agent": f"servebench/{__version__}",
            "content-type": "application/json",
            **target.headers,
        }
        if target.api_key_env is not None:
            headers["authorization"] = f"Bearer {_secret(target.api_key_env)}"
        self._http = httpx.Request("POST", target.chat_url, headers=headers)
        body = {
            "model": target.model,
            "stream": True,
            "stream_options": {"include_usage": True},
            "max_tokens": workload.max_tokens,
            "temperature": workload.temperature,
            "top_p": workload.top_p,
            "seed": workload.seed,
            **target.extra,
        }
        self._body = {key: value for key, value in body.items() if value is not None}
        self._encode = msgspec.json.Encoder().encode

    def next(self) -> Request:
        """The next request of this process: one document behind a number of its own."""
        prompt_id, messages = self.prompt()
        return self.ready(prompt_id, messages)

    def prompt(self) -> tuple[str, Messages]:
        number = self._made * self._processes + self._process
        self._made += 1
        return self._prompts.request(number)

    def ready(self, prompt_id: str, messages: Messages, max_tokens: int | None = None) -> Request:
        body = {**self._body, "messages": messages}
        if max_tokens is not None:
            body["max_tokens"] = max_tokens
        content = self._encode(body)
        return Request(prompt_id, head(self._http, len(content)) + content)

    def trace(self) -> list[tuple[float, Request]]:
        """This process's share of the trace, all made beforehand: (arrival_s, request)."""
        assert self._workload.trace is not None
        entries = read_trace(self._workload.trace)[self._process :: self._processes]
        return [
            (entry.arrival_s, self.ready(f"trace {entry.line}", entry.messages, entry.max_tokens)) for entry in entries
        ]


@dataclass
class Conversation:
    """One person's talk with the model: the history grows by each reply, and each turn brings a new document."""

    requests: Requests
    turn: int = 0
    _prompt_id: str = ""
    _history: Messages = field(default_factory=list)

    def request(self) -> Request:
        prompt_id, messages = self.requests.prompt()
        if self.turn == 0:
            self._prompt_id, self._history = prompt_id, messages
        else:
            self._history.append(messages[-1])
        self.turn += 1
        return self.requests.ready(f"{self._prompt_id} turn {self.turn}", self._history)

    def heard(self, exchange: Exchange) -> bool:
        """Take in the reply; False when there is none to go on from."""
        parsed = parse(exchange)
        if parsed.status != "ok":
            return False
        self._history.append({"role": "assistant", "content": parsed.text or ""})
        return True


def _secret(name: str) -> str:
    try:
        return os.environ[name]
    except KeyError:
        raise ValueError(f"target.api_key_env: {name} is not set; export it") from None
