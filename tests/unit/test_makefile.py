"""What `make` says on a machine whose Python cannot make the environment; nothing is installed."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
NEEDED = "servebench needs Python 3.11 or newer"
NO_VENV = "servebench needs Python's venv module: on Debian or Ubuntu, install the package python3-venv"
STUB = """#!{python} -IS
import sys

option, *code = sys.argv[1:]
if option == "-V":
    print("Python {version}")
elif option == "-m":
    print("made:", *code)
else:
    sys.version_info = tuple(map(int, "{version}".split(".")))
    sys.modules |= dict.fromkeys({without}, None)
    exec(code[0])
"""


def python_of(folder: Path, version: str, without: tuple[str, ...] = ()) -> Path:
    """A program that answers what make asks as a Python of this version and without these modules does."""
    python = folder / "python"
    python.write_text(STUB.format(python=sys.executable, version=version, without=without))
    python.chmod(0o755)
    return python


def make_environment(folder: Path, python: Path) -> tuple[int, str]:
    """Exit code of make, asked for the environment in `folder`, and what was printed but for the commands."""
    command = ["make", "--no-print-directory", "-f", ROOT / "Makefile", ".venv/bin/python", f"PYTHON={python}"]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
    return done.returncode, "\n".join(line for line in done.stdout.splitlines() if not line.startswith(str(python)))


@pytest.mark.parametrize(
    ("version", "without", "said"),
    [
        ("3.10.14", (), f"{NEEDED}, but '{{python}}' is Python 3.10.14; set PYTHON=python3.11 or newer"),
        ("3.11.2", ("venv",), NO_VENV),
        ("3.11.2", ("ensurepip",), NO_VENV),
        ("3.11.0", (), "made: venv .venv"),
    ],
    ids=["old", "no-venv", "no-ensurepip", "good"],
)
def test_a_python_that_will_not_do_is_refused_with_what_to_do(tmp_path, version, without, said):
    python = python_of(tmp_path, version, without)
    code, printed = make_environment(tmp_path, python)
    assert printed == said.format(python=python)
    assert (code == 0) == said.startswith("made")


def test_no_python_at_all_is_said(tmp_path):
    python = tmp_path / "python"
    said = f"{NEEDED}, and '{python}' was not found; install it or set PYTHON=..."
    assert make_environment(tmp_path, python) == (2, said)
