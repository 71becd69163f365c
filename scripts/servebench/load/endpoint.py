"""Describe how requests reach a server: address, model, API key, extra keys of the body."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qsl, urlsplit, urlunsplit

from servebench.faults import Fault
from servebench.load.jsonl import sendable
from servebench.machine.infrastructure import api_key

CHAT = "chat/completions"
# A path that says which version of the API it means: it ends in v1, v3 or v1beta, or in openai below one of these.
_VERSIONED = re.compile(r"/v\d+((alpha|beta)\d*)?(/(.+/)?open(ai|api))?$")
# Names of query parameters that hold a key or a password.
_SECRET = re.compile(r"key|token|secret|passw|pwd|auth|cred|jwt|signature|^sig$|^code$", re.IGNORECASE)


def address(url: str, path: str) -> str:
    """Return the address of an API path (`CHAT`, "models") on the server at `url`.

    `url` is a root, to which /v1 is added; a base that names its version (/v1, /api/v3, /v1beta/openai, or
    ?api-version=…); or the whole address of chat completions. Its query goes with every address.
    """
    parts = urlsplit(url)
    given = parts.path.rstrip("/")
    base = given.removesuffix(f"/{CHAT}")
    by_query = any(name == "api-version" for name, _ in parse_qsl(parts.query))
    version = "" if base != given or by_query or _VERSIONED.search(base) else "/v1"
    return urlunsplit(parts._replace(path=f"{base}{version}/{path}"))


@dataclass(frozen=True, kw_only=True)
class Endpoint:
    """Describe an OpenAI-compatible server.

    `url` is its root, a base that names its version, or the whole address of chat completions (see `address`).
    `extra` is merged into the JSON body of every request (`servebench.load.body`). `api_key_env` names the environment
    variable that holds the bearer token, so that no key is ever stored.
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
        if "@" in self.url:  # the message repeats no password
            raise Fault("endpoint.url: holds a user name or password (@); take it out and name a key by api_key_env")
        for name, _ in parse_qsl(self.url.partition("?")[2], keep_blank_values=True):
            if _SECRET.search(name):
                raise Fault(f"endpoint.url: its query holds a key ({name}); take it out and name it by api_key_env")
        try:
            parts = urlsplit(self.url)
            reachable = parts.hostname and parts.port != 0
        except ValueError:  # a port that is not a number, a bracket that stays open
            reachable = False
        if not reachable:
            raise Fault(f"endpoint.url: {self.url!r} has no host and port; write it like http://127.0.0.1:8000")
        if set(self.url) & set(" \t\r\n#"):
            raise Fault(f"endpoint.url: {self.url!r} holds a blank or a #fragment; give the address alone")
        if not self.model:
            raise Fault("endpoint.model: is empty; name the model as the server calls it")

    @property
    def chat_url(self) -> str:
        """Return the URL of chat completions."""
        return address(self.url, CHAT)

    def request_headers(self) -> dict[str, str]:
        """Return `headers` and the bearer token. Raises InfrastructureError when `api_key_env` holds no usable key."""
        if self.api_key_env is None:
            return self.headers
        return {**self.headers, "authorization": f"Bearer {api_key('endpoint.api_key_env', self.api_key_env)}"}
