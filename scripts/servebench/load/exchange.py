"""Hold one HTTP exchange as the transport leaves it: bytes and when they came, nothing parsed."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(slots=True)
class Exchange:
    """One request and what came back, unparsed. Times are CLOCK_MONOTONIC ns (time.monotonic_ns).

    `scheduled_ns` is when the user meant to send (its previous reply's end plus its pause, or the arrival
    process's time); `sent_ns` is the moment just before the first byte was written on a ready connection, and a
    resend on a stale kept-alive connection keeps the first stamp. None where it never came to that.
    """

    request_id: int
    user: int
    process: int
    prompt_id: str
    scheduled_ns: int
    sent_ns: int | None = None
    first_byte_ns: int | None = None
    end_ns: int | None = None
    # (arrival_ns, body bytes after HTTP framing), in order; empty when nothing came.
    blocks: list[tuple[int, bytes]] = field(default_factory=list)
    http_status: int | None = None
    # True when the HTTP message ended as its framing says it should.
    complete: bool = False
    # As the transport saw it: connect_error, timeout, idle_timeout, reset, truncated, cancelled; None when complete.
    failure: str | None = None
    # The evidence: errno text, exception, or the first 2,000 characters of an HTTP error's body.
    error: str | None = None
    resent: bool = False

    def began_ns(self, by_schedule: bool) -> int:
        """Return what decides the exchange's phase: when it was sent or, with `by_schedule` (open loop, trace), due.
        Without a connection that is when it was due: a connection refused is the server's failure."""
        return self.scheduled_ns if by_schedule or self.sent_ns is None else self.sent_ns
