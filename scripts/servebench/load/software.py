"""Ask a server that `servebench load` did not start which version of its software runs."""

from __future__ import annotations

import time
from urllib.parse import urlsplit

import httpx
import msgspec

from servebench.faults import Fault
from servebench.load import bounded
from servebench.load.endpoint import Endpoint, address
from servebench.machine.untrusted import shown

WAIT_S = 3.0  # for all answers together
# Where servers say it, and under which name: vLLM, Ollama, llama.cpp's server.
_SAID = (("/version", "version"), ("/api/version", "version"), ("/props", "build_info"))
_MOST_CHARS = 100


def version(endpoint: Endpoint) -> str | None:
    """Return the version that the server at this address says it is; None where it says none, or not at once."""
    models = urlsplit(address(endpoint.url, "models"))
    if models.path != "/v1/models" or models.query:  # a gateway, or a cloud: no server of these
        return None
    try:
        with bounded.Client(
            f"{models.scheme}://{models.netloc}", timeout_s=WAIT_S, headers=endpoint.request_headers()
        ) as client:
            client.until = time.monotonic() + WAIT_S
            return next(filter(None, (_said(client, path, name) for path, name in _SAID)), None)
    except Fault:  # no certificates, no key: the load says so
        return None


def _said(client: httpx.Client, path: str, name: str) -> str | None:
    try:
        response = client.get(path)
        said = msgspec.json.decode(response.content, type=dict[str, object]) if response.is_success else {}
    except (httpx.HTTPError, httpx.InvalidURL, msgspec.DecodeError, RecursionError):
        return None
    found = said.get(name)
    return shown(found)[:_MOST_CHARS] if isinstance(found, str) and found else None
