"""The load generator: users, windows, worker processes, and a transport that stamps bytes as they arrive.

Knows HTTP and the OpenAI chat stream; knows nothing of engines or of the workflow. Needs only the base
dependencies of the package, so that `servebench load` runs anywhere.
"""

# Raised by hand when a change alters *what is measured*; results of another protocol are measured again.
PROTOCOL: int = 1
