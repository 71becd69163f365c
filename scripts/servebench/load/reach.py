"""Tell a server that will never answer from one that is not ready yet, and say what to do about it."""

from __future__ import annotations

import os
import socket
import ssl
from urllib.parse import urlsplit

import httpx

from servebench.faults import Fault

_TLS_TIMEOUT_S = 2.0
_KEY = "does the key fit? api_key_env (--api-key-env) names the environment variable that holds it"
_PATH = "is this the address, and has the server this model? The whole address, up to /chat/completions, may be given"
_PLAIN = "does the port speak plain HTTP? Then begin the address with http://"
# HTTP statuses that no later request of the same kind changes, and what to look at.
_REFUSALS = {401: _KEY, 403: _KEY, 404: _PATH, 405: _PATH}


def tls() -> ssl.SSLContext:
    """Make the TLS context with which every server is asked: by the load, the probe and the evaluations.

    It trusts the certificates in the file `SSL_CERT_FILE` or the folder `SSL_CERT_DIR`; without either, certifi's.
    Raises Fault when they cannot be read.
    """
    try:
        return httpx.create_ssl_context()
    except OSError as error:  # SSLError is one
        file = os.environ.get("SSL_CERT_FILE") or os.environ.get("SSL_CERT_DIR")
        raise Fault(
            f"SSL_CERT_FILE: {file!r} holds no certificates ({error}); name a file of PEM certificates"
        ) from None


def refusal_remedy(url: str, status: int | None) -> str | None:
    """Return what to do when a request to `url` failed and every later one will; None when a later one may succeed.

    `status` is the HTTP status, None without a response. A port that closes plain connections is asked for TLS.
    """
    if status in _REFUSALS:
        return _REFUSALS[status]
    if status in (None, 400) and url.startswith("http://") and _speaks_tls(url):
        return "the port speaks TLS: begin the address with https://"
    return None


def connect_remedy(error: BaseException, url: str) -> str:
    """Return what to do when no connection to `url` could be opened.

    A server without TLS answers its greeting with something else, or closes the connection, or waits.
    """
    if isinstance(error, ssl.SSLCertVerificationError):
        return "name its certificate, or its certificate authority's, in SSL_CERT_FILE"
    if isinstance(error, ssl.SSLError | ConnectionResetError | ConnectionAbortedError) and url.startswith("https:"):
        return f"no TLS answer; {_PLAIN}"
    waited = isinstance(error, TimeoutError) and url.startswith("https:")
    return f"is the server up? {_PLAIN}" if waited else "is the server up?"


def _speaks_tls(url: str) -> bool:
    parts = urlsplit(url)
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    try:
        with (
            socket.create_connection((parts.hostname, parts.port or 80), _TLS_TIMEOUT_S) as connection,
            context.wrap_socket(connection, server_hostname=parts.hostname),
        ):
            return True
    except OSError:
        return False
