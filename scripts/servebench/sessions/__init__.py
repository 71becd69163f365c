"""Run one job with an engine, from its spec to the store."""
