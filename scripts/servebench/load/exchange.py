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
    # True when the HTTP message did not end after [DONE]; then the exchange ended with the last bytes that came.
    left_open: bool = False
    # The answer in place of a 2xx: "HTTP 307 (Location …) for POST URL".
    refusal: str | None = None
    # How it failed: connect_error, timeout, idle_timeout, reset, truncated, cancelled; None when complete or left open.
    failure: str | None = None
    # The evidence: errno text or exception.
    error: str | None = None
    resent: bool = False
    # Whether the exchange failed, the reply inside a 200 included; known when it has ended (load.users).
    failed: bool = False

    def began_ns(self, by_schedule: bool) -> int:
        """Return the time (ns) that decides the exchange's phase: sent or, with `by_schedule` (open loop, trace), due.

        An exchange that got no connection counts from when it was due: a refused connection is the server's failure.
        """
        return self.scheduled_ns if by_schedule or self.sent_ns is None else self.sent_ns
