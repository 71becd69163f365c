"""Hold one HTTP exchange as the transport leaves it: unparsed bytes and their arrival times."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(slots=True)
class Exchange:
    """Hold one request and its unparsed response. Times are CLOCK_MONOTONIC ns (time.monotonic_ns).

    `scheduled_ns` is when the user meant to send (its previous reply's end plus its pause, or the arrival
    process's time). `sent_ns` is the moment just before the first byte was written on a ready connection; a resend
    after a stale kept-alive connection keeps the first stamp. A stamp is None where its event never happened.
    """

    request_id: int
    user: int
    process: int
    prompt_id: str
    scheduled_ns: int
    sent_ns: int | None = None
    first_byte_ns: int | None = None
    end_ns: int | None = None
    # (arrival_ns, body bytes after HTTP framing), in order; empty when no body arrived.
    blocks: list[tuple[int, bytes]] = field(default_factory=list)
    http_status: int | None = None
    # True when the HTTP message ended as its framing says it should.
    complete: bool = False
    # How it failed: connect_error, timeout, idle_timeout, reset, truncated, cancelled; None when complete.
    failure: str | None = None
    # The evidence: errno text, exception, or the first 2,000 characters of an HTTP error's body.
    error: str | None = None
    resent: bool = False

    def began_ns(self, by_schedule: bool) -> int:
        """Return the time (ns) that decides the exchange's phase: sent or, with `by_schedule` (open loop, trace), due.

        An exchange that got no connection counts from when it was due: a refused connection is the server's failure.
        """
        return self.scheduled_ns if by_schedule or self.sent_ns is None else self.sent_ns
