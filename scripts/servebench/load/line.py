"""Define the line: the slowest server a person would accept."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

from servebench.faults import Fault


@dataclass(frozen=True)
class Line:
    """Set what a person would accept: a largest TTFT p95, a smallest tokens/s for one user, on enough requests."""

    ttft_p95_s: float = 2.0
    user_tok_s: float = 10.0
    min_targets: int = 20

    def __post_init__(self) -> None:
        for key, value in vars(self).items():
            if not 0 < value < inf:
                raise Fault(f"line.{key}: {value} is not positive and finite")
