"""A double of the Hugging Face Hub: the endpoints that a download needs, as the Hub's documentation and huggingface_hub
2.4 have them. For tests; the Hub itself was not asked.

`/api/models/<repository>[/revision/<revision>]`, `/api/models/<repository>/tree/<commit>` and
`/<repository>/resolve/<commit>/<file>` with ETag, X-Repo-Commit, X-Linked-Etag, X-Linked-Size, ranges and X-Error-Code.
"""

from __future__ import annotations

import hashlib
import http.server
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, ClassVar
from urllib.parse import unquote, urlsplit

REPOSITORY = "someone/tiny"


@dataclass
class Hub:
    """What it holds and how it behaves; `asked` are the requests as (method, path, start of the range, token)."""

    commits: dict[str, dict[str, bytes]]  # commit: its files; the last is what "main" means
    lfs: tuple[str, ...] = (".safetensors", ".gguf")
    listed: dict[str, dict[str, Any]] = field(default_factory=dict)  # what the tree says otherwise, by file
    token: str | None = None  # without it the repository is gated
    cuts: int = 0  # answers with an LFS file that still lose the second half of their body
    gone: bool = False  # every connection is closed unanswered
    gone_after_tree: bool = False
    asked: list[tuple[str, str, int, str | None]] = field(default_factory=list)
    address: str = ""

    def files(self, revision: str) -> tuple[str, dict[str, bytes]]:
        """(commit, its files); KeyError for a revision that is not there."""
        commit = list(self.commits)[-1] if revision == "main" else revision
        return commit, self.commits[commit]

    def entry(self, path: str, content: bytes) -> dict[str, Any]:
        """A file as the tree lists it."""
        oid = hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()
        found: dict[str, Any] = {"type": "file", "oid": oid, "size": len(content), "path": path}
        if path.endswith(self.lfs):
            found["lfs"] = {"oid": hashlib.sha256(content).hexdigest(), "size": len(content), "pointerSize": 134}
        return found | self.listed.get(path, {})


class Handler(http.server.BaseHTTPRequestHandler):
    """Answers for the `hub` of a subclass."""

    hub: ClassVar[Hub]

    def do_HEAD(self) -> None:
        self._answer()

    def do_GET(self) -> None:
        self._answer()

    def _answer(self) -> None:
        hub, path = self.hub, unquote(urlsplit(self.path).path)
        start = int((self.headers.get("Range") or "bytes=0-").removeprefix("bytes=").split("-")[0])
        token = (self.headers.get("Authorization") or "").removeprefix("Bearer ") or None
        hub.asked.append((self.command, path, start, token))
        if hub.gone:
            self.close_connection = True
            return
        if hub.token and token != hub.token:
            self._fail(401, "GatedRepo", "Access to this model is restricted")
            return
        try:
            self._found(path, start)
        except KeyError:
            self._fail(404, "EntryNotFound" if "/resolve/" in path else "RevisionNotFound", "Not found")

    def _found(self, path: str, start: int) -> None:
        hub, rest = self.hub, path.removeprefix("/api/models").removeprefix(f"/{REPOSITORY}")
        parts = rest.strip("/").split("/") if rest else ["revision", "main"]
        commit, files = hub.files(parts[1])
        if parts[0] == "revision":
            self._send(json.dumps({"id": REPOSITORY, "sha": commit, "siblings": []}).encode())
        elif parts[0] == "tree":
            folders = [
                {"type": "directory", "oid": "0" * 40, "size": 0, "path": name.rpartition("/")[0]} for name in files
            ]
            tree = [f for f in folders if f["path"]] + [hub.entry(name, content) for name, content in files.items()]
            self._send(json.dumps(tree).encode())
            hub.gone |= hub.gone_after_tree
        else:
            name = path.partition(f"/resolve/{parts[1]}/")[2]
            content, entry = files[name], hub.entry(name, files[name])
            etag = entry["lfs"]["oid"] if "lfs" in entry else entry["oid"]
            linked = {"X-Linked-Size": str(len(content)), "X-Linked-Etag": f'"{etag}"'} if "lfs" in entry else {}
            self._send(content, start, {"ETag": f'"{etag}"', "X-Repo-Commit": commit, **linked})

    def _send(self, content: bytes, start: int = 0, headers: dict[str, str] | None = None) -> None:
        self.send_response(206 if start else 200)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        if start:
            self.send_header("Content-Range", f"bytes {start}-{len(content) - 1}/{len(content)}")
        self.send_header("Content-Length", str(len(content) - start))
        self.end_headers()
        if self.command == "HEAD":
            return
        body = content[start:]
        if self.hub.cuts and "X-Linked-Size" in (headers or {}):
            self.hub.cuts -= 1
            body = body[: len(body) // 2]
            self.close_connection = True
        self.wfile.write(body)

    def _fail(self, status: int, code: str, message: str) -> None:
        self.send_response(status)
        self.send_header("X-Error-Code", code)
        self.send_header("X-Error-Message", message)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: Any) -> None:
        """Nothing on stderr."""


@contextmanager
def serving(hub: Hub) -> Iterator[Hub]:
    """The double on a port of this machine, `hub.address`."""
    handler = type("HubHandler", (Handler,), {"hub": hub})
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as httpd:
        threading.Thread(target=httpd.serve_forever, args=(0.01,), daemon=True).start()
        hub.address = f"http://127.0.0.1:{httpd.server_address[1]}"
        yield hub
        httpd.shutdown()
