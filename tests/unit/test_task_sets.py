"""Which questions a configuration means, and that a prompt does not change unnoticed."""

import hashlib
from pathlib import Path

import pytest

from servebench import ROOT
from servebench.faults import Fault
from servebench.machine.infrastructure import InfrastructureError
from servebench.outlook import questions
from servebench.sessions.client import Asked
from servebench.tasks import TASKS, sets
from servebench.tasks.task import FULL, SMALL
from servebench.versions import PROMPTS

# Of all prompts of our own sets, by version of the prompts.
ASKED = {1: "741ab05d82b7a7cf7821"}


def own(task):
    name = FULL if task.source is None else SMALL
    return task.load(sets.local(task, name, ROOT))


def test_a_changed_prompt_is_a_new_version():
    """When this fails on purpose: raise `PROMPTS` and add its digest. Then everything is asked again.

    Where only a question is another, its digest is corrected: the SHA-256 of its file has that task asked again.
    """
    whole = hashlib.sha256()
    for name, task in TASKS.items():
        for question in own(task):
            for message in Asked(name, 1, question, task.max_tokens).messages:
                whole.update(f"{message['role']}\0{message['content']}\0".encode())
    assert whole.hexdigest()[:20] == ASKED[PROMPTS]


@pytest.mark.parametrize(
    ("task", "name", "fits"),
    [
        ("jcommonsenseqa", "full", None),
        ("mgsm", "full", None),
        ("jcommonsenseqa", "small", "config/tasks/jcommonsenseqa-small/questions.jsonl"),
        ("mgsm", "small", "config/tasks/mgsm-small/questions.tsv"),
        ("proofreading", "full", "config/tasks/proofreading/sentences.jsonl"),
        ("mgsm", "config/tasks/mgsm-small/questions.tsv", "config/tasks/mgsm-small/questions.tsv"),
    ],
)
def test_a_set_is_a_file_or_published(task, name, fits):
    found = sets.local(TASKS[task], name, ROOT)
    assert found == (ROOT / fits if fits else None)
    if found:
        assert TASKS[task].load(found)


@pytest.mark.parametrize(
    ("task", "name", "message"),
    [
        ("proofreading", "small", "proofreading has no small set; leave it out and give a limit"),
        ("mgsm", "config", "'config' is not a file; give one, 'small', or leave it out for the full set"),
    ],
)
def test_no_such_set(task, name, message):
    with pytest.raises(Fault, match=message):
        sets.local(TASKS[task], name, ROOT)


def test_questions_are_copied_byte_by_byte_or_not_at_all(tmp_path: Path):
    source = ROOT / "config" / "tasks" / "mgsm-small" / "questions.tsv"
    sha256 = hashlib.sha256(source.read_bytes()).hexdigest()
    out = tmp_path / "questions" / "mgsm"
    questions.copy(TASKS["mgsm"], "small", sha256, out, cache_root=tmp_path)
    assert out.read_bytes() == source.read_bytes()
    with pytest.raises(InfrastructureError, match=f"has SHA-256 {sha256}, not 00"):
        questions.copy(TASKS["mgsm"], "small", "00", tmp_path / "other", cache_root=tmp_path)
    assert not (tmp_path / "other").exists()
