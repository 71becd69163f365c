"""Make HTTP clients whose every request ends, whatever the server sends: after a time and a number of bytes.

httpx's time-outs begin again with every byte. Here the `read` time-out of a request is the time it may take from its
first byte to the last byte of its response, headers and `100 Continue` included, and no response may be longer than
`MOST_BYTES`. No compression is asked for, and a compressed response is refused: its size is not known beforehand.
"""

from __future__ import annotations

import ssl
import time
from collections.abc import Iterable, Mapping
from typing import Any

import httpcore
import httpx

from servebench.load import reach

MOST_BYTES = 64 * 2**20


class Client(httpx.Client):
    """A client without proxies. `until` (monotonic seconds; None: any time) ends every request, too."""

    def __init__(self, base_url: str = "", *, timeout_s: float, headers: Mapping[str, str] | None = None) -> None:
        self._bounds = _Bounds()
        super().__init__(
            base_url=base_url,
            headers={"Accept-Encoding": "identity", **(headers or {})},
            timeout=timeout_s,
            trust_env=False,
            transport=_Transport(self._bounds, reach.tls()),
        )

    @property
    def until(self) -> float | None:
        """When every request ends at the latest, in monotonic seconds."""
        return self._bounds.until

    @until.setter
    def until(self, until: float | None) -> None:
        self._bounds.until = until


class _Bounds:
    """Hold what is left of the present request's time and bytes."""

    until: float | None = None
    _end: float = 0.0
    _bytes: int = 0

    def begin(self, total_s: float | None) -> None:
        ends = [end for end in (self.until, None if total_s is None else time.monotonic() + total_s) if end is not None]
        self._end, self._bytes = min(ends, default=float("inf")), MOST_BYTES

    def left_s(self, timeout: float | None) -> float:
        left_s = self._end - time.monotonic()
        if left_s <= 0:
            raise httpcore.ReadTimeout("the response did not end in time")
        return left_s if timeout is None else min(left_s, timeout)

    def take(self, count: int) -> None:
        self._bytes -= count
        if self._bytes < 0:
            raise httpcore.RemoteProtocolError(f"the response is longer than {MOST_BYTES // 2**20} MiB")


class _Stream(httpcore.NetworkStream):
    def __init__(self, inner: httpcore.NetworkStream, bounds: _Bounds) -> None:
        self._inner, self._bounds = inner, bounds

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        data = self._inner.read(max_bytes, _finite(self._bounds.left_s(timeout)))
        self._bounds.take(len(data))
        return data

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        self._inner.write(buffer, _finite(self._bounds.left_s(timeout)))

    def close(self) -> None:
        self._inner.close()

    def start_tls(
        self, ssl_context: ssl.SSLContext, server_hostname: str | None = None, timeout: float | None = None
    ) -> httpcore.NetworkStream:
        return _Stream(self._inner.start_tls(ssl_context, server_hostname, self._bounds.left_s(timeout)), self._bounds)

    def get_extra_info(self, info: str) -> Any:
        return self._inner.get_extra_info(info)


class _Backend(httpcore.NetworkBackend):
    def __init__(self, bounds: _Bounds) -> None:
        self._inner, self._bounds = httpcore.SyncBackend(), bounds

    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore.NetworkStream:
        left_s = self._bounds.left_s(timeout)
        return _Stream(self._inner.connect_tcp(host, port, left_s, local_address, socket_options), self._bounds)


class _Transport(httpx.HTTPTransport):
    def __init__(self, bounds: _Bounds, tls: ssl.SSLContext) -> None:
        super().__init__(verify=tls, trust_env=False)
        # httpx has no parameter for the backend of its transport's pool.
        self._pool = httpcore.ConnectionPool(ssl_context=tls, network_backend=_Backend(bounds))
        self._bounds = bounds

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        timeout = request.extensions["timeout"]
        self._bounds.begin(timeout["read"])
        # httpx's own read time-out is that of a single read; the bounds are stricter.
        request.extensions = {**request.extensions, "timeout": {**timeout, "read": None, "write": None}}
        response = super().handle_request(request)
        if (coding := response.headers.get("content-encoding", "identity")) != "identity":
            response.close()
            raise httpx.DecodingError(f"content-encoding {coding!r:.100}, which nobody asked for", request=request)
        return response


def _finite(seconds: float) -> float | None:
    return None if seconds == float("inf") else seconds
