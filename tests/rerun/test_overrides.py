"""What `snakemake --config` changes of the files of a configuration."""

import json
import subprocess

from workspace import BIN, ROOT, Workspace


def test_what_the_command_line_changes_is_planned_and_told(tmp_path):
    workspace = Workspace(tmp_path)
    workspace.snakemake("results/reruns/plan.json", "--config", "rounds=1", "title=a b")
    plan = json.loads((workspace.results / "plan.json").read_text(encoding="utf-8"))
    assert (plan["rounds"], plan["title"], plan["overrides"]) == (1, "a b", ["rounds=1", "title=a b"])


def test_alone_it_would_replace_the_quick_start_and_says_so():
    done = subprocess.run(
        [BIN / "snakemake", "-n", "--cores", "1", "--config", "rounds=1"], cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == 1
    assert (
        "--config: takes the place of the quick start where it stands alone; name the file" in done.stdout + done.stderr
    )
