"""Questions to a server, some at a time; each reply is handed over the moment it is there."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import httpx

from servebench.tasks import TASKS
from servebench.tasks.task import Question
from servebench.versions import SAMPLING

TIMEOUT_S = 600.0


CONNECT_TIMEOUT_S = 10.0


EVIDENCE_CHARACTERS = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """A server as it is asked. `extra` goes over the body's parameters; a null there takes one out."""

    url: str  # its root
    model: str
    extra: Mapping[str, Any] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    seed: int = 0

    def client(self, connections: int) -> httpx.AsyncClient:
        """A client for so many requests at once."""
        return httpx.AsyncClient(
            base_url=self.url,
            headers=dict(self.headers),
            timeout=httpx.Timeout(TIMEOUT_S, connect=CONNECT_TIMEOUT_S),
            limits=httpx.Limits(max_connections=connections, max_keepalive_connections=connections),
            trust_env=False,
        )

    def body(
        self, messages: Sequence[Mapping[str, str]], max_tokens: int, more: Mapping[str, Any] | None = None
    ) -> dict[str, Any]:
        """The request; `more` goes over all else."""
        whole = {
            "model": self.model,
            "messages": messages,
            "max_tokens": max_tokens,
            **SAMPLING,
            "seed": self.seed,
            **self.extra,
            **(more or {}),
        }
        return {key: value for key, value in whole.items() if value is not None}


@dataclass(frozen=True, slots=True)
class Asked:
    """One question to be asked: which, in which repeat, how long the reply may be, what else its request says."""

    task: str
    repeat: int
    question: Question
    max_tokens: int
    request: Mapping[str, Any] = field(default_factory=dict)

    @property
    def messages(self) -> list[dict[str, str]]:
        """One user turn."""
        return [{"role": "user", "content": TASKS[self.task].prompt(self.question)}]


async def complete(client: httpx.AsyncClient, body: Mapping[str, Any]) -> dict[str, Any]:
    """One chat completion, not streamed: `text, reasoning, finish_reason, tokens, prompt_tokens` as the server gave
    them, or `failed` with the reason; and `latency_s`. Sent once more when the connection breaks."""
    began = time.monotonic()
    got: dict[str, Any] = {}
    for _ in range(2):
        try:
            got = _read(await client.post("/v1/chat/completions", json=body))
        except httpx.TimeoutException as error:
            got = {"failed": f"{type(error).__name__} after {time.monotonic() - began:.1f} s"}
        except (httpx.NetworkError, httpx.RemoteProtocolError) as error:
            got = {"failed": f"{type(error).__name__}: {error}"}
            continue
        except httpx.RequestError as error:  # such as a reply that cannot be decompressed
            got = {"failed": f"{type(error).__name__}: {error}"}
        break
    return {**got, "latency_s": round(time.monotonic() - began, 6)}


def _read(response: httpx.Response) -> dict[str, Any]:
    evidence = response.text[:EVIDENCE_CHARACTERS]
    if response.is_error:
        return {"failed": f"HTTP {response.status_code}: {evidence}"}
    try:
        content = response.json()
        choice = content["choices"][0]
        message, usage = choice["message"], content.get("usage") or {}
        return {
            "text": message.get("content"),
            "reasoning": message.get("reasoning_content") or message.get("reasoning"),
            "finish_reason": choice.get("finish_reason"),
            "tokens": usage.get("completion_tokens"),
            "prompt_tokens": usage.get("prompt_tokens"),
        }
    except (ValueError, KeyError, IndexError, TypeError, AttributeError):
        return {"failed": f"no chat completion: {evidence}"}


async def ask_all(
    client: httpx.AsyncClient,
    endpoint: Endpoint,
    questions: Iterable[Asked],
    concurrency: int,
    answered: Callable[[Asked, dict[str, Any]], bool],
) -> None:
    """Ask everything in this order, `concurrency` at a time; ends early, without asking more, when `answered` says
    False."""
    waiting = iter(questions)
    going_on = True

    async def asker() -> None:
        nonlocal going_on
        for asked in waiting:
            reply = await complete(client, endpoint.body(asked.messages, asked.max_tokens, asked.request))
            going_on = answered(asked, reply) and going_on
            if not going_on:
                return

    async with asyncio.TaskGroup() as group:
        for _ in range(concurrency):
            group.create_task(asker())
