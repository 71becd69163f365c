"""A double of the Hugging Face Hub: the endpoints that a download needs, as the Hub's documentation and huggingface_hub
2.4 have them. For tests; the Hub itself was not asked.

`/api/models/<repository>[/revision/<revision>]`, `/api/models/<repository>/tree/<commit>` and
`/<repository>/resolve/<commit>/<file>` with ETag, X-Repo-Commit, X-Linked-Etag, X-Linked-Size, ranges and X-Error-Code.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote, urlsplit

from http_double import CLOSE, HttpDouble, Request, Step

REPOSITORY = "someone/tiny"


@dataclass
class Hub(HttpDouble):
    """Hold the Hub's content and behaviour; `asked` lists requests as (method, path, start of the range, token)."""

    commits: dict[str, dict[str, bytes]]  # commit: its files; the last is what "main" means
    lfs: tuple[str, ...] = (".safetensors", ".gguf")
    listed: dict[str, dict[str, Any]] = field(default_factory=dict)  # what the tree says otherwise, by file
    token: str | None = None  # without it the repository is gated
    cuts: int = 0  # answers with an LFS file that still lose the second half of their body
    gone: bool = False  # every connection is closed unanswered
    gone_after_tree: bool = False
    asked: list[tuple[str, str, int, str | None]] = field(default_factory=list)

    def files(self, revision: str) -> tuple[str, dict[str, bytes]]:
        """Return (commit, its files). Raises KeyError for an unknown revision."""
        commit = list(self.commits)[-1] if revision == "main" else revision
        return commit, self.commits[commit]

    def entry(self, path: str, content: bytes) -> dict[str, Any]:
        """Make the tree's entry of a file."""
        oid = hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()
        found: dict[str, Any] = {"type": "file", "oid": oid, "size": len(content), "path": path}
        if path.endswith(self.lfs):
            found["lfs"] = {"oid": hashlib.sha256(content).hexdigest(), "size": len(content), "pointerSize": 134}
        return found | self.listed.get(path, {})

    def respond(self, request: Request) -> Iterator[Step]:
        path, start = unquote(urlsplit(request.path).path), request.start
        token = request.headers.get("authorization", "").removeprefix("Bearer ") or None
        self.asked.append((request.method, path, start, token))
        if self.gone:
            yield CLOSE
        elif self.token and token != self.token:
            yield failed(request, 401, "GatedRepo", "Access to this model is restricted")
        else:
            try:
                yield from self._found(request, path, start)
            except KeyError:
                yield failed(request, 404, "EntryNotFound" if "/resolve/" in path else "RevisionNotFound", "Not found")

    def _found(self, request: Request, path: str, start: int) -> Iterator[Step]:
        rest = path.removeprefix("/api/models").removeprefix(f"/{REPOSITORY}")
        parts = rest.strip("/").split("/") if rest else ["revision", "main"]
        commit, files = self.files(parts[1])
        if parts[0] == "revision":
            yield request.response({"id": REPOSITORY, "sha": commit, "siblings": []})
        elif parts[0] == "tree":
            folders = [
                {"type": "directory", "oid": "0" * 40, "size": 0, "path": name.rpartition("/")[0]} for name in files
            ]
            tree = [f for f in folders if f["path"]] + [self.entry(name, content) for name, content in files.items()]
            yield request.response(tree)
            self.gone |= self.gone_after_tree
        else:
            name = path.partition(f"/resolve/{parts[1]}/")[2]
            content, entry = files[name], self.entry(name, files[name])
            etag = entry["lfs"]["oid"] if "lfs" in entry else entry["oid"]
            linked = {"x-linked-size": str(len(content)), "x-linked-etag": f'"{etag}"'} if "lfs" in entry else {}
            response = request.part(content, {"etag": f'"{etag}"', "x-repo-commit": commit, **linked})
            if self.cuts and linked and request.method == "GET":
                self.cuts -= 1
                yield response[: len(response) - (len(content) - start) // 2]
                yield CLOSE
            else:
                yield response


def failed(request: Request, status: int, code: str, message: str) -> bytes:
    """Make an error response with the Hub's error code."""
    return request.response(b"", status, {"x-error-code": code, "x-error-message": message})
