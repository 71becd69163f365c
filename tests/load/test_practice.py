"""What docs/load.md lets a reader type works, on the practice server."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import httpx
import psutil
import pytest

import servebench
from servebench.engines.launch import free_port
from waiting import until

ROOT = Path(__file__).parents[2]


@pytest.fixture
def practice(tmp_path):
    """A practice server's port."""
    port = free_port((20000, 29999))
    command = [sys.executable, "-m", "servebench", "practice", "--port", str(port), "--speed", "400"]
    with (tmp_path / "practice.log").open("w") as log:
        server = subprocess.Popen(command, stdout=log, stderr=log, env=environment(tmp_path))
    try:
        until(lambda: answers(port), 60, "the practice server")
        yield port
    finally:
        psutil.Process(server.pid).terminate()
        assert server.wait(60) == 0


def environment(folder):
    package = str(Path(servebench.__file__).parents[1])
    return {**os.environ, "PYTHONPATH": package, "SERVEBENCH_CACHE": str(folder), "COLUMNS": "120"}


def answers(port):
    try:
        return httpx.get(f"http://127.0.0.1:{port}/health").is_success
    except httpx.TransportError:
        return False


def test_every_line_to_practise_can_be_typed(practice, tmp_path):
    section = (ROOT / "docs" / "load.md").read_text(encoding="utf-8").split("## To practise")[1].split("\n## ")[0]
    serve, lines = re.findall(r"```sh\n(.*?)```", section, re.S)
    assert serve == "servebench practice\n"
    lines = lines.replace("127.0.0.1:8000", f"127.0.0.1:{practice}")
    verb = f'servebench() {{ "{sys.executable}" -m servebench "$@"; }}\n'
    done = subprocess.run(
        ["bash", "-e", "-c", verb + lines], cwd=tmp_path, env=environment(tmp_path), capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    summaries = {path.parent.name: json.loads(path.read_text()) for path in tmp_path.glob("**/summary.json")}
    assert len(summaries) == lines.count("servebench load") + 2, "a sweep of three has three"
    lengths, replay = summaries["lengths"], summaries["replay"]
    assert lengths["prompt_tokens_min"] >= 1014
    assert lengths["prompt_tokens_max"] <= 1034
    assert (lengths["output_tokens_min"], lengths["output_tokens_max"]) == (64, 64)
    assert (replay["target_requests"], replay["output_tokens_mean"]) == (2, 20)
    assert replay["prompt_tokens_p50"] == pytest.approx(700, rel=0.01)


def test_what_it_proposes_can_be_typed(practice, tmp_path):
    said = (tmp_path / "practice.log").read_text(encoding="utf-8")
    command = re.search(r"^try: servebench (.*)$", said, re.M)[1].split()
    assert f"http://127.0.0.1:{practice}" in command
    short = ["--warmup", "0.1", "--window", "0.5", "--min-targets", "1", "--max-tokens", "16"]
    done = subprocess.run(
        [sys.executable, "-m", "servebench", *command, *short],
        cwd=tmp_path,
        env=environment(tmp_path),
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "first" / "summary.json").exists()


def test_a_port_that_is_taken_is_named(practice):
    done = subprocess.run(
        [sys.executable, "-m", "servebench", "practice", "--port", str(practice)],
        capture_output=True,
        text=True,
        env=environment(Path("/tmp")),
    )
    assert (done.returncode, done.stderr.startswith(f"servebench: --port: {practice} cannot be used")) == (1, True)
