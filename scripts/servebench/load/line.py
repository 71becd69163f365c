"""The line: what a person would accept of a server."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

from servebench.faults import Fault


@dataclass(frozen=True)
class Line:
    """What a person would accept: TTFT p95 at most, tokens/s for one user at least, on enough requests."""

    ttft_p95_s: float = 2.0
    user_tok_s: float = 10.0
    min_targets: int = 20

    def __post_init__(self) -> None:
        for key, value in vars(self).items():
            if not 0 < value < inf:
                raise Fault(f"line.{key}: {value} is not positive and finite")
