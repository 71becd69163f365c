"""Questions to a server: what is no reply, and what is a fault of ours."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx

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
