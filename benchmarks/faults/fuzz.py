"""Fuzz every reader of what others wrote, guided by the coverage of our code (atheris, libFuzzer for Python).

    python benchmarks/faults/fuzz.py --seconds 600 --corpus results/fuzz [READER ...]

The readers, and the inputs to begin with, are those of tests/property/test_reader_properties.py, where hypothesis
tries them. Each runs in a process of its own: an exception that is not meant for users, an input that takes over 25 s,
or more than 2 GiB of memory ends it. The corpus stays in a folder for each reader: a later run goes on from it.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import warnings
from contextlib import suppress
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "tests" / "property")]

LONGEST_S = 25
MOST_MIB = 2048
LONGEST_BYTES = 65536
SEEDS = 100
EXECUTED = re.compile(r"stat::number_of_executed_units:\s*(\d+)")
PEAK_MIB = re.compile(r"stat::peak_rss_mb:\s*(\d+)")


def seed(folder: Path, inputs: Any) -> None:
    """Write what hypothesis thinks of first into an empty corpus."""
    if any(folder.iterdir()):
        return
    warnings.simplefilter("ignore")  # examples outside a test are what is wanted
    for number in range(SEEDS):
        (folder / f"seed{number}").write_bytes(inputs.example())


def fuzz(reader: str, corpus: Path, seconds: int) -> None:
    """Give one reader inputs for `seconds`; does not return: libFuzzer ends the process."""
    import atheris

    with atheris.instrument_imports(include=["servebench"], enable_loader_override=False):
        import test_reader_properties as readers

    inputs, read = readers.READERS[reader]
    seed(corpus, inputs)

    def tried(content: bytes) -> None:
        with suppress(readers.Fault, readers.ReplyError, readers.ConfigError):
            read(content)

    limits = [f"-max_total_time={seconds}", f"-timeout={LONGEST_S}", f"-rss_limit_mb={MOST_MIB}"]
    options = [f"-max_len={LONGEST_BYTES}", "-print_final_stats=1", f"-artifact_prefix={corpus.parent}/{corpus.name}-"]
    atheris.Setup([sys.argv[0], *limits, *options, str(corpus)], tried)
    atheris.Fuzz()


def told(pattern: re.Pattern[str], output: str) -> int | None:
    found = pattern.search(output)
    return int(found[1]) if found else None


def run(reader: str, corpus: Path, seconds: int) -> bool:
    """Fuzz one reader in a process of its own, and print its counts; return whether it survived."""
    folder = corpus / reader.replace(" ", "-")
    folder.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, __file__, "--seconds", str(seconds), "--corpus", str(folder), "--one", reader]
    done = subprocess.run(command, capture_output=True, text=True, errors="replace")
    found = {
        "reader": reader,
        "executions": told(EXECUTED, done.stderr),
        "corpus": len(list(folder.iterdir())),
        "peak_mib": told(PEAK_MIB, done.stderr),
        "exit": done.returncode,
    }
    print(json.dumps(found), flush=True)
    if done.returncode:
        print(done.stdout[-2000:], done.stderr[-4000:], file=sys.stderr)
    return done.returncode == 0


def main() -> None:
    """Run, print a line of JSON for each reader; exit with 1 when one of them failed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("readers", nargs="*")
    parser.add_argument("--seconds", type=int, default=600, help="of each reader")
    parser.add_argument("--corpus", type=Path, default=Path("results/fuzz"))
    parser.add_argument("--one", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.one:
        return fuzz(given.one, given.corpus, given.seconds)
    import test_reader_properties as readers

    results = [run(name, given.corpus, given.seconds) for name in given.readers or readers.READERS]
    sys.exit(not all(results))


if __name__ == "__main__":
    main()
