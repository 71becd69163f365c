"""A double of an environment's python that runs `-m sglang.launch_server`, for machines without SGLang.

Copied from a run of SGLang 0.5.23 on a CPU: its flags, /get_server_info, /v1/models, /metrics, /health that is 503
until warm. Slots, queue and speed are the simulator's. Not shown: SGLang's scheduler, cache, or replies.
"""

import argparse
import asyncio
import sys

from servebench.engines import simulated


def main() -> None:
    """Take SGLang's arguments and serve."""
    assert sys.argv[1:3] == ["-m", "sglang.launch_server"], sys.argv
    parser = argparse.ArgumentParser(allow_abbrev=False)
    for name in ("--model-path", "--served-model-name", "--host", "--device"):
        parser.add_argument(name)
    for name in ("--port", "--max-running-requests", "--context-length", "--max-total-tokens"):
        parser.add_argument(name, type=int)
    parser.add_argument("--enable-metrics", action="store_true")
    given = parser.parse_args(sys.argv[3:])

    class Connection(simulated.Connection):
        """Add SGLang's own endpoints to the simulator's."""

        def on_message_complete(self) -> None:
            if not self.engine.healthy:
                super().on_message_complete()
            elif self.path == "/get_server_info":
                self.answer(
                    200,
                    {
                        "version": "0.5.23-double",
                        "max_running_requests": self.engine.slots,
                        "context_length": given.context_length,
                        "max_total_num_tokens": given.max_total_tokens or 16384,
                        "model_path": given.model_path,
                        "disable_radix_cache": True,
                    },
                )
            elif self.path == "/metrics":
                content = f'sglang:num_running_reqs{{model_name="x"}} {len(self.engine.running)}.0\n'.encode()
                head = f"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: {len(content)}\r\n\r\n"
                self.transport.write(head.encode() + content)
            else:
                super().on_message_complete()

    simulated.Connection = Connection
    machine = {"port": given.port, "model": given.served_model_name, "slots": given.max_running_requests}
    machine |= {"context": given.context_length, "decode_tok_s": {"1": 40, "2": 70}, "prefill_tok_s": 2000}
    machine |= {"load_s": 0.3}
    sys.exit(asyncio.run(simulated.main(simulated.Machine(**machine))))


main()
