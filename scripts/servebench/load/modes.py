"""Define the load modes, one row each.

`run` and `worker` say what each mode does, `servebench.outlook.duration` how long it takes.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Mode:
    """Describe one load mode.

    `needs` is a workload key that the mode requires, `ignores` are keys that it has no use for. A mode that
    `ends_itself` has neither warm-up nor window: every request is a target, and start and end of the load are not
    steady. In a `scheduled` mode requests are sent when a schedule says so, not when the reply before has ended, and
    latency counts from when a request was due.
    """

    needs: str | None = None
    ignores: tuple[str, ...] = ()
    ends_itself: bool = False
    scheduled: bool = False

    @property
    def in_turns(self) -> bool:
        """Return whether each user waits for a reply before sending again.

        Such users start spread out, and the warm-up waits for every user's first request."""
        return not self.ends_itself and not self.scheduled

    @property
    def by_users(self) -> bool:
        """Return whether more users are more load; a rate or a trace sends the same whatever their number."""
        return not self.scheduled or self.needs == "user_rate"


_OPEN = ("rate", "user_rate", "arrivals")
_TRACE = ("trace", "trace_speed", "trace_first_s")

MODES = {
    "closed": Mode(ignores=("requests", "turns", *_OPEN, *_TRACE)),
    "count": Mode(needs="requests", ignores=("turns", "min_targets", *_OPEN, *_TRACE), ends_itself=True),
    "open": Mode(needs="rate", ignores=("requests", "user_rate", "turns", "think", *_TRACE), scheduled=True),
    "open-users": Mode(needs="user_rate", ignores=("requests", "rate", "turns", "think", *_TRACE), scheduled=True),
    "conversation": Mode(needs="turns", ignores=("requests", *_OPEN, *_TRACE)),
    "trace": Mode(
        needs="trace",
        ignores=(
            *("requests", "turns", "think", "min_targets", *_OPEN),
            *("system", "instruction", "shared_prefix_tokens"),
        ),
        ends_itself=True,
        scheduled=True,
    ),
    "shared-prefix": Mode(needs="shared_prefix_tokens", ignores=("requests", "turns", *_OPEN, *_TRACE)),
}
