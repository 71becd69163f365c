"""`snakemake --lint` is clean but for one thing, which has a reason."""

import re
import subprocess

from workspace import BIN, ROOT

# Software comes from the locked environment that runs Snakemake itself, and engines from environments and images that
# belong to the measured setting; neither is a rule's conda environment or container.
REASONED = "Specify a conda environment or container for each rule."


def test_lint_finds_nothing_else():
    done = subprocess.run([BIN / "snakemake", "--lint"], cwd=ROOT, capture_output=True, text=True, timeout=120)
    found = re.findall(r"^    \* (.*?):?$", done.stdout + done.stderr, re.M)
    assert found, "lint said nothing at all: its output has changed"
    assert set(found) == {REASONED}
