"""Other load generators against the clock server: what they report against what was sent.

Each peer runs in its own environment, twice: as its documentation recommends (all cores), and with the whole command on
one core. The server is always on the other core. `--peers DIR` holds one virtual environment per peer;
`docs/benchmarks.md` says how to make them. Nothing else may run on the client's core, where its processes are scheduled
like any others.

- TTFT error = the peer's own TTFT − 50 ms (p50, p99 of its requests), less the server's own lateness at that rank;
- reported ÷ truth = output tok/s it reports ÷ tok/s the server sent, from the first request to the last token;
- driven = tok/s the server sent ÷ tok/s of as many users who lose no time, all starting at once or over one answer;
- CPU: the whole command with its children, start-up included, per 100k chunks.

    python benchmarks/load/peers.py --peers DIR --users 256 --rounds 3 servebench llama-benchy evalscope
    python benchmarks/load/peers.py --peers DIR --users 256 --rounds 23 --cores one --start ramped servebench vllm-rs
"""

import argparse
import functools
import http.server
import json
import os
import resource
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import side_by_side
from rich.console import Console
from rich.table import Table

from servebench.load.clock_server import Schedule

SCHEDULE = Schedule()
PROMPT = "The morning truck from the coast now leaves one hour earlier, and shops must change their staff plan. "


@dataclass(frozen=True)
class Load:
    """What a peer is to do: `users` at once, `rounds` requests each. `spread_s`: users start over so many seconds."""

    url: str
    users: int
    rounds: int
    spread_s: float

    @property
    def requests(self) -> int:
        return self.users * self.rounds


Peer = Callable[[Path, Load, Path], tuple[list[str], Callable[[], Any]]]


def llama_benchy(bin: Path, load: Load, out: Path) -> tuple[list[str], Callable[[], Any]]:
    """Its runs are waves, so a round of users is one run. It wants a book over HTTP and a tokenizer."""
    (out / "book.txt").write_text(PROMPT * 400, encoding="utf-8")
    handler = functools.partial(_Quiet, directory=str(out))
    books = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=books.serve_forever, daemon=True).start()
    report = out / "benchy.json"
    command = [
        bin / "llama-benchy",
        "--base-url",
        f"{load.url}/v1",
        "--model",
        "clock",
        "--tokenizer",
        out / "tokenizer",
    ]
    command += [
        "--pp",
        "100",
        "--tg",
        "128",
        "--concurrency",
        load.users,
        "--runs",
        load.rounds,
        "--latency-mode",
        "none",
    ]
    command += ["--no-warmup", "--skip-coherence", "--no-adapt-prompt", "--format", "json", "--save-result", report]
    command += ["--book-url", f"http://127.0.0.1:{books.server_port}/book.txt"]

    def read() -> Any:
        found = json.loads(report.read_text(encoding="utf-8"))["benchmarks"][0]
        return found["e2e_ttft"]["values"], found["tg_throughput"]["mean"]

    return list(map(str, command)), read


def evalscope(bin: Path, load: Load, out: Path) -> tuple[list[str], Callable[[], Any]]:
    (out / "lines.txt").write_text((PROMPT + "\n") * 64, encoding="utf-8")
    command = [
        bin / "evalscope",
        "perf",
        "--url",
        f"{load.url}/v1/chat/completions",
        "--model",
        "clock",
        "--api",
        "openai",
    ]
    command += ["--parallel", load.users, "--number", load.requests, "--max-tokens", "128", "--stream"]
    command += ["--dataset", "line_by_line", "--dataset-path", out / "lines.txt", "--outputs-dir", out / "evalscope"]

    def read() -> Any:
        (folder,) = (out / "evalscope").glob("*/clock/parallel_*")
        ranks = json.loads((folder / "benchmark_percentile.json").read_text(encoding="utf-8"))
        by_rank = {row["Percentiles"]: row["TTFT (ms)"] for row in ranks}
        summary = json.loads((folder / "benchmark_summary.json").read_text(encoding="utf-8"))
        return {50: by_rank["50%"], 99: by_rank["99%"]}, summary["Output Throughput (tok/s)"]

    return list(map(str, command)), read


def aiperf(bin: Path, load: Load, out: Path) -> tuple[list[str], Callable[[], Any]]:
    command = [
        bin / "aiperf",
        "profile",
        "--model",
        "clock",
        "--url",
        load.url,
        "--endpoint-type",
        "chat",
        "--streaming",
    ]
    command += ["--concurrency", load.users, "--request-count", load.requests, "--isl", "100", "--osl", "128"]
    command += ["--tokenizer", out / "tokenizer", "--artifact-dir", out / "aiperf", "--ui", "none"]
    command += ["--use-server-token-count"]

    def read() -> Any:
        lines = (out / "aiperf" / "profile_export.jsonl").read_text(encoding="utf-8").splitlines()
        ttft = [json.loads(line)["metrics"]["time_to_first_token"]["value"] for line in lines]
        summary = json.loads((out / "aiperf" / "profile_export_aiperf.json").read_text(encoding="utf-8"))
        return ttft, summary["output_token_throughput"]["avg"]

    return list(map(str, command)), read


def guidellm(bin: Path, load: Load, out: Path) -> tuple[list[str], Callable[[], Any]]:
    report = out / "guidellm.json"
    command = [bin / "guidellm", "run", "--backend", f"kind=openai_http,target={load.url},model=clock"]
    command += ["--profile", f"kind=concurrent,streams={load.users}"]
    command += ["--constraint", f"kind=max_requests,count={load.requests}"]
    command += ["--data", "kind=synthetic_text,prompt_tokens=100,output_tokens=128"]
    command += ["--tokenizer", f"kind=hf_auto,model={out / 'tokenizer'}"]
    command += ["--output", f"kind=json,path={report}", "--disable-console"]

    def read() -> Any:
        found = json.loads(report.read_text(encoding="utf-8"))["benchmarks"][0]
        ttft = [request["time_to_first_token_ms"] for request in found["requests"]["successful"]]
        return ttft, found["metrics"]["output_tokens_per_second"]["successful"]["mean"]

    return list(map(str, command)), read


def servebench(bin: Path, load: Load, out: Path) -> tuple[list[str], Callable[[], Any]]:
    """Ourselves, as a peer: the whole command, with the processes it takes by itself."""
    report = out / "servebench"
    command = [sys.executable, "-m", "servebench", "load", "--url", load.url, "--model", "clock", "--users", load.users]
    command += ["--requests", load.requests, "--max-tokens", "128", "--spread", load.spread_s]
    command += ["--out", report]

    def read() -> Any:
        requests = pq.read_table(report / "requests.parquet", columns=["first_token_ns", "sent_ns"])
        ttft_ns = requests["first_token_ns"].to_numpy() - requests["sent_ns"].to_numpy()
        return ttft_ns / 1e6, json.loads((report / "summary.json").read_text(encoding="utf-8"))["output_tok_s"]

    return list(map(str, command)), read


def vllm_rs(bin: Path, load: Load, out: Path) -> tuple[list[str], Callable[[], Any]]:
    """vLLM's client in Rust. It starts users over `spread_s` by sending that many requests a second to the end."""
    lines = (json.dumps({"prompt": f"No. {number:012d}\n{PROMPT * 4}"}) + "\n" for number in range(load.requests))
    (out / "prompts.jsonl").write_text("".join(lines), encoding="utf-8")
    rate = load.users / load.spread_s if load.spread_s else "inf"
    command = [bin / "vllm-rs", "bench", "serve", "--backend", "openai-chat", "--base-url", load.url]
    command += ["--model", "clock", "--tokenizer", out / "tokenizer", "--dataset-name", "custom"]
    command += ["--dataset-path", out / "prompts.jsonl", "--custom-output-len", "128", "--temperature", "0"]
    command += ["--num-prompts", load.requests, "--max-concurrency", load.users]
    command += ["--request-rate", rate, "--burstiness", "1e6", "--disable-tqdm"]
    command += ["--save-result", "--save-detailed", "--result-dir", out, "--result-filename", "vllm-rs.json"]

    def read() -> Any:
        found = json.loads((out / "vllm-rs.json").read_text(encoding="utf-8"))
        if found["completed"] != load.requests:
            raise RuntimeError(f"vllm-rs: {found['completed']} of {load.requests} requests completed")
        return [seconds * 1e3 for seconds in found["ttfts"]], found["output_throughput"]

    return list(map(str, command)), read


PEERS: dict[str, Peer] = {
    "servebench": servebench,
    "vllm-rs": vllm_rs,
    "llama-benchy": llama_benchy,
    "evalscope": evalscope,
    "aiperf": aiperf,
    "guidellm": guidellm,
}


class _Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: Any) -> None:
        pass


def measure(name: str, peers: Path, tokenizer: Path, given: Callable[[str], Load], one_core: bool) -> dict[str, Any]:
    """Run one peer against a clock server; `given` makes the load for the server's address."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder)
        (out / "tokenizer").symlink_to(tokenizer)
        log = out / "answers.json"
        serve = [sys.executable, "-m", "servebench.load.clock_server", json.dumps(vars(SCHEDULE)), "--log", str(log)]
        with subprocess.Popen(serve, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as server:
            assert server.stdin is not None and server.stdout is not None
            load = given(f"http://127.0.0.1:{int(server.stdout.readline())}")
            side_by_side.on_one_core(server.pid, side_by_side.SERVER_CPU)
            command, read = PEERS[name](peers / name / "bin", load, out)
            cores = {side_by_side.CLIENT_CPU} if one_core else set(range(os.cpu_count() or 1))
            before = resource.getrusage(resource.RUSAGE_CHILDREN)
            done = subprocess.run(
                command,
                capture_output=True,
                text=True,
                timeout=300,
                preexec_fn=functools.partial(os.sched_setaffinity, 0, cores),
            )
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
            if done.returncode:
                raise RuntimeError(f"{name} ended with {done.returncode}: {(done.stdout + done.stderr)[-2000:]}")
            ttft, speed = read()
            server.stdin.close()
            server.wait()
        answers = np.array(json.loads(log.read_text(encoding="utf-8")))
    whole = answers[answers[:, 3] == SCHEDULE.tokens]
    whole = whole[np.argsort(whole[:, 0])]
    # Some peers ask once or twice long before the load begins.
    pauses = np.flatnonzero(np.diff(whole[: len(whole) // 4, 0]) > 1e9)
    whole = whole[pauses[-1] + 1 if len(pauses) else 0 :]
    truth_ms = (whole[:, 1] - whole[:, 0]) / 1e6
    tokens, seconds = whole[:, 3].sum(), (whole[:, 2].max() - whole[:, 0].min()) / 1e9
    ranks = ttft if isinstance(ttft, dict) else {p: float(np.percentile(ttft, p)) for p in (50, 99)}
    ideal_s = load.rounds * SCHEDULE.answer_s + load.spread_s
    cpu_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return {
        "client": name,
        "cores": "one" if one_core else "all",
        "start": "ramped" if load.spread_s else "at once",
        "ttft_error_p50_ms": ranks[50] - float(np.percentile(truth_ms, 50)),
        "ttft_error_p99_ms": ranks[99] - float(np.percentile(truth_ms, 99)),
        "reported_ratio": speed / (tokens / seconds),
        "driven": tokens / seconds / (load.requests * SCHEDULE.tokens / ideal_s),
        "cpu_s_per_100k_chunks": cpu_s / answers[:, 3].sum() * 1e5,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="+", choices=list(PEERS), metavar="PEER")
    parser.add_argument("--peers", type=Path, required=True)
    parser.add_argument("--tokenizer", type=Path, required=True, help="folder of any Hugging Face tokenizer")
    parser.add_argument("--users", type=int, default=256)
    parser.add_argument("--rounds", type=int, default=4, help="requests per user")
    parser.add_argument("--cores", choices=("one", "all", "both"), default="both")
    parser.add_argument("--start", choices=("at-once", "ramped"), default="at-once")
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    spread_s = SCHEDULE.answer_s if given.start == "ramped" else 0.0
    make = functools.partial(Load, users=given.users, rounds=given.rounds, spread_s=spread_s)
    found = []
    for name in given.names:
        for one_core in {"one": (True,), "all": (False,), "both": (False, True)}[given.cores]:
            found.append(measure(name, given.peers, given.tokenizer.resolve(), make, one_core))
            print(json.dumps(found[-1]), flush=True)
    table = Table(title=f"{given.users} users, {given.rounds} requests each")
    for column in found[0]:
        table.add_column(column)
    for one in found:
        table.add_row(*(value if isinstance(value, str) else f"{value:.3f}" for value in one.values()))
    Console(width=140).print(table)
    if given.out:
        given.out.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
