"""Describe how requests reach a server: address, model, API key, extra keys of the body."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from servebench.faults import Fault
from servebench.load.jsonl import sendable
from servebench.machine.infrastructure import api_key


@dataclass(frozen=True, kw_only=True)
class Endpoint:
    """Describe an OpenAI-compatible server.

    `url` is its root, with or without /v1 at the end. `extra` is merged into the JSON body of every request
    (`servebench.load.body`). `api_key_env` names the environment variable that holds the bearer token, so that no key
    is ever stored.
    """

    url: str
    model: str
    extra: dict[str, Any] = field(default_factory=dict)
    api_key_env: str | None = None
    headers: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for key, value in vars(self).items():
            sendable(f"endpoint.{key}", value)
        if not self.url.startswith(("http://", "https://")):
            raise Fault(f"endpoint.url: {self.url!r} does not start with http:// or https://")
        try:
            reachable = urlsplit(self.url).hostname and urlsplit(self.url).port != 0
        except ValueError:  # a port that is not a number, a bracket that stays open
            reachable = False
        if not reachable:
            raise Fault(f"endpoint.url: {self.url!r} has no host and port; write it like http://127.0.0.1:8000")
        if set(self.url) & set(" ?#@"):
            raise Fault(f"endpoint.url: {self.url!r} is more than a server's root; leave out key, query and password")
        if not self.model:
            raise Fault("endpoint.model: is empty; name the model as the server calls it")

    @property
    def chat_url(self) -> str:
        """Return the URL of chat completions."""
        root = self.url.rstrip("/")
        return f"{root}/chat/completions" if root.endswith("/v1") else f"{root}/v1/chat/completions"

    def request_headers(self) -> dict[str, str]:
        """Return `headers` and the bearer token. Raises InfrastructureError when `api_key_env` holds no usable key."""
        if self.api_key_env is None:
            return self.headers
        return {**self.headers, "authorization": f"Bearer {api_key('endpoint.api_key_env', self.api_key_env)}"}
