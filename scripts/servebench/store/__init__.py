"""Keep measurements and replies: typed, versioned, never overwritten."""
