"""servebench: measure what LLM servers really do when many people use them at once."""

from pathlib import Path

__version__ = "0.1.0"
ROOT = Path(__file__).resolve().parents[2]  # of the checkout, where config/ and envs/ are
