"""Fetch `https://host/path/file`, resuming a download where it was cut."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from urllib.parse import unquote, urlsplit

import httpx

from servebench.machine.infrastructure import InfrastructureError

ATTEMPTS = 5
TIMEOUT = httpx.Timeout(30.0, read=60.0)
REPORT_EVERY_S = 5.0


def fetch(source: str, into: Path, progress: Callable[[str], None]) -> Path:
    """Download `source` into the directory `into`. A partial file of an earlier attempt is continued."""
    target = into / (unquote(Path(urlsplit(source).path).name) or "model")
    cut = target.with_name(f"{target.name}.cut")
    for attempt in range(1, ATTEMPTS + 1):
        try:
            download(source, cut, progress)
            break
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            broken = isinstance(error, httpx.HTTPStatusError) and error.response.status_code >= 500
            passing = broken or isinstance(error, httpx.TransportError)
            if not passing or attempt == ATTEMPTS:
                raise InfrastructureError(f"{source}: {told(error)} (attempt {attempt} of {ATTEMPTS})") from error
            progress(f"{target.name}: {told(error)}; trying again")
            time.sleep(min(2.0**attempt, 30.0))
    return cut.rename(target)


def read(source: str, most_bytes: int, total_s: float, headers: Mapping[str, str]) -> bytes:
    """Return what `source` answers; raises httpx.HTTPError, too where it is longer or takes longer."""
    ends, content = time.monotonic() + total_s, b""
    with httpx.stream("GET", source, headers=dict(headers), follow_redirects=True, timeout=TIMEOUT) as response:
        response.raise_for_status()
        for block in response.iter_bytes():
            content += block
            if len(content) > most_bytes:
                raise httpx.DecodingError(f"{source} is longer than {most_bytes:,} bytes", request=response.request)
            if time.monotonic() > ends:
                raise httpx.ReadTimeout(f"{source} did not end in {total_s:g} s", request=response.request)
    return content


def told(error: Exception) -> str:
    """Return the first line of an error's text, or its class name when it has no text."""
    return (str(error) or type(error).__name__).splitlines()[0]


def download(url: str, cut: Path, progress: Callable[[str], None]) -> None:
    """Append to `cut` the bytes it lacks, in one attempt; start over when the remote file has changed (If-Range)."""
    validator_file = cut.with_name(f"{cut.name}.validator")
    have = cut.stat().st_size if cut.exists() else 0
    validator = validator_file.read_text(encoding="utf-8") if validator_file.exists() else ""
    headers = {"Range": f"bytes={have}-", "If-Range": validator} if have and validator else {}
    with httpx.stream("GET", url, headers=headers, follow_redirects=True, timeout=TIMEOUT) as response:
        if headers and response.status_code == httpx.codes.REQUESTED_RANGE_NOT_SATISFIABLE:
            validator_file.unlink()  # the file was complete: only the end of the download was missed
            return
        response.raise_for_status()
        resumed = response.status_code == httpx.codes.PARTIAL_CONTENT
        if not resumed:
            have = 0
        # A weak ETag may not be used with If-Range (RFC 9110, 13.1.5).
        etag = response.headers.get("etag", "")
        validator_file.write_text("" if etag.startswith("W/") else etag, encoding="utf-8")
        total = have + int(response.headers.get("content-length", 0))
        told = time.monotonic()
        with cut.open("ab" if resumed else "wb") as file:
            for block in response.iter_raw():  # as it arrives: with larger blocks, a cut would lose the last
                file.write(block)
                if time.monotonic() - told >= REPORT_EVERY_S:
                    told = time.monotonic()
                    progress(f"{cut.stem}: {file.tell() / 2**20:,.0f} of {total / 2**20:,.0f} MiB")
    validator_file.unlink()
