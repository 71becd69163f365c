"""Read a chat completion, an event of a stream or a whole document, for the load, the probe and the evaluations.

Servers send different shapes. All of these are read alike:

- `content` is a string, or a list of parts whose texts are joined;
- reasoning is kept apart from the answer: under `reasoning`, `reasoning_content` or `thinking`, or as parts of type
`reasoning` or `thinking`; `usage.completion_tokens_details.reasoning_tokens` is its number of tokens;
- a `finish_reason` of "", "null" or "None" counts as absent;
- bytes and escapes that are not a Unicode character (a lone surrogate, a character cut in two) become U+FFFD.

Any other shape raises ReplyError, which says what is wrong and where.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Annotated, Any

import httpx
import msgspec

from servebench.machine.untrusted import redacted, shown

EVIDENCE_CHARS = 2_000
# Reasons by which vLLM and SGLang say, in an otherwise ordinary last chunk, that the server gave up.
BROKEN_FINISHES = ("abort", "error")
# Values that servers send before the reply has finished (Ollama and SGLang "", KoboldCpp "null").
_UNFINISHED = (None, "", "null", "None")
# A server's token count: below 0, or more than the records can hold, is an error.
Count = Annotated[int, msgspec.Meta(ge=0, le=2**31 - 1)]


class ReplyError(ValueError):
    """Report that a reply is not a chat completion, or says that the server failed; the message is the evidence.

    `status` is the HTTP status when that is an error status, else None."""

    def __init__(self, message: str, status: int | None = None) -> None:
        super().__init__(message)
        self.status = status


class _Thought(msgspec.Struct):
    text: str = ""


Thoughts = str | list[_Thought] | None


class _TextPart(msgspec.Struct, tag="text"):
    text: str


class _ReasoningPart(msgspec.Struct, tag="reasoning"):
    reasoning: Thoughts = None
    thinking: Thoughts = None
    summary: Thoughts = None
    text: Thoughts = None


class _ThinkingPart(_ReasoningPart, tag="thinking"):
    pass


Parts = str | list[_TextPart | _ReasoningPart | _ThinkingPart] | None


class Message(msgspec.Struct, gc=False):
    """Hold a delta of a stream or the message of a document."""

    content: Parts = None
    reasoning: Thoughts = None
    reasoning_content: Thoughts = None
    thinking: Thoughts = None
    tool_calls: list[msgspec.Raw] | None = None

    def said(self) -> tuple[str | None, str]:
        """Return the texts (answer, reasoning); the answer is None where the message has no content."""
        content, reasoning = self.content, self.reasoning or self.reasoning_content or self.thinking
        thoughts = _text(reasoning) if reasoning else ""
        if content is None or isinstance(content, str):
            return content, thoughts
        for part in content:
            if not isinstance(part, _TextPart):
                thoughts += _text(part.reasoning or part.thinking or part.summary or part.text)
        return "".join(part.text for part in content if isinstance(part, _TextPart)), thoughts


class Choice(msgspec.Struct, gc=False):
    delta: Message | None = None
    message: Message | None = None
    finish_reason: str | None = None

    @property
    def finished(self) -> str | None:
        """Return why the model stopped, or None while it has not."""
        return None if self.finish_reason in _UNFINISHED else self.finish_reason


class _PromptDetails(msgspec.Struct, gc=False):
    cached_tokens: Count | None = None


class _CompletionDetails(msgspec.Struct, gc=False):
    reasoning_tokens: Count | None = None


class Usage(msgspec.Struct, gc=False):
    prompt_tokens: Count | None = None
    completion_tokens: Count | None = None
    prompt_tokens_details: _PromptDetails | None = None
    completion_tokens_details: _CompletionDetails | None = None

    @property
    def cached_tokens(self) -> int | None:
        return self.prompt_tokens_details.cached_tokens if self.prompt_tokens_details else None

    @property
    def reasoning_tokens(self) -> int | None:
        return self.completion_tokens_details.reasoning_tokens if self.completion_tokens_details else None


class Event(msgspec.Struct, gc=False):
    """Hold one event of a stream, or a whole document."""

    choices: list[Choice] | None = None
    usage: Usage | None = None
    timings: msgspec.Raw = msgspec.Raw()
    error: Any = None
    object: str | None = None

    @property
    def failed(self) -> bool:
        """Return whether the event reports that the server failed."""
        return self.error is not None or self.object == "error"


_event = msgspec.json.Decoder(Event)
_events = msgspec.json.Decoder(list[Event])


def decode(data: bytes) -> Event | None:
    """Read one JSON object; None when `data` is not whole JSON. Raises ReplyError for JSON of another shape."""
    try:
        try:
            return _event.decode(data)
        except msgspec.ValidationError:
            raise
        except msgspec.DecodeError as error:
            # Then mending adds nothing, unless half a surrogate pair misses the other half beyond the end.
            if "truncated" in str(error) and not _ESCAPES.search(data[-12:]):
                return None
            return _event.decode(_mended(data))
    except (msgspec.ValidationError, RecursionError) as error:
        raise ReplyError(f"{error}: {evidence(data)}") from None
    except msgspec.DecodeError:
        return None


def decode_all(lines: list[bytes]) -> list[Event] | None:
    """Read lines of one JSON object each, all at once; None where `decode` would not read each of them as it stands."""
    try:
        events = _events.decode(b"[%b]" % b",".join(lines))
    except (msgspec.DecodeError, RecursionError):
        return None
    return events if len(events) == len(lines) else None


@dataclass(frozen=True, slots=True)
class Completion:
    """Hold a whole reply. `text` is None where the message has no content; `reasoning` is "" without reasoning."""

    text: str | None
    reasoning: str
    finish_reason: str | None
    prompt_tokens: int | None
    completion_tokens: int | None
    reasoning_tokens: int | None


def completion(response: httpx.Response, content: bytes) -> Completion:
    """Read the response to a request that was not streamed; `content` is its body.

    Raises ReplyError for everything that is not a chat completion; its message begins with `refusal` for an error
    status.
    """
    said, status = evidence(content), response.status_code
    if not response.is_success:
        url, place = str(response.request.url.copy_with(query=None)), response.headers.get("location", "")
        raise ReplyError(f"{refusal(status, url, place)}: {said}", status)
    event = decode(content)
    if event is None or event.failed or not event.choices:
        raise ReplyError(f"not a chat completion: {said}")
    choice, usage = event.choices[0], event.usage or Usage()
    if choice.message is None:
        raise ReplyError(f"not a chat completion, it has no message: {said}")
    if choice.finished in BROKEN_FINISHES:
        raise ReplyError(f"finish_reason {choice.finished}: {said}")
    text, reasoning = choice.message.said()
    return Completion(
        text=None if text is None else redacted(text),
        reasoning=redacted(reasoning),
        finish_reason=None if choice.finished is None else shown(choice.finished[:EVIDENCE_CHARS]),
        prompt_tokens=usage.prompt_tokens,
        completion_tokens=usage.completion_tokens,
        reasoning_tokens=usage.reasoning_tokens,
    )


def refusal(status: int, url: str, location: str) -> str:
    """Say which HTTP status came in place of a 2xx, where it points ("": nowhere), and from which address."""
    return shown(f"HTTP {status}{f' (Location {location:.500})' if location else ''} for POST {url}")


def evidence(content: bytes) -> str:
    """Return the beginning of a response, as text without secrets and control characters."""
    return shown(content[: 4 * EVIDENCE_CHARS].decode(errors="replace").strip()[:EVIDENCE_CHARS])


def _text(thoughts: Thoughts) -> str:
    if isinstance(thoughts, list):
        return "".join(thought.text for thought in thoughts)
    return thoughts or ""


# An escaped backslash, a whole surrogate pair, or a lone surrogate.
_ESCAPES = re.compile(
    rb"(\\\\|\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2})|\\u[dD][89a-fA-F][0-9a-fA-F]{2}"
)


def _mended(data: bytes) -> bytes:
    """Replace bytes and escapes in `data` that are not a Unicode character by U+FFFD."""
    return _ESCAPES.sub(lambda found: found[1] or rb"\ufffd", data.decode(errors="replace").encode())
