"""Makes the modules beside this file importable from every test, and Ctrl-C a signal that arrives.

A shell that starts the suite in the background has SIGINT ignored; that is inherited, and tests send it to processes.
"""

import signal

signal.signal(signal.SIGINT, signal.default_int_handler)
