"""Define the base of all faults meant for a user; any other exception that escapes is a bug."""


class Fault(Exception):
    """Say what is wrong and how to remedy it, in one line (or one line for each fault)."""
