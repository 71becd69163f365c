"""servebench: measure what LLM servers really do when many people use them at once."""

__version__ = "0.1.0"
