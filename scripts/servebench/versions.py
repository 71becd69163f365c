"""Version numbers that are raised by hand when what is measured or asked changes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

# Raised by hand when a change alters *what is measured*; results of another protocol are measured again.
PROTOCOL: int = 1


# Bumped by hand when what is asked changes (the wording of a prompt, sampling); then everything is asked again.
PROMPTS = 1


# Greedy, and said in full: a server's own defaults (a model's generation_config.json) decide nothing.
SAMPLING: Mapping[str, Any] = {"temperature": 0, "top_p": 1.0, "top_k": 1}
