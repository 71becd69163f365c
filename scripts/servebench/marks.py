"""Define marks: reasons why a measurement, row or target failed or cannot be trusted fully.

`servebench.words` says them in both languages.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import msgspec

# Every kind with the names of its values. Stored records and published files hold both, so neither is ever renamed.
KINDS: Mapping[str, tuple[str, ...]] = {
    # a measurement (load.doubts, load.rows, tables.measured, tables.watched)
    "beyond_calibration": ("users", "calibrated_users"),
    "client_busy": ("cpu_ratio", "limit"),
    "all_failed": ("requests", "statuses"),
    "requests_failed": ("failures", "requests", "statuses"),
    "warmup_failed": ("failures", "requests"),
    "left_open": ("replies",),
    "nothing_sent": (),
    "no_output": (),
    "silent_first_half": (),
    "unsteady_window": ("ratio",),
    "backlog_grows": ("start", "end", "due"),
    "reasoning_seen": ("replies",),
    "clumped_stream": ("replies", "requests"),
    "tokens_are_chunks": ("replies",),
    "many_tokens_a_chunk": ("tokens",),
    "cached_beyond_prompt": ("replies",),
    "output_beyond_limit": ("replies", "max_tokens"),
    "impossible_timings": ("replies",),
    "prompts_of_other_length": ("prompts", "requests", "tokens"),
    "replies_ended_early": ("replies", "requests"),
    "prompts_shrank": ("turns",),
    "prompts_cut": ("prompts",),
    "context_shifted": ("replies",),
    "stopped_early": ("requests",),
    "foreign_use": ("samples", "share_percent"),
    "device_throttled": ("throttles", "samples"),
    "memory_errors": ("errors",),
    "server_kept_from_cpus": ("kept_s", "window_s"),
    "client_kept_from_cpus": ("kept_s", "window_s"),
    # the rounds of a setting at a number of users (tables.derived)
    "missing_round": ("measured", "rounds"),
    "few_requests": ("requests",),
    "unstable_rounds": ("figure", "first", "second"),
    "mixed_machines": (),
    "mixed_devices": ("devices",),
    "mixed_engine_versions": ("found",),
    "mixed_engine_builds": ("found",),
    "mixed_engine_pins": ("found",),
    "mixed_model_files": ("found",),
    "other_prompt_tokens": ("than", "tokens"),
    "foreign_use_unknown": (),
    "foreign_use_partly_unknown": ("known", "samples"),
    # a claim (verdicts)
    "cached_prompts": ("percent",),
    "short_replies": ("tokens",),
    "discarded_before": ("setting", "measurements"),
    "measured_unlike": ("first", "others", "differs"),
    "reply_lengths_differ": ("shortest", "shortest_tokens", "longest", "longest_tokens"),
    # an evaluated target (tables.evaluated)
    "unanswered": ("unanswered", "asked"),
    "other_prompts": (),
    "other_machine": (),
    "without_answer": ("task", "without", "replies", "outcomes"),
    "no_load": ("requests", "reason"),
    "load_failed": ("failures", "requests", "reason"),
    # why a measurement or an evaluation failed
    "failed": ("reason",),
    "not_as_asked": ("what", "asked", "got"),
    "no_longer_as_asked": ("what", "asked", "got"),
    "foreign_use_every_time": ("attempts",),
    "not_tried": ("died_at",),
}


class Mark(msgspec.Struct, frozen=True):
    """Hold one reason: a kind of `KINDS` with that kind's values (JSON). Raises ValueError for anything else."""

    kind: str
    values: Mapping[str, Any] = {}

    def __post_init__(self) -> None:
        if self.kind not in KINDS or set(self.values) != set(KINDS[self.kind]):
            raise ValueError(f"{self.kind}: {sorted(self.values)}: is not a mark of servebench.marks.KINDS")

    def __hash__(self) -> int:
        return hash((self.kind, self.text))

    @property
    def text(self) -> str:
        """Encode the values as JSON, in the order of `KINDS`."""
        return json.dumps({name: self.values[name] for name in KINDS[self.kind]}, ensure_ascii=False, allow_nan=False)


def mark(kind: str, **values: Any) -> Mark:
    """Make a mark of this kind."""
    return Mark(kind, values)
