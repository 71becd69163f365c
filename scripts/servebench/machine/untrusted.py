"""Take from texts that servers and tools sent what must not be written: secrets, and what controls a terminal."""

from __future__ import annotations

import json
import re
from urllib.parse import quote

HIDDEN = "[hidden]"
LEAST = 8  # characters of a secret; what is shorter ("none", "EMPTY") is a word that stands for no secret
_secrets: set[str] = set()
_IN_URLS = re.compile(
    r"(?P<before>://[^/\s:@\"'\\]*:)[^/\s@\"'\\]+(?=@)"
    r"|(?P<key>[?&](?:access_token|api[_-]?key|auth|key|password|secret|sig|signature|token)=)[^&\s\"'#\\]+",
    re.IGNORECASE,
)
# Control characters (C0, DEL, C1) but for tab and line feed, and the characters that turn the direction of writing.
_CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


def keep_secret(secret: str) -> None:
    """Let `redacted` hide a secret from now on, as it is and as JSON and URLs write it."""
    if len(secret) >= LEAST:
        _secrets.update({secret, json.dumps(secret)[1:-1], quote(secret, safe="")})


def redacted(text: str) -> str:
    """Hide every known secret in a text, and passwords and tokens inside URLs."""
    for secret in _secrets:
        text = text.replace(secret, HIDDEN)
    if "://" in text or "=" in text:
        text = _IN_URLS.sub(lambda found: (found["before"] or found["key"]) + HIDDEN, text)
    return text


def printable(text: str) -> str:
    r"""Replace what controls a terminal by its escape, such as `\x1b`; line feeds and tabs stay."""
    return _CONTROLS.sub(
        lambda found: f"\\x{ord(found[0]):02x}" if found[0] < "\x80" else f"\\u{ord(found[0]):04x}", text
    )


def shown(text: str) -> str:
    """Make a text `redacted` and `printable`."""
    return printable(redacted(text))
