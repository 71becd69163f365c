"""The data files: our own small sets, the published ones where they are at hand, and how they come into the cache."""

import hashlib
import os
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from servebench.outlook.questions import find
from servebench.tasks import TASKS, jcommonsenseqa, mgsm
from servebench.tasks.scoring import score
from servebench.tasks.task import Reply, Source

CONFIG = Path(__file__).parents[2] / "config" / "tasks"


# (task, its file in SERVEBENCH_DATA): tag or commit, SHA-256 and number of questions of what was published.
PUBLISHED = {
    ("jcommonsenseqa", "jcommonsenseqa/valid-v1.3.json"): (
        "v1.3.0",
        "0d8d76f3bfa0d174866939882faccdd01fbc2bcd5a76c43748ba0c40a7b3b8d4",
        1119,
    ),
    ("mgsm", "mgsm/mgsm_ja.tsv"): (
        "4b1e7a43efb517abadd16041e8b47f3be975c76e",
        "59a2b50debe77981fd784cb3b2bef1505e3abf2a37116dc9d7a366ab029b4637",
        250,
    ),
}


def published(name):
    root = os.environ.get("SERVEBENCH_DATA")
    if not root or not (path := Path(root) / name).exists():
        pytest.skip(f"needs {name} (directory in SERVEBENCH_DATA)")
    return path


@pytest.fixture(scope="module")
def choices():
    return jcommonsenseqa.load(published("jcommonsenseqa/valid-v1.3.json"))


@pytest.fixture(scope="module")
def problems():
    return mgsm.load(published("mgsm/mgsm_ja.tsv"))


@pytest.mark.parametrize(("task", "name"), PUBLISHED)
def test_what_is_fetched_is_pinned(task, name):
    source = TASKS[task].source
    version, sha256, count = PUBLISHED[task, name]
    assert (source.sha256, source.questions) == (sha256, count)
    assert source.url.startswith("https://")
    assert f"/{version}/" in source.url, "not a branch, whose files change"
    assert source.url.endswith(name.partition("/")[2])


@pytest.mark.parametrize(("task", "name"), PUBLISHED)
def test_the_published_files_are_the_pinned_bytes(task, name):
    assert hashlib.sha256(published(name).read_bytes()).hexdigest() == TASKS[task].source.sha256


def test_jcommonsenseqa_is_as_described(choices):
    assert len(choices) == 1119
    assert [question.question_id for question in choices] == [str(i) for i in range(8939, 10058)]
    assert Counter(question.gold for question in choices) == {"0": 216, "1": 237, "2": 240, "3": 228, "4": 198}
    texts = Counter(question.text for question in choices)
    assert texts["都会の反対は？"] == 3
    printers = [question.question_id for question in choices if "3Dプリンター" in question.choices]
    assert printers == ["9010", "10005"]
    assert sum(question.text != question.text.strip() for question in choices) == 5


def test_every_choice_of_jcommonsenseqa_is_read_from_its_text_and_from_its_number(choices):
    for question in choices:
        for index, choice in enumerate(question.choices):
            for reply in (choice, f"{index}", f"{index}. {choice}", f"{index}.{choice}"):
                scored = score(jcommonsenseqa.TASK, question, Reply(text=reply))
                assert scored.extracted == str(index), (question.question_id, reply)
                assert scored.correct is (str(index) == question.gold)


def test_mgsm_is_as_described(problems):
    assert len(problems) == 250
    assert [question.gold for question in problems if "," in question.gold] == ["2,125", "114,200", "276,000", "5,600"]
    assert [question.question_id for question in problems if mgsm.is_damaged(question)] == ["78", "140", "172", "250"]
    assert all(int(question.gold.replace(",", "")) > 0 for question in problems)


def test_every_answer_of_mgsm_is_read_back(problems):
    for question in problems:
        value = int(question.gold.replace(",", ""))
        for reply in (
            f"答え: {question.gold}",
            f"答え：{value}円",
            f"答えは{value:,}個です。",
            f"よって \\boxed{{{value}}}",
        ):
            assert score(mgsm.TASK, question, Reply(text=reply)).correct, (question.question_id, reply)
        for reply in (f"答え: {value + 1}", f"答え: -{value}", f"答え: {value}.5", f"答え: {value}万"):
            assert not score(mgsm.TASK, question, Reply(text=reply)).correct, (question.question_id, reply)


def test_our_own_small_sets_have_the_published_formats():
    assert len(jcommonsenseqa.load(CONFIG / "jcommonsenseqa-small" / "questions.jsonl")) == 40
    small = mgsm.load(CONFIG / "mgsm-small" / "questions.tsv")
    assert len(small) == 40
    assert not any(map(mgsm.is_damaged, small))


def test_published_data_comes_into_the_cache_once(tmp_path):
    mirror, cache = tmp_path / "mirror", tmp_path / "cache"
    mirror.mkdir()
    content = "問題\t18\n".encode()
    (mirror / "problems.tsv").write_bytes(content)
    source = Source("https://127.0.0.1:9/problems.tsv", hashlib.sha256(content).hexdigest(), 1)
    task = replace(mgsm.TASK, source=source)
    first = find(task, cache_root=cache, mirror=str(mirror))
    assert first.read_bytes() == content
    assert find(task, cache_root=cache) == first
    assert [question.gold for question in task.load(first)] == ["18"]


def test_our_own_set_needs_no_fetching(tmp_path):
    assert find(TASKS["proofreading"], cache_root=tmp_path) == CONFIG / "proofreading" / "sentences.jsonl"
    assert not list(tmp_path.iterdir())
