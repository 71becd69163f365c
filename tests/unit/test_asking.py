"""Questions to a server: what is no reply, and what is a fault of ours."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx
import pytest

from servebench.load.endpoint import Endpoint
from servebench.sessions import asking
from servebench.sessions.client import complete


def test_a_reply_that_cannot_be_decompressed_is_a_failed_one_and_is_not_asked_for_again() -> None:
    asked = []

    def broken(request: httpx.Request) -> httpx.Response:
        asked.append(request)
        return httpx.Response(200, headers={"content-encoding": "gzip"}, stream=httpx.ByteStream(b"no gzip"))

    async def ask() -> dict[str, Any]:
        async with httpx.AsyncClient(transport=httpx.MockTransport(broken)) as client:
            return await complete(client, "http://there/v1/chat/completions", {})

    assert asyncio.run(ask())["failed"].startswith("DecodingError: ")
    assert len(asked) == 1


def test_a_fault_of_ours_in_the_load_beside_the_questions_ends_them(monkeypatch: pytest.MonkeyPatch) -> None:
    async def breaks(*_: Any) -> dict[str, Any]:
        raise ZeroDivisionError

    async def run() -> None:
        under_load = {"users": 2, "workload": {"prompts": "en-short", "max_tokens": 8}}
        async with httpx.AsyncClient() as client:
            async with (
                asyncio.timeout(30),
                asking._load(client, Endpoint(url="http://there", model="m"), under_load, 0),
            ):
                pass

    monkeypatch.setattr(asking, "complete", breaks)
    with pytest.raises(ExceptionGroup) as ended:
        asyncio.run(run())
    assert all(isinstance(one, ZeroDivisionError) for one in ended.value.exceptions)
