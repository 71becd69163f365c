"""Tables of the evaluations."""
