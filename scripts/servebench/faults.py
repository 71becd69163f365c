"""The one base of all faults that carry a sentence for the user; anything else that is raised is a bug."""


class Fault(Exception):
    """What is wrong and what to do about it, in one line (or one line for each fault)."""
