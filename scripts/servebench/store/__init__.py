"""Measurements and replies as kept: typed, versioned, never overwritten."""
