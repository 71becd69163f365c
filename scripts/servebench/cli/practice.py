"""Serve the simulator, on which every example of the documentation can be tried without an engine."""

from __future__ import annotations

import asyncio
import socket

from servebench.cli.messages import say
from servebench.engines import simulated
from servebench.faults import Fault

MODEL = "practice"


def command(port: int, slots: int, context: int, decode: dict[str, float], prefill: float) -> int:
    """Serve on 127.0.0.1:`port` until Ctrl-C; return the exit status. Raises Fault for a port that is taken."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError as error:
            raise Fault(f"--port: {port} cannot be used ({error.strerror}); give another") from None
    say(f"a simulated server, which has times but no model, is on http://127.0.0.1:{port}; its model is {MODEL}")
    say(f"try: servebench load --url http://127.0.0.1:{port} --model {MODEL} --users 4 --out first")
    say("Ctrl-C ends it")
    machine = simulated.Machine(
        port=port,
        model=MODEL,
        slots=slots,
        context=context,
        decode_tok_s=decode,
        prefill_tok_s=prefill,
        reply_tokens=(40, 200),
    )
    return asyncio.run(simulated.main(machine))
