"""Ask a server questions, several at a time, and pass on each reply as it arrives."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import httpx

from servebench.load import body, reach
from servebench.load.bounded import MOST_BYTES
from servebench.load.endpoint import Endpoint
from servebench.load.reply import ReplyError, completion
from servebench.machine.untrusted import shown
from servebench.store.replies import Answer
from servebench.tasks import TASKS
from servebench.tasks.task import Question
from servebench.versions import SAMPLING

TIMEOUT_S = 600.0
CONNECT_TIMEOUT_S = 10.0


def client_for(endpoint: Endpoint, connections: int) -> httpx.AsyncClient:
    """Make an HTTP client for `connections` requests at once."""
    return httpx.AsyncClient(
        headers={"Accept-Encoding": "identity", **endpoint.request_headers()},
        timeout=httpx.Timeout(TIMEOUT_S, connect=CONNECT_TIMEOUT_S),
        limits=httpx.Limits(max_connections=connections, max_keepalive_connections=connections),
        trust_env=False,
        verify=reach.tls(),
    )


@dataclass(frozen=True, slots=True)
class Asked:
    """Describe one question to ask: its repeat, the reply's token limit, and further keys of the request's body."""

    task: str
    repeat: int
    question: Question
    max_tokens: int
    request: Mapping[str, Any] = field(default_factory=dict)

    @property
    def messages(self) -> list[dict[str, str]]:
        """Return the question's prompt as one user turn."""
        return [{"role": "user", "content": TASKS[self.task].prompt(self.question)}]

    def body(self, endpoint: Endpoint, seed: int) -> dict[str, Any]:
        """Build the body of the request that asks `endpoint` this question."""
        base = {
            "model": endpoint.model,
            "messages": self.messages,
            "max_tokens": self.max_tokens,
            **SAMPLING,
            "seed": seed,
        }
        return body.build(base, endpoint.extra, self.request)


async def complete(client: httpx.AsyncClient, url: str, content: Mapping[str, Any]) -> Answer:
    """Request one chat completion, not streamed; retry once when the connection breaks."""
    began = time.monotonic()
    got: dict[str, Any] = {}
    for _ in range(2):
        try:
            async with asyncio.timeout(TIMEOUT_S):
                got = _read(*await _bounded(client, url, content))
        except (httpx.TimeoutException, TimeoutError) as error:
            got = {"failed": f"{type(error).__name__} after {time.monotonic() - began:.1f} s"}
        except (httpx.NetworkError, httpx.RemoteProtocolError) as error:
            got = {"failed": shown(f"{type(error).__name__}: {error}")}
            continue
        except httpx.RequestError as error:  # for example a reply that cannot be decompressed
            got = {"failed": shown(f"{type(error).__name__}: {error}")}
        break
    return Answer(**got, latency_s=round(time.monotonic() - began, 6))


async def _bounded(client: httpx.AsyncClient, url: str, content: Mapping[str, Any]) -> tuple[httpx.Response, bytes]:
    """Return the response and its body, of which no more than `MOST_BYTES` are read."""
    async with client.stream("POST", url, json=content) as response:
        if (coding := response.headers.get("content-encoding", "identity")) != "identity":
            raise httpx.DecodingError(f"content-encoding {coding!r:.100}, which nobody asked for")
        blocks, size = [], 0
        async for block in response.aiter_bytes():
            blocks.append(block)
            if (size := size + len(block)) > MOST_BYTES:
                raise httpx.DecodingError(f"the reply goes on after {size} bytes")
        return response, b"".join(blocks)


def _read(response: httpx.Response, content: bytes) -> dict[str, Any]:
    try:
        reply = completion(response, content)
    except ReplyError as error:
        return {"failed": shown(str(error))}
    return {
        "text": reply.text,
        "reasoning": reply.reasoning or None,
        "finish_reason": reply.finish_reason,
        "tokens": reply.completion_tokens,
        "prompt_tokens": reply.prompt_tokens,
    }


async def ask_all(
    client: httpx.AsyncClient,
    endpoint: Endpoint,
    questions: Iterable[Asked],
    concurrency: int,
    seed: int,
    answered: Callable[[Asked, Answer], bool],
) -> None:
    """Ask the questions in this order, `concurrency` at a time; stop when `answered` returns False."""
    waiting = iter(questions)
    going_on = True

    async def asker() -> None:
        nonlocal going_on
        for asked in waiting:
            reply = await complete(client, endpoint.chat_url, asked.body(endpoint, seed))
            going_on = answered(asked, reply) and going_on
            if not going_on:
                return

    async with asyncio.TaskGroup() as group:
        for _ in range(concurrency):
            group.create_task(asker())
