"""`servebench load` and `servebench calibrate` as a person runs them."""

import csv
import json
import re
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pyarrow.parquet as pq
import pytest
from scripted_server import ScriptedServer, refusal, reply

import servebench as package
from http_double import Request
from servebench.load.records import check_chunks, check_requests
from waiting import until

PACKAGE = str(Path(package.__file__).parents[1])  # the one that is tested, wherever another is installed
SEALED = "/sys"  # takes no file, from nobody
FIGURES = {
    "output_tok_s",
    "user_tok_s",
    "ttft_p50_s",
    "ttft_p95_s",
    "ttft_p95_all_s",
    "target_requests",
    "failures",
    "reasoning_replies",
    "client_cpu_ratio",
    "window_s",
    "users",
}


def environment(cache):
    kept = {"SERVEBENCH_CACHE": str(cache), "HOME": str(cache)}
    return {"PATH": "/usr/bin:/bin", "PYTHONPATH": PACKAGE, **kept}


def servebench(*arguments, cache, **more):
    return subprocess.run(
        [sys.executable, "-m", "servebench", *(one if isinstance(one, bytes) else str(one) for one in arguments)],
        capture_output=True,
        text=True,
        env={**environment(cache), "COLUMNS": "120", **more},
    )


def limited(files, *arguments, cache):
    """`servebench` in a shell that may open no more than so many files."""
    command = ["bash", "-c", f'ulimit -n {files}; exec "$@"', "bash", sys.executable, "-m", "servebench"]
    words = [*command, *map(str, arguments)]
    return subprocess.run(words, capture_output=True, text=True, env=environment(cache), timeout=60)


@pytest.mark.parametrize(
    ("arguments", "evidence"),
    [
        (["--users", 120, "--processes", 2], "124 open files, and the limit is 90"),
        (["--rate", 400, "--users", 1], "the limit is 90 open files"),
    ],
)
def test_too_few_open_files_are_this_machines_fault(tmp_path, arguments, evidence):
    with ScriptedServer(lambda _: [30.0]) as server:
        command = ["load", "--url", server.url, "--model", "m", "--out", tmp_path / "out", "--timeout", 2, *arguments]
        done = limited(90, *command, cache=tmp_path)
    said = " ".join(done.stderr.split())
    assert done.returncode == 1
    assert evidence in said
    assert "prlimit --pid $$ --nofile=" in said
    assert "Traceback" not in said
    assert not (tmp_path / "out" / "summary.json").exists()


def load(server, tmp_path, *arguments, **environment):
    out = tmp_path / "out"
    command = ["load", "--url", server.url, "--model", "scripted", "--out", out, "--max-tokens", 8, *arguments]
    return servebench(*command, cache=tmp_path, **environment), out


def asked(server: ScriptedServer) -> list[Request]:
    """Return the requests for a chat completion; what the server is asked of itself is none."""
    return [request for request in server.received if request.method == "POST"]


def test_load_writes_its_three_files_and_prints_the_summary(tmp_path):
    with ScriptedServer(lambda _: reply(4, gap_s=0.01)) as server:
        done, out = load(server, tmp_path, "--users", 3, "--warmup", 0.5, "--window", 1)
    assert done.returncode == 0, done.stderr
    requests = check_requests(pq.read_table(out / "requests.parquet"))
    chunks = check_chunks(pq.read_table(out / "chunks.parquet"), requests)
    summary = json.loads((out / "summary.json").read_text(encoding="utf-8"))
    assert set(summary) >= FIGURES
    assert summary["users"] == 3
    assert summary["failures"] == 0
    assert summary["target_requests"] == requests["phase"].to_pylist().count("window")
    assert chunks.num_rows >= 4 * summary["target_requests"]
    assert "output tok/s" in done.stdout
    assert "TTFT p95" in done.stdout


def test_load_and_its_processes_import_no_large_package_that_the_workflow_needs(tmp_path):
    with ScriptedServer(lambda _: reply(4)) as server:
        done, _ = load(server, tmp_path, "--users", 2, "--requests", 4, PYTHONPROFILEIMPORTTIME="1")
    assert done.returncode == 0, done.stderr
    imported = [line.rpartition("|")[2].strip() for line in done.stderr.splitlines() if line.startswith("import time")]
    assert imported.count("pyarrow") == 2  # of the command and of its load process
    with_parts = {name.partition(".")[0] for name in imported if "." in name}  # a refused import has none
    assert not {"pandas", "scipy", "altair", "snakemake", "statsmodels"} & with_parts


def test_load_exits_1_when_a_request_failed_and_shows_why(tmp_path):
    def script(received):
        return refusal(503, b'{"error": "pool is closed"}') if received.number == 5 else reply(2)

    with ScriptedServer(script) as server:
        done, out = load(server, tmp_path, "--users", 2, "--requests", 20)
    assert done.returncode == 1
    summary = json.loads((out / "summary.json").read_text(encoding="utf-8"))
    assert (summary["target_requests"], summary["failures"]) == (20, 1)
    assert "pool is closed" in done.stdout


def test_figures_of_a_server_that_only_fails_are_null_not_zero(tmp_path):
    with ScriptedServer(lambda _: refusal(500)) as server:
        done, out = load(server, tmp_path, "--users", 2, "--requests", 6)
    assert done.returncode == 1
    summary = json.loads((out / "summary.json").read_text(encoding="utf-8"))
    assert summary["failures"] == 6
    for name in ("user_tok_s", "ttft_p50_s", "ttft_p95_s", "ttft_p95_all_s"):
        assert summary[name] is None


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--requests", 5, "--rate", 2], "give one"),
        (["--extra", "[1]"], "--extra"),
        (["--extra", "{"], "--extra"),
        (["--extra", '{"stop": "\\ud800"}'], "endpoint.extra: cannot be sent"),
        (["--extra", '{"min_p": NaN}'], "endpoint.extra: cannot be sent"),
        (["--extra", b'{"stop": "\xff"}'], "--extra: is not JSON in UTF-8"),
        (["--model", b"caf\xe9"], "endpoint.model: cannot be sent"),
        (["--timeout", "1e300"], "workload.timeout_s: 1e+300 is not above 0, up to"),
        (["--idle-timeout", "nan"], "workload.idle_timeout_s: nan is not above 0"),
        (["--rate", "1e-300"], "workload.rate: 1e-300 is not above 0"),
        (["--line-ttft", "nan"], "line.ttft_p95_s: nan"),
        (["--tokenizer", "no-such-file"], "no-such-file is not a file"),
        (["--header", "nonsense"], "--header"),
        (["--think", "often"], "workload.think"),
        (["--prompts", "no-such-set"], "no-such-set"),
        (["--users", 0], "users"),
        (["--api-key-env", "NO_SUCH_VARIABLE"], "NO_SUCH_VARIABLE"),
        ([], "no connection"),
    ],
)
def test_faults_are_one_clear_line(tmp_path, arguments, message):
    done = servebench(
        "load", "--url", "http://127.0.0.1:9", "--model", "m", "--out", tmp_path, *arguments, cache=tmp_path
    )
    assert done.returncode != 0
    assert message in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("verb", ["load", "calibrate"])
@pytest.mark.parametrize("out", [SEALED, "file"])
def test_what_could_not_be_kept_is_not_measured(tmp_path, verb, out):
    (tmp_path / "file").touch()
    of_load = ["--url", "http://127.0.0.1:9", "--model", "m"] if verb == "load" else []
    done = servebench(verb, *of_load, "--out", tmp_path / out, cache=tmp_path)
    assert done.returncode == 1
    said = " ".join(done.stderr.split())
    assert said.startswith(f"servebench: {tmp_path / out}: cannot be written (")
    assert said.endswith("); make it writable, or name another folder: --out")


def test_no_calibration_is_made_that_the_cache_does_not_take(tmp_path):
    done = servebench("calibrate", "--out", tmp_path, cache=SEALED)
    assert done.returncode == 1
    assert f"servebench: {SEALED}: cannot be written (" in done.stderr
    assert done.stderr.endswith("or name another folder: runtime.cache or SERVEBENCH_CACHE\n")
    assert "users" not in done.stderr


@pytest.mark.parametrize("window", ["nan", "inf", "-1", "0", "1e300"])
def test_calibrate_refuses_a_window_that_is_none(tmp_path, window):
    done = servebench("calibrate", "--users", 1, "--window", window, "--out", tmp_path, cache=tmp_path)
    assert done.returncode == 2
    assert "--window: " in done.stderr
    assert "Traceback" not in done.stderr


def test_skipped_conversations_are_told(tmp_path):
    turns = [[{"from": "human", "value": "q"}], [], [{"from": "human", "value": None}]]
    path = tmp_path / "sharegpt.json"
    path.write_text(json.dumps([{"conversations": turn} for turn in turns]), encoding="utf-8")
    with ScriptedServer(lambda _: reply(2)) as server:
        done, out = load(server, tmp_path, "--requests", 2, "--prompts", path)
    assert done.returncode == 0, done.stderr
    assert "2 conversations" in " ".join(done.stdout.split())
    summary = json.loads((out / "summary.json").read_text(encoding="utf-8"))
    assert (summary["meta"]["prompts"]["prompts"], summary["meta"]["prompts"]["skipped"]) == (1, 2)


def test_a_sweep_is_one_table_and_goes_on_where_it_stopped(tmp_path):
    with ScriptedServer(lambda _: reply(4, gap_s=0.001)) as server:
        files = ("--html", tmp_path / "page.html", "--csv", tmp_path / "figures.csv")
        done, out = load(server, tmp_path, "--users", "2,1,4", "--requests", 8, *files)
        assert done.returncode == 0, done.stderr
        assert (tmp_path / "figures.csv").read_bytes() == (out / "sweep.csv").read_bytes()
        assert "In this one round scripted" in (tmp_path / "page.html").read_text(encoding="utf-8")
        refused, _ = load(server, tmp_path, "--users", "1,2,4,8", "--requests", 8, *files)
        assert refused.returncode == 1 and "page.html is there already" in " ".join(refused.stderr.split())
        assert len(asked(server)) == 24, "before anything is measured"
        with (out / "sweep.csv").open(encoding="utf-8") as file:
            rows = list(csv.DictReader(file))
        assert [(row["users"], row["target_requests"]) for row in rows] == [("1", "8"), ("2", "8"), ("4", "8")]
        assert f"written to {out}/" in " ".join(done.stdout.split())
        heads = {request.body["messages"][1]["content"].splitlines()[1] for request in asked(server)}
        assert len(heads) == 24, "no level meets the number lines of another"
        metas = [json.loads((out / f"users-{users}" / "summary.json").read_bytes())["meta"] for users in (1, 2, 4)]
        numbered = [meta["number_seed"] - meta["seed"] for meta in metas]
        assert numbered == [1, 2, 4], "nor would it after a sweep that left some of them out"
        (out / "users-2" / "summary.json").unlink()
        again, _ = load(server, tmp_path, "--users", "1,2,4", "--requests", 8, "--line-speed", 1e9)
        assert again.returncode == 0, again.stderr
        assert len(asked(server)) == 32, "only the level without a summary is measured again"
        assert again.stderr.count("measured already") == 2
        other, _ = load(server, tmp_path, "--users", "1,2,4", "--requests", 9)
        assert other.returncode == 1
        assert "holds a measurement of another load; name another folder" in " ".join(other.stderr.split())
        alone, _ = load(server, tmp_path, "--users", 4, "--requests", 9, "--html", tmp_path / "alone.html")
        assert alone.returncode == 0, alone.stderr
        assert "it got 9 of the 20 requests needed" in " ".join(alone.stdout.split())
        levels = re.findall(r'data-sort="(\d+)">\d+</th>', (tmp_path / "alone.html").read_text(encoding="utf-8"))
        assert levels == ["4"], "nothing of the sweep in whose folder it lies"


@pytest.mark.parametrize(
    ("limit", "verdict"),
    [("60", {"lower": 2, "upper": None, "kept": [1, 2]}), ("0.000001", {"lower": None, "upper": 1, "missed": [1, 2]})],
)
def test_a_capacity_is_searched_for_and_a_second_call_goes_on(tmp_path, limit, verdict):
    options = ("--find-capacity", "--most-users", 2, "--min-targets", 5, "--warmup", 0, "--window", 0.1)
    with ScriptedServer(lambda _: reply(4, gap_s=0.01)) as server:
        done, out = load(server, tmp_path, *options, "--line-ttft", limit, "--line-speed", 0.1)
        assert done.returncode == 0, done.stderr
        made = len(server.received)
        found = json.loads((out / "capacity.json").read_text(encoding="utf-8"))
        assert verdict.items() <= found.items() and found["measurements"] == 4
        told = " ".join(done.stderr.split())
        assert f"written to {out}/" in told
        assert "searching: 4 measurements" in told
        assert ("--most-users above 2 tries more" in told) == (verdict["lower"] == 2)
        again, _ = load(server, tmp_path, *options, "--line-ttft", limit, "--line-speed", 0.1)
        assert again.returncode == 0, again.stderr
        assert len(server.received) == made, "nothing is measured again"
    assert {path.parent.name for path in out.glob("round-*/users-*")} == {"round-1", "round-2"}


@pytest.mark.parametrize("options", [("--requests", 2), ("--users", 4)])
def test_a_capacity_is_searched_for_where_users_can_vary(tmp_path, options):
    with ScriptedServer(lambda _: reply(2)) as server:
        done, _ = load(server, tmp_path, "--find-capacity", *options)
    assert done.returncode != 0 and "--find-capacity" in done.stderr


def test_a_measurement_is_not_overwritten(tmp_path):
    with ScriptedServer(lambda _: reply(2)) as server:
        first, out = load(server, tmp_path, "--requests", 2)
        kept = (out / "summary.json").read_bytes()
        second, _ = load(server, tmp_path, "--requests", 2)
    assert (first.returncode, second.returncode) == (0, 1)
    assert f"written to {out}/" in " ".join(first.stdout.split())
    assert "holds a measurement already; name another folder" in " ".join(second.stderr.split())
    assert (out / "summary.json").read_bytes() == kept


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--trace", "t.jsonl", "--shared-prefix", 100], "--shared-prefix has no effect with --trace"),
        (["--speed", 2], "--speed has no effect without --trace"),
        (["--trace", "t.jsonl", "--first", "10x"], "--first: '10x' is not a time; write 90s, 10m or 1h"),
        (["--arrivals", "constant"], "--arrivals has no effect without --rate"),
        (["--rate", 4, "--think", 2], "--think has no effect with --rate"),
        (["--requests", 4, "--min-targets", 2], "--min-targets has no effect with --requests"),
        (["--users", "1,x"], "--users: '1,x' is not positive integers"),
    ],
)
def test_an_option_that_the_load_cannot_use_is_refused(tmp_path, arguments, words):
    command = ["load", "--url", "http://127.0.0.1:9", "--model", "m", "--out", tmp_path, *arguments]
    done = servebench(*command, cache=tmp_path)
    assert done.returncode == 2
    assert words in " ".join(done.stderr.replace("│", " ").split())


def test_calibrate_writes_and_remembers(tmp_path):
    out = tmp_path / "out"
    done = servebench("calibrate", "--users", "2", "--window", 1, "--out", out, cache=tmp_path)
    found = json.loads((out / "calibration.json").read_text(encoding="utf-8"))
    assert [level["variant"] for level in found["levels"]] == [
        "steady",
        "lockstep",
        "4 tokens a chunk",
        "200 ms TTFT",
    ]
    assert done.returncode == (1 if any(level["beyond"] for level in found["levels"]) else 0), done.stderr
    (kept,) = (tmp_path / "calibration").glob("*.json")
    assert json.loads(kept.read_text(encoding="utf-8")) == found
    assert "TTFT error" in done.stdout


def test_ctrl_c_ends_everything_without_a_traceback(tmp_path):
    with ScriptedServer(lambda _: reply(4, gap_s=0.01)) as server:
        command = [sys.executable, "-m", "servebench", "load", "--url", server.url, "--model", "m"]
        command += ["--users", "40", "--processes", "4"]
        running = subprocess.Popen([*command, "--out", tmp_path], stderr=subprocess.PIPE, text=True)
        until(lambda: len(server.received) >= 5, 60, "five requests")
        workers = psutil.Process(running.pid).children()
        assert len(workers) == 4
        running.send_signal(signal.SIGINT)
        stderr = running.communicate(timeout=30)[1]
    assert running.returncode != 0
    assert "Traceback" not in stderr
    assert psutil.wait_procs(workers, timeout=60)[1] == []
