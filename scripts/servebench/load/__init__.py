"""Generate load: users, windows, worker processes, and a transport that stamps bytes as they arrive.

Knows HTTP and the OpenAI chat stream; knows nothing of engines or of the workflow. Needs only the base
dependencies of the package, so that `servebench load` runs anywhere.
"""

from __future__ import annotations
