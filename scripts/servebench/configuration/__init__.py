"""Turn YAML into a plan; report each fault as one line that names file, key, value and remedy."""

from servebench.configuration.build import load, read
from servebench.configuration.files import engine_pin, prompts_digest, prompts_path, trace_digest
from servebench.configuration.overriding import overrides
from servebench.configuration.reading import ConfigError

__all__ = ["ConfigError", "engine_pin", "load", "overrides", "prompts_digest", "prompts_path", "read", "trace_digest"]
