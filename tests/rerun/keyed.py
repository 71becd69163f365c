"""Run small experiments that set many keys of the configuration at once, for tests of what each key does."""

import json
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from http_double import HttpDouble, Request, Step
from servebench.load import calibrate
from servebench.load.calibration import Level
from workspace import Workspace

HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"


def tokens(body: dict[str, Any]) -> int:
    """Count a prompt's tokens: its words."""
    return sum(len(message["content"].split()) for message in body["messages"])


class Listening(HttpDouble):
    """Answer with as many tokens as asked for, and keep what was asked, by the `who` of a request's body."""

    def respond(self, request: Request) -> Iterable[Step]:
        if request.method == "GET":
            return [request.response({"data": [{"id": "served"}]}, headers={"server": "double/1"})]
        if request.path == "/tokenize":
            return [request.response({"tokens": request.body["content"].split()})]
        usage = {"prompt_tokens": tokens(request.body), "completion_tokens": request.body["max_tokens"]}
        if not request.body.get("stream"):
            choice = {"index": 0, "message": {"role": "assistant", "content": "Paris"}, "finish_reason": "stop"}
            return [request.response({"choices": [choice], "usage": usage})]
        events = [{"choices": [{"index": 0, "delta": {"content": "word "}}]}] * usage["completion_tokens"]
        end = {"choices": [{"index": 0, "delta": {}, "finish_reason": "length"}]}
        data = b"".join(b"data: " + json.dumps(one).encode() + b"\n\n" for one in (*events, end, {"usage": usage}))
        data += b"data: [DONE]\n\n"
        begun = b"data: " + json.dumps(events[0]).encode() + b"\n\n"
        wait = {"late": [0.8], "silent": [b"%x\r\n%s\r\n" % (len(begun), begun), 0.8]}
        return [HEAD, *wait.get(request.body["who"], ()), b"%x\r\n%s\r\n0\r\n\r\n" % (len(data), data)]

    def asked(self) -> dict[str, list[Request]]:
        """Return the requests of loads and evaluations by `who` asked; probes have another prompt than either."""
        found = defaultdict(list)
        for request in self.received:
            chat = request.method == "POST" and request.path.endswith("/chat/completions")
            if chat and "capital of France" not in request.body["messages"][-1]["content"]:
                found[request.body["who"]].append(request)
        return found


def at_a_url(folder: Path, server: Listening) -> Workspace:
    """Return an experiment that loads a server at a URL in every mode, and evaluates it."""
    made = Workspace(folder)
    made.env["FAR_KEY"] = "a-key"
    prompts, trace = folder / "prompts.jsonl", folder / "trace.jsonl"
    prompts.write_text("".join(f'{{"prompt": "{"number " * 90}{number}."}}\n' for number in ("one", "two", "six")))
    trace.write_text("".join(f'{{"arrival_s": {n / 2}, "prompt": "Entry {n}."}}\n' for n in range(9)))
    base = {"engine": "far", "model": "m", "slots": 2}
    runs = {
        "closed": {},
        "count": {"mode": "count", "requests": 6},
        "open": {"mode": "open", "rate": 20, "arrivals": "constant"},
        "people": {"mode": "open-users", "user_rate": 10, "arrivals": "constant", "min_targets": 2},
        "talk": {"mode": "conversation", "turns": 2},
        "trace": {"mode": "trace", "trace": str(trace), "trace_speed": 10, "trace_first_s": 2},
        "prefix": {"mode": "shared-prefix", "shared_prefix_tokens": 30},
        "late": {"timeout_s": 0.4, "min_targets": 2},
        "silent": {"idle_timeout_s": 0.4, "min_targets": 2},
    }
    made.config = {
        "experiment": "reruns",
        "rounds": 1,
        "line": {"ttft_p95_s": 1e-6, "user_tok_s": 1234},
        "engines": {
            "far": {
                "kind": "url",
                "url": f"{server.url}/v1",
                "api_key_env": "FAR_KEY",
                "options": {"model": "served"},
                "request": {"of_engine": 1, "who": "engine"},
                "expect": {"version": "double/1"},
            }
        },
        "models": {"m": {"name": "The model", "source": "hf://a/b", "unverified": "No revision is published."}},
        "workload": {
            "prompts": str(prompts),
            "system": "Be brief.",
            "instruction": "Say it:",
            "max_tokens": 5,
            "temperature": 0.5,
            "top_p": 0.9,
            "seed": 7,
            "warmup_s": 0.1,
            "window_s": 0.4,
            "min_targets": 30,
            "timeout_s": 20,
            "idle_timeout_s": 15,
            "think": 0.05,
            "number_lines": False,
            "processes": 2,
        },
        "runs": {name: {"title": f"All {name}", "workload": own} for name, own in runs.items()},
        "settings": {
            name: {**base, "run": name, "users": [2], "request": {"who": name, "top_p": 0.8}, "expect": expected}
            for name, expected in zip(runs, [{"version": "other"}, *[{}] * 8], strict=True)
        },
        "evaluations": {
            "baseline": "B",
            "concurrency": 2,
            "repeats": 2,
            "seed": 9,
            "tasks": {
                "jcommonsenseqa": {"set": "small", "limit": 3, "max_tokens": 7, "request": {"of_task": 1}},
                "mgsm": {"set": "small", "limit": 2},
            },
            "margins": {"jcommonsenseqa": 50},
            "under_load": {"users": 2, "task": "jcommonsenseqa", "questions": 2, "targets": ["A"]},
            "targets": {name: {**base, "request": {"who": name}, "note": f"On {name}."} for name in "AB"},
        },
        "runtime": {"beyond_calibration": "mark"},
    }
    return made


def on_simulators(folder: Path) -> Workspace:
    """Return an experiment on simulators whose settings are a matrix, with prompts and replies of a length."""
    made = Workspace(folder)
    prompts = folder / "prompts.jsonl"
    prompts.write_text("".join(f'{{"prompt": "{"number " * 90}{number}."}}\n' for number in ("one", "two", "six")))
    file = {"name": "The model", "source": "file:///nowhere.gguf"}
    # A machine that loads nobody accurately: its one CPU for the load is any.
    level = Level(variant="steady", users=1, delivered_ratio=0.5, cpu_ratio=1.0, beyond=["delivered_ratio"])
    calibrate.keep(calibrate.record([level], [0]), folder / "cache")
    made.config |= {
        "title": {"en": "A title", "ja": "題名"},
        "reference": "h200",
        "rounds": {"min": 1, "max": 2},
        "deviations": ["Prompts are ours."],
        "unverified": ["Never run elsewhere."],
        "line": {"user_tok_s": 0.01, "min_targets": 1000},
        "people": {"pause": 0.01},
        "license": "CC0-1.0",
        "cost": {"price_per_hour": 2, "currency": "USD", "idle_after_min": 30},
        "cpus": {"server": 1, "load": 1},
        "engines": {
            "sim": {
                "kind": "simulator",
                "options": {"decode_tok_s": {"1": 8.0}},
                "args": ["--of-engine"],
                "env": {"KEYED_A": "engine", "KEYED_B": "engine"},
            }
        },
        "models": {
            "small": {**file, "sha256": "0" * 64, "quantization": "Q4_0", "note": "A note of a model."},
            "large": {**file, "sha256": "1" * 64, "quantization": "Q8_0"},
        },
        "workload": {"prompts": str(prompts), "reply_tokens": 3, "warmup_s": 0.1, "window_s": 1.2, "timeout_s": 20},
        "runs": {
            "main": {"title": "The matrix", "control": "s-1-q4_0"},
            "lengths": {"workload": {"prompts": {"tokens": 96, "set": str(prompts)}}},
        },
        "settings": {
            "s": {
                **{"engine": "sim", "context": 512, "users": [1], "env": {"KEYED_B": "setting"}},
                "note": "A note of settings.",
                "matrix": {"slots": [1, 2], "quantization": ["Q4_0", "Q8_0"]},
                "exclude": [{"slots": 2, "quantization": "Q8_0"}],
                "include": [{"slots": 2, "args": ["--more"]}],
            },
            "length": {"engine": "sim", "model": "large", "slots": 1, "context": 512, "users": [1], "run": "lengths"},
        },
        "charts": {"width": 901, "height": 123, "language": "ja"},
    }
    made.config["runtime"] |= {
        "ports": [31000, 31500],
        "job_minutes": 1,
        "device": "cpu",
        "cache": str(folder / "cache"),
        "bandwidth_gb_s": 50,
        "foreign_use": {"share": 1e-9, "samples": 1, "action": "mark"},
    }
    return made
