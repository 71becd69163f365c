"""The published JSON."""
