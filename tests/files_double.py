"""Serve the files of a folder over HTTP, with ETags and ranges."""

from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path

from http_double import CLOSE, HttpDouble, Request, Step


class FilesDouble(HttpDouble):
    """Cuts the connection after `cut` bytes of a file, `cuts` times. `asked`: path and first byte of each of its files
    that was asked for."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.cut = self.cuts = 0
        self.asked: list[tuple[str, int]] = []

    def respond(self, request: Request) -> Iterator[Step]:
        path = self.folder / request.path.lstrip("/")
        if path.is_dir():
            yield request.response(b"<html>a page that lists the folder</html>", headers={"content-type": "text/html"})
        elif not path.is_file():
            yield request.response(b"", 404)
        else:
            self.asked.append((request.path, request.start))
            content = path.read_bytes()
            response = request.part(content, {"etag": f'"{sha256(content).hexdigest()}"'})
            if self.cuts:
                self.cuts -= 1
                yield response[: response.index(b"\r\n\r\n") + 4 + self.cut]
                yield CLOSE
            yield response
