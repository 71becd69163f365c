"""The wheel alone: `load` and `calibrate` without Snakemake, quickly installed."""

import json
import resource
import shutil
import subprocess
import sys
import venv
from pathlib import Path

import pytest
from scripted_server import ScriptedServer, reply

ROOT = Path(__file__).parents[2]
WORKFLOW_ONLY = ("snakemake", "pandas", "scipy", "altair", "statsmodels")


def test_a_clean_environment_soon_gives_figures(tmp_path):
    source = tmp_path / "source"
    source.mkdir()
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    for name in ("scripts", "config"):
        shutil.copytree(ROOT / name, source / name, symlinks=True, ignore=shutil.ignore_patterns("*.egg-info"))
    build = [sys.executable, "-m", "pip", "wheel", "--no-deps", "--no-build-isolation", "-q", "-w", tmp_path, source]
    subprocess.run(build, check=True)
    (wheel,) = tmp_path.glob("servebench-*.whl")

    # CPU seconds, as what else runs on the machine cannot stretch them; downloads and waiting come on top.
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    venv.create(tmp_path / "venv", with_pip=True)
    bin = tmp_path / "venv" / "bin"
    install = subprocess.run([bin / "pip", "install", "-q", wheel], capture_output=True, text=True)
    if "No matching distribution" in install.stderr or "Connection" in install.stderr:
        pytest.skip("needs a package index")
    assert install.returncode == 0, install.stderr
    with ScriptedServer(lambda _: reply(8, gap_s=0.01)) as server:
        command = [bin / "servebench", "load", "--url", server.url, "--model", "m", "--users", "4"]
        command += ["--warmup", "2", "--window", "5", "--out", tmp_path / "out"]
        done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime < 60
    assert json.loads((tmp_path / "out" / "summary.json").read_text(encoding="utf-8"))["output_tok_s"] > 0

    present = subprocess.run([bin / "pip", "list", "--format=json"], check=True, capture_output=True).stdout
    assert not {package["name"].lower() for package in json.loads(present)} & set(WORKFLOW_ONLY)
    helped = subprocess.run([bin / "servebench", "calibrate", "--help"], capture_output=True, text=True, cwd=tmp_path)
    assert "--users" in helped.stdout
    outsider = subprocess.run(
        [bin / "python", "-c", "import servebench; print(servebench.__file__)"], capture_output=True
    )
    assert str(tmp_path) in outsider.stdout.decode()
