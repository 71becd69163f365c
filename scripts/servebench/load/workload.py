"""Define how a server is loaded."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, get_type_hints

import msgspec

from servebench.faults import Fault
from servebench.load.jsonl import sendable
from servebench.load.modes import MODES, Mode

ARRIVALS = ("poisson", "constant")
# Bounds of times (s) and rates: 1 ns is the clock's unit, and 1e9 s (31 years) in ns fit into its 64 bits.
LEAST, MOST = 1e-9, 1e9


@dataclass(frozen=True, kw_only=True)
class Workload:
    """Describe how a server is loaded. Times are in seconds; None means "not used".

    Modes: `closed` (each user sends, waits for the whole reply, pauses `think`, sends the next; window_s after the
    warm-up), `count` (`requests` completions at a fixed concurrency, all at once, timed as a whole), `open`
    (`rate` requests/s by `arrivals`, whatever the server does), `open-users` (the same with `user_rate` requests/s for
    each user, so that more users are more load), `conversation` (as closed; each user holds
    conversations of `turns` turns whose history grows), `trace` (recorded arrivals, `servebench.load.traces`) and
    `shared-prefix` (as closed, every request behind one system prompt of about `shared_prefix_tokens` tokens; that
    number may be set for the other modes too).
    """

    mode: str = "closed"
    prompts: str = "en-short"
    # Tokens of every prompt, chat template included, and of every reply: 1024, or a distribution as for `think`.
    prompt_tokens: int | str | None = None
    reply_tokens: int | str | None = None
    max_tokens: int = 256
    temperature: float = 0.0
    top_p: float = 1.0
    seed: int = 0
    warmup_s: float = 15.0
    window_s: float = 60.0
    # From `sent` to the end of the reply.
    timeout_s: float = 120.0
    # Longest silence inside a reply; comment lines (pings) do not break a silence.
    idle_timeout_s: float | None = None
    connect_timeout_s: float = 10.0
    # The window stays open until this many targets were sent (59 passes of 59 give 95 % confidence in the p95), unless
    # every request fails.
    min_targets: int | None = None
    requests: int | None = None
    rate: float | None = None
    user_rate: float | None = None
    arrivals: str = "poisson"
    # "2", "exp:5", "uniform:2,8", "lognormal:5,0.5" (mean seconds, sigma of the logarithm).
    think: str | None = None
    turns: int | None = None
    trace: str | None = None
    # How many times as fast the trace runs, and how many of its first seconds.
    trace_speed: float = 1.0
    trace_first_s: float | None = None
    shared_prefix_tokens: int | None = None
    system: str | None = None
    instruction: str | None = None
    # A line with a number of its own in every request, so that no prompt is served from the server's cache.
    number_lines: bool = True
    # A tokenizer.json, or a folder that holds one: counts tokens where the server sends no usage.
    tokenizer: str | None = None
    # Seconds over which users start; None: the duration of one answer, measured first.
    spread_s: float | None = None
    keep_text: bool = False

    def __post_init__(self) -> None:
        if self.mode not in MODES:
            raise Fault(f"workload.mode: {self.mode!r} is not one of {', '.join(MODES)}")
        if self.arrivals not in ARRIVALS:
            raise Fault(f"workload.arrivals: {self.arrivals!r} is not one of {', '.join(ARRIVALS)}")
        for least, keys in _LEAST.items():
            for key in keys:
                value = getattr(self, key)
                if value is not None and not least <= value <= MOST:
                    wanted = "above 0, up" if least == LEAST else f"from {least:g}"
                    raise Fault(f"workload.{key}: {value} is not {wanted} to {MOST:g}")
        if self.top_p > 1:
            raise Fault(f"workload.top_p: {self.top_p} is not a probability; give 1 or less")
        needed = self.way.needs
        if needed and getattr(self, needed) is None:
            raise Fault(f"workload.{needed}: is missing, and mode {self.mode!r} needs it; give it")
        if self.prompt_tokens is not None and (self.mode == "trace" or self.shared_prefix_tokens is not None):
            other = (
                "a trace has prompts of its own" if self.mode == "trace" else "a shared prefix would make them longer"
            )
            raise Fault(f"workload.prompt_tokens: {self.prompt_tokens}: {other}; leave out one of the two")
        if self.reply_tokens is not None and self.mode == "trace":
            raise Fault("workload.reply_tokens: a trace has lengths of its own; leave it out")
        for key, value in vars(self).items():
            sendable(f"workload.{key}", value)

    @property
    def way(self) -> Mode:
        """Return the mode's row of MODES."""
        return MODES[self.mode]

    def rate_of(self, users: int) -> float:
        """Return the requests per second of an open loop with so many users."""
        rate = self.rate if self.user_rate is None else self.user_rate * users
        assert rate is not None
        return rate

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Workload:
        """Make a workload from a configuration's mapping, without converting values.

        Raises Fault naming the first unknown key or value of a wrong type.
        """
        types = get_type_hints(cls)
        for key, value in values.items():
            if key not in types:
                raise Fault(f"workload.{key}: is not a known key; known: {', '.join(sorted(types))}")
            try:
                msgspec.convert(value, types[key])
            except msgspec.ValidationError as error:
                raise Fault(f"workload.{key}: {value!r:.60} has the wrong type: {error}") from None
        return cls(**values)

    def to_dict(self) -> dict[str, Any]:
        """Return the workload as JSON-able values."""
        return asdict(self)


_LEAST = {
    0: ("temperature", "top_p", "warmup_s", "spread_s"),
    LEAST: (
        *("window_s", "timeout_s", "idle_timeout_s", "connect_timeout_s"),
        *("rate", "user_rate", "trace_speed", "trace_first_s"),
    ),
    1: ("max_tokens", "min_targets", "requests", "turns", "shared_prefix_tokens"),
}
