"""Name the ways to load a server, one row each.

What a mode does stands in `run` and `worker`, how long it takes in `servebench.outlook.duration`.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Mode:
    """One way to load a server.

    `needs` is the workload's key without which the mode cannot run. A mode that `ends_itself` has neither warm-up nor
    window: every request is a target, and its beginning and end are no steady state. In a `scheduled` mode a schedule
    decides when to send, not the reply before: latency starts when a request was due.
    """

    needs: str | None = None
    ends_itself: bool = False
    scheduled: bool = False

    @property
    def in_turns(self) -> bool:
        """Users wait for their replies and start spread over one answer's length, and a warm-up awaits them all."""
        return not self.ends_itself and not self.scheduled


MODES = {
    "closed": Mode(),
    "count": Mode(needs="requests", ends_itself=True),
    "open": Mode(needs="rate", scheduled=True),
    "conversation": Mode(needs="turns"),
    "trace": Mode(needs="trace", ends_itself=True, scheduled=True),
    "shared-prefix": Mode(needs="shared_prefix_tokens"),
}
