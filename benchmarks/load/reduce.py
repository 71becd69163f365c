"""What reading a large measurement costs: 60 s of 256 users at 50 tok/s (768,000 chunks of about 200 bytes).

    python benchmarks/load/reduce.py

Makes the bytes as a server's stream would leave them in a worker's memory, then reads them into the two tables and
reduces these to figures, on one core. Prints CPU seconds and the largest resident memory of the process, the bytes
included; exits 1 beyond the bounds or when a figure is not what the stream was made to be.
"""

import json
import os
import resource
import sys
import time
from collections.abc import Iterator

from servebench.load.exchange import Exchange
from servebench.load.figures import measurement_figures
from servebench.load.line import Line
from servebench.load.measurement import LoadMeta
from servebench.load.stream import to_tables

USERS, TOK_S, WINDOW_S, TOKENS, TTFT_MS = 256, 50, 60, 128, 50
BOUND_S, BOUND_MB = 5.0, 500.0
START_NS = 10**15
MS, S = 10**6, 10**9

_CHUNK = (
    'data: {"id":"chatcmpl-0b5a2c3d4e5f60718293a4b5c6d7e8f9","object":"chat.completion.chunk","created":1780000000,'
    '"model":"qwen3-14b","choices":[{"index":0,"delta":{"content":"%s"},"logprobs":null,"finish_reason":null}]}\n\n'
)
_LAST = (
    b'data: {"choices":[{"index":0,"delta":{},"finish_reason":"length"}]}\n\n'
    b'data: {"choices":[],"usage":{"prompt_tokens":640,"completion_tokens":%d}}\n\ndata: [DONE]\n\n' % TOKENS
)


def exchanges() -> Iterator[Exchange]:
    """Each user's replies one after the other, users spread over one reply, until the chunks are all there."""
    pace_ns = S // TOK_S
    reply_ns = TTFT_MS * MS + TOKENS * pace_ns
    for n in range(USERS * TOK_S * WINDOW_S // TOKENS):
        user, k = n % USERS, n // USERS
        sent_ns = START_NS + user * reply_ns // USERS + k * reply_ns
        first_ns = sent_ns + TTFT_MS * MS
        blocks = [(first_ns + i * pace_ns, (_CHUNK % f" w{n + i:06d}").encode()) for i in range(TOKENS)]
        blocks.append((first_ns + TOKENS * pace_ns, _LAST))
        yield Exchange(
            request_id=n, user=user, process=0, prompt_id="p", scheduled_ns=sent_ns, sent_ns=sent_ns,
            first_byte_ns=first_ns, end_ns=blocks[-1][0], blocks=blocks, http_status=200, complete=True,
        )  # fmt: skip


def drain(kept: list[Exchange]) -> Iterator[Exchange]:
    """As a worker does: what is read is let go."""
    kept.reverse()
    while kept:
        yield kept.pop()


def resident_mb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def main() -> int:
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    kept = list(exchanges())
    window = (START_NS + 10 * S, START_NS + 50 * S)  # where every user is certain to be at work
    kept_mb, began_s = resident_mb(), time.process_time()
    requests, chunks = to_tables(drain(kept), window)
    read_s = time.process_time() - began_s
    meta = LoadMeta(
        mode="closed",
        users=USERS,
        load_start_ns=window[0],
        window_start_ns=window[0],
        window_end_ns=window[1],
        load_end_ns=window[1],
    )
    figures = measurement_figures(requests, chunks, meta, Line())
    both_s = time.process_time() - began_s
    found = {
        "chunks": chunks.num_rows,
        "requests": requests.num_rows,
        "kept_mb": round(kept_mb, 1),
        "peak_mb": round(resident_mb(), 1),
        "parse_and_credit_s": round(read_s, 3),
        "figures_s": round(both_s - read_s, 3),
        "total_s": round(both_s, 3),
        "output_tok_s": figures["output_tok_s"],
    }
    print(json.dumps(found, indent=2))
    # Every user is in a reply of 128 tokens or in the 50 ms before one.
    ideal = USERS * TOKENS / (TTFT_MS / 1e3 + TOKENS / TOK_S)
    right = figures["user_tok_s"] == TOK_S and abs(float(figures["output_tok_s"] or 0) / ideal - 1) < 0.002
    return 0 if right and both_s <= BOUND_S and resident_mb() <= BOUND_MB else 1


if __name__ == "__main__":
    sys.exit(main())
