"""Version numbers that are raised by hand when what is measured or asked changes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

# Raised by hand when a change alters *what is measured*; results of another PROTOCOL are measured again.
# 1: each measurement drew an order of documents of its own; every round ran the settings in the same order.
# 2: in a round all settings get the same documents in the same order; even rounds run the settings backwards. Messages,
#    conversations and requests of traces have number lines too.
PROTOCOL: int = 2


# Raised by hand when a change alters *what is asked* (a prompt's wording, sampling); then everything is asked again.
PROMPTS = 1


# Greedy, and given in full, so that a server's own defaults (a model's generation_config.json) decide nothing.
SAMPLING: Mapping[str, Any] = {"temperature": 0, "top_p": 1.0, "top_k": 1}
