"""A target is never asked again what it has answered: at full size, killed half-way, cut short, enlarged."""

import errno
import json
import re
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from pathlib import Path
from types import SimpleNamespace

import msgspec
import pytest

import model_double
import servebench
import synthetic
from chat_double import ChatDouble
from model_double import BASELINE, PUBLISHED, SIGN_TESTS
from servebench import configuration, plan, schema, tables
from servebench.marks import mark
from servebench.outlook import duration, inventory
from servebench.outlook import questions as data
from servebench.plan.layout import Layout
from servebench.sessions import asking, job
from servebench.store import replies
from servebench.tables.evaluated import targets as evaluated
from servebench.tables.published import quantization
from servebench.tasks import TASKS
from servebench.tasks.answers import FAILED
from servebench.tasks.task import Question, Reply
from servebench.words.comparisons import said
from waiting import until

CONCURRENCY = 4
SMALL = {"jcommonsenseqa": {"set": "small", "limit": 10}, "mgsm": {"set": "small", "limit": 12}}


class Experiment:
    """Targets behind one address, with their questions in place."""

    def __init__(self, folder, url, tasks, targets=("A", "B"), **section):
        self.results = folder / "results" / "evaluated"
        self.config = {
            "experiment": "evaluated",
            "engines": {t.lower(): {"kind": "url", "url": url, "options": {"model": t}} for t in targets},
            "models": {t.lower(): {"source": "file:///nowhere.gguf", "sha256": "0" * 64} for t in targets},
            "workload": {"prompts": "en-short", "max_tokens": 4, "warmup_s": 1, "window_s": 1},
            "settings": {"s": {"engine": targets[0].lower(), "model": targets[0].lower(), "slots": 1, "users": [1]}},
            "evaluations": {
                "baseline": targets[0],
                "concurrency": CONCURRENCY,
                "tasks": tasks,
                "targets": {t: {"engine": t.lower(), "model": t.lower(), "slots": 4} for t in targets},
                **section,
            },
        }

    @property
    def plan(self):
        return configuration.load(self.config, ["config.yaml"])

    def context(self, target, **context):
        loaded = self.plan
        for name, task in loaded.evaluations.tasks.items():
            path = Layout(self.results).questions(name)
            data.copy(TASKS[name], task.set, task.sha256, path, cache_root=self.results / "cache")
        return job.Context(
            spec=plan.target_spec(loaded, target),
            models=loaded.models,
            engines=loaded.engines,
            results=self.results,
            runtime=plan.Runtime(ready_timeout_s=60),
            engine_log=self.results / "engine.log",
            **{"retry_failed": False, **context},
        )

    def run(self, target, **context):
        asking.run(self.context(target, **context))
        return replies.read(Layout(self.results).evaluation(target))

    def questions(self):
        return {
            name: data.asked_questions(self.results, name, task) for name, task in self.plan.evaluations.tasks.items()
        }

    def tables(self):
        loaded = self.plan
        read = [replies.read(Layout(self.results).evaluation(target)) for target in loaded.evaluations.targets]
        return synthetic.from_answers(loaded, read, self.questions())

    def stored(self):
        return sorted((self.results / "store" / "answers").glob("*.jsonl"))


def knows(prompt):
    return not prompt.startswith("What is the capital")


def constant(model, prompt, time):
    return Reply(text="答え: 1", finish_reason="stop")


@pytest.fixture
def double():
    with ChatDouble(constant, knows) as made:
        yield made


def write_choices(path):
    rows = [
        {
            "q_id": 8939 + i,
            "question": f"問{i}",
            "label": i % 5,
            **{f"choice{j}": c for j, c in enumerate("甲乙丙丁戊")},
        }
        for i in range(1119)
    ]
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")


def write_numbers(path):
    path.write_text("".join(f"問{i}\t{37 * i:,}\n" for i in range(1, 251)), encoding="utf-8")


def test_full_size_gives_the_published_figures(tmp_path):
    """1,119 + 250 + 300 questions, twice, of two targets over HTTP: replies, scores and p as published."""
    write_choices(tmp_path / "choices.jsonl")
    write_numbers(tmp_path / "numbers.tsv")
    tasks = {
        "jcommonsenseqa": {"set": str(tmp_path / "choices.jsonl")},
        "mgsm": {"set": str(tmp_path / "numbers.tsv")},
        "proofreading": {},
    }
    targets = (BASELINE, "Q4_K_M")
    loaded = {
        "jcommonsenseqa": TASKS["jcommonsenseqa"].load(tmp_path / "choices.jsonl"),
        "mgsm": TASKS["mgsm"].load(tmp_path / "numbers.tsv"),
        "proofreading": TASKS["proofreading"].load(
            servebench.ROOT / "config" / "tasks" / "proofreading" / "sentences.jsonl"
        ),
    }
    said = {
        (target, TASKS[task].prompt(question), repeat): (task, question.question_id, reply)
        for target, task, repeat, question, reply in model_double.replies(loaded, model_double.scripts())
        if target in targets
    }
    with ChatDouble(lambda *key: said[key][2], knows) as double:
        experiment = Experiment(tmp_path, double.url, tasks, targets, margins={"mgsm": 5})
        for target in targets:
            facts = experiment.run(target).facts
            assert (facts.status, facts.asked, facts.answered, facts.failures) == ("ok", 3338, 3338, 0)
        assert len(double.asked) == 2 * 1669
        assert set(double.asked.values()) == {2}
        assert double.most_running <= CONCURRENCY
        made = experiment.tables()
    stored = {(r["target"], r["task"], r["question_id"], r["repeat"]): r["text"] for r in made["answers"].to_pylist()}
    assert stored == {(target, task, id_, r): reply.text for (target, _, r), (task, id_, reply) in said.items()}
    for target in targets:
        for measure in ("jcommonsenseqa", "mgsm", "proof_fixed"):
            shares = [
                round(100 * row["share"], 1)
                for row in made["scores"].to_pylist()
                if (row["target"], row["measure"]) == (target, measure)
            ]
            assert (min(shares), max(shares)) == (
                PUBLISHED[target][f"{measure}_min"],
                PUBLISHED[target][f"{measure}_max"],
            )
    for row in made["comparisons"].to_pylist():
        wanted = SIGN_TESTS[row["measure"], "Q4_K_M"]
        run = f"run{row['repeat']}"
        assert (row["base_only"], row["other_only"]) == (wanted[f"{run}_base_only"], wanted[f"{run}_other_only"])
    published = quantization.quantization(made, experiment.plan)
    assert len(published["comparisons"]) == 8
    assert all(row["sentence"]["en"] for row in published["comparisons"])
    paths = tables.write(tmp_path / "tables", made)
    assert [tables.read(path).num_rows for path in paths] == [made[path.stem].num_rows for path in paths]


def test_every_request_says_how_it_is_sampled(tmp_path, double):
    experiment = Experiment(tmp_path, double.url, SMALL, seed=7)
    experiment.config["evaluations"]["targets"]["A"]["request"] = {"top_k": None, "x": {"y": 1}}
    experiment.run("A")
    body = double.bodies[0]
    assert {key: body[key] for key in ("model", "temperature", "top_p", "seed", "max_tokens", "x")} == {
        "model": "A", "temperature": 0, "top_p": 1.0, "seed": 7, "max_tokens": 64, "x": {"y": 1},
    }  # fmt: skip
    assert "top_k" not in body
    assert "grammar" not in body
    assert [message["role"] for message in body["messages"]] == ["user"]
    experiment.config["evaluations"]["tasks"] = {"mgsm": {**SMALL["mgsm"], "request": {"grammar": "g", "seed": 8}}}
    experiment.run("B")
    assert [double.bodies[-1][key] for key in ("top_k", "grammar", "seed", "max_tokens")] == [1, "g", 8, 2048]


def test_the_second_repeat_has_another_order_which_the_seed_decides(tmp_path, double):
    experiment = Experiment(tmp_path / "one", double.url, SMALL, concurrency=1)
    experiment.run("A")
    first, second = double.order[:22], double.order[22:]
    prompts = [TASKS[task].prompt(q) for task, questions in experiment.questions().items() for q in questions]
    assert [prompt for _, prompt in first] == prompts
    assert sorted(second) == sorted(first)
    assert second != first
    for seed, same in ((0, True), (1, False)):
        double.order.clear()
        Experiment(tmp_path / f"again{seed}", double.url, SMALL, concurrency=1, seed=seed).run("A")
        assert (double.order[22:] == second) is same


def test_what_is_answered_is_never_asked_again(tmp_path, double):
    experiment = Experiment(tmp_path, double.url, SMALL)
    before = experiment.run("A")
    asked = double.asked.total()
    assert asked == 2 * 22
    Layout(experiment.results).evaluation("A").unlink()
    after = experiment.run("A", retry_failed=True)
    assert double.asked.total() == asked
    assert after.answers.equals(before.answers)
    assert len(after.facts.sessions) == 1, "nothing to ask, nothing launched"


def test_what_another_job_has_asked_while_the_device_was_waited_for_is_not_asked_again(tmp_path, double, monkeypatch):
    experiment = Experiment(tmp_path, double.url, SMALL)
    launched = job.Context.launched

    def waited(self, *arguments):
        monkeypatch.setattr(job.Context, "launched", launched)
        experiment.run("A")
        return launched(self, *arguments)

    monkeypatch.setattr(job.Context, "launched", waited)
    found = experiment.run("A")
    assert double.asked.total() == 2 * 22
    assert (found.facts.answered, found.facts.reason) == (44, [])


def test_a_higher_limit_asks_only_the_new_questions(tmp_path, double):
    experiment = Experiment(tmp_path, double.url, {**SMALL})
    experiment.run("A")
    double.asked.clear()
    experiment.config["evaluations"]["tasks"] = {**SMALL, "mgsm": {"set": "small", "limit": 15}}
    facts = experiment.run("A").facts
    new = {("A", TASKS["mgsm"].prompt(question)) for question in experiment.questions()["mgsm"][12:]}
    assert len(new) == 3
    assert double.asked == Counter(dict.fromkeys(new, 2))
    assert facts.answered == 2 * 25


def test_killed_half_way_it_goes_on_where_it_was(tmp_path, caplog):
    caplog.set_level("INFO", "servebench")

    def slow(model, prompt, time_):
        time.sleep(0.02)  # a slow server
        return constant(model, prompt, time_)

    with ChatDouble(slow, knows) as double:
        experiment = Experiment(tmp_path, double.url, {"mgsm": {"set": "small"}, "proofreading": {"limit": 60}})
        context = experiment.context("A")
        command = [sys.executable, "-m", "servebench", "evaluate", "--spec", context.spec]
        command += ["--models", msgspec.json.encode(context.models).decode()]
        command += ["--engines", msgspec.json.encode(context.engines).decode()]
        command += ["--runtime", msgspec.json.encode(context.runtime).decode()]
        command += ["--results", str(context.results), "--engine-log", str(context.engine_log)]
        process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
        until(lambda: double.asked.total() >= 70, 60, "70 questions")
        process.send_signal(signal.SIGKILL)
        assert process.wait() == -signal.SIGKILL
        until(lambda: not double.connected, 60, "the end of what was in flight")
        assert 70 <= double.asked.total() < 200
        assert not Layout(experiment.results).evaluation("A").exists()
        kept = sum("question_id" in json.loads(line) for file in experiment.stored() for line in _whole_lines(file))
        assert double.asked.total() - kept <= CONCURRENCY, "at most the replies in flight are lost"
        lost = double.asked.total() - kept
        evaluated_ = experiment.run("A")
        assert double.asked.total() == 200 + lost
        assert evaluated_.facts.answered == 200
        assert len(evaluated_.facts.sessions) == 2
        left = 200 - kept
        assert f"evaluations A: {left} of {left} asked (proofreading), 0 failed" in caplog.text


def test_the_time_left_is_that_of_the_work_left(tmp_path, double, monkeypatch, caplog):
    caplog.set_level("INFO", "servebench")
    tasks = {"jcommonsenseqa": {"set": "small", "limit": 10}, "mgsm": {"set": "small", "max_tokens": 200}}
    experiment = Experiment(tmp_path, double.url, tasks, concurrency=1, repeats=1)
    clock = iter(range(0, 10_000, 8))
    monkeypatch.setattr(asking, "time", SimpleNamespace(monotonic=lambda: next(clock)))
    experiment.run("A")
    lines = [record.message for record in caplog.records if " asked (" in record.message]
    # 80 s for 10 choices of about 8 tokens: 8,000 s for 40 problems of 200
    assert "10 of 50" in lines[4] and duration.minutes(8000) in lines[4]
    assert "50 of 50" in lines[-1] and duration.minutes(0) in lines[-1]


def _whole_lines(file: Path):
    return file.read_bytes().split(b"\n")[:-1]


def test_a_cut_last_line_is_asked_again_and_a_damaged_one_is_kept_aside(tmp_path, double):
    experiment = Experiment(tmp_path, double.url, {"mgsm": {"set": "small", "limit": 5}})
    experiment.run("A")
    (file,) = experiment.stored()
    lines = file.read_bytes().splitlines(keepends=True)
    file.write_bytes(b"".join(lines[:-2]) + lines[-2][:30])  # the last one tells how the session ended
    double.asked.clear()
    assert experiment.run("A").facts.answered == 10
    assert double.asked.total() == 1
    assert all(json.loads(line) for line in _whole_lines(file))
    file.write_bytes(lines[0] + b'{"repeat": 1}\n' + b"".join(lines[1:]))
    assert experiment.run("A").facts.answered == 10
    assert double.asked.total() == 1
    assert file.with_name(f"{file.name}.damaged").read_bytes() == b'{"repeat": 1}\n'


def test_questions_without_a_reply_are_rows_with_a_reason_and_tried_again_when_forced(tmp_path):
    broken = {"HTTP 500": 500, "RemoteProtocolError": None}

    def answer(model, prompt, time_):
        for place, fault in enumerate(broken.values()):
            if prompt == prompts[place]:
                return fault
        return constant(model, prompt, time_)

    with ChatDouble(answer, knows) as double:
        experiment = Experiment(tmp_path, double.url, {"mgsm": {"set": "small", "limit": 6}})
        experiment.context("A")
        prompts = [TASKS["mgsm"].prompt(question) for question in experiment.questions()["mgsm"]]
        first = experiment.run("A")
        experiment.run("B")
        assert (first.facts.status, first.facts.answered, first.facts.failures) == ("ok", 8, 4)
        failed = [row for row in first.answers.to_pylist() if row["outcome"] == FAILED]
        assert Counter(re.split(":| for ", row["reason"])[0] for row in failed) == Counter([*broken, *broken])
        assert all(row["text"] is None and row["latency_s"] is not None for row in failed)
        assert double.asked["A", prompts[0]] == 2, "an error is an answer of the server: asked once a repeat"
        assert double.asked["A", prompts[1]] == 4, "a broken connection: sent once more"
        made = experiment.tables()
        row = next(row for row in made["scores"].to_pylist() if row["measure"] == "mgsm")
        assert (row["n"], row["questions"]) == (4, 6), "no reply is no wrong answer"
        assert schema.rows(made["targets"])[0]["marks"] == [mark("unanswered", unanswered=4, asked=12)]
        asked = double.asked.total()
        experiment.run("A")
        assert double.asked.total() == asked, "not by itself"
        broken.clear()
        again = experiment.run("A", retry_failed=True)
        assert double.asked.total() == asked + 4
        assert (again.facts.answered, again.facts.failures) == (12, 0)


def test_a_server_that_is_not_there_is_a_target_with_its_reason(tmp_path, double):
    experiment = Experiment(tmp_path, double.url, SMALL)
    experiment.config["engines"]["b"]["url"] = "http://127.0.0.1:9"
    experiment.run("A")
    context = experiment.context("B")
    asking.run(job.Context(**{**vars(context), "runtime": plan.Runtime(ready_timeout_s=0.1)}))
    made = experiment.tables()
    a, b = schema.rows(made["targets"])
    assert (a["status"], b["status"], b["answered"], b["sessions"]) == ("ok", "failed", 0, 0)
    (why,) = b["reason"]
    assert "127.0.0.1:9" in why.values["reason"]
    given_up = {t.name: inventory.given_up(experiment.plan, experiment.results, t) for t in _targets(experiment)}
    assert given_up == {"A": False, "B": True}
    assert [duration.to_ask_s(experiment.plan, experiment.results, t) for t in _targets(experiment)] == [0, 0]
    assert set(made["scores"]["target"].to_pylist()) == {"A"}
    assert made["comparisons"].num_rows == 0
    experiment.config["evaluations"]["baseline"] = "B"
    assert experiment.tables()["comparisons"].num_rows == 0, "no baseline, no comparison"
    quantization.quantization(experiment.tables(), experiment.plan)


def _targets(experiment):
    return experiment.plan.evaluations.targets.values()


@pytest.mark.parametrize("under_load", [None, {"users": 1, "task": "mgsm", "questions": 10}])
def test_a_full_disk_is_a_full_disk_whatever_is_asked_at_once(tmp_path, double, monkeypatch, under_load):
    experiment = Experiment(tmp_path, double.url, SMALL, under_load=under_load)
    if under_load:
        monkeypatch.setattr(asking._Evaluation, "conditions", (asking.LOADED,))

    def full(*_, **__):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(asking._Evaluation, "_keep", full)
    with pytest.raises(OSError, match="No space left on device"):
        experiment.run("A")


def test_a_server_that_dies_keeps_its_answers_and_is_not_blamed_on_a_question(tmp_path):
    gone = []

    def answer(model, prompt, time_):
        gone.append(prompt)
        if len(gone) > 10:
            return None
        return constant(model, prompt, time_)

    double = ChatDouble(answer, knows)
    with double:
        experiment = Experiment(tmp_path, double.url, SMALL)
        context = experiment.context("A")
        alive = asking.engines.Server.alive
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(asking.engines.Server, "alive", lambda self: len(gone) <= 10 and alive(self))
            asking.run(context)
        found = replies.read(Layout(experiment.results).evaluation("A"))
        assert found.facts.status == "failed"
        (why,) = found.facts.reason
        assert why.values["reason"].startswith("the server died")
        assert (found.facts.answered, found.facts.failures) == (10, 0)
        double.answer = constant
        assert experiment.run("A").facts.answered == 44


def test_under_load_the_same_questions_are_asked_of_a_busy_and_an_idle_server(tmp_path):
    others = []

    def answer(model, prompt, time_):
        busy = double.running > 1
        if prompt not in known:
            time.sleep(0.05)  # the load keeps the server busy
            return Reply(text="busy", finish_reason="length")
        others.append(busy)
        return Reply(text="答え: 0" if busy else f"答え: {known[prompt]}", finish_reason="stop")

    with ChatDouble(answer, knows) as double:
        load = {"users": 3, "task": "mgsm", "questions": 10}
        experiment = Experiment(tmp_path, double.url, SMALL, concurrency=1, under_load=load)
        experiment.config["workload"] |= {"mode": "conversation", "turns": 2, "temperature": 0.7, "seed": 5}
        experiment.context("A")
        questions = [q for of_task in experiment.questions().items() for q in _with_prompt(*of_task)]
        known = {prompt: question.gold for prompt, question in questions}
        facts = experiment.run("A").facts
        experiment.run("B")
        assert others[:54] == [False] * 54
        assert others[54:64] == [True] * 10
        assert facts.asked == 44, "those under load come on top"
        assert facts.sessions[-1].load.replies >= 3
        assert len(others) == 44 + 20 + 44, "of the baseline only"
        beside = [body for body in double.bodies if body["messages"][-1]["content"] not in known]
        assert all((b["stream"], b["temperature"], b["seed"], b["max_tokens"]) == (True, 0.7, 5, 4) for b in beside)
        assert "assistant" in {message["role"] for b in beside for message in b["messages"]}, "conversations grow"
        made = experiment.tables()
    (row,) = made["under_load"].to_pylist()
    assert (row["baseline"], row["target"], row["n"], row["questions"]) == ("A (idle)", "A (3 users)", 10, 10)
    assert (row["base_only"], row["other_only"], row["difference"]) == (10, 0, -100.0)
    assert row["verdict"] == "difference"
    assert set(made["scores"]["target"].to_pylist()) == {"A", "B"}
    assert {row["target"] for row in made["comparisons"].to_pylist()} == {"B"}
    assert quantization.quantization(made, experiment.plan)["under_load"][0]["sentence"] == said(row)


def test_without_a_load_nothing_is_asked_under_load_and_a_load_that_fails_at_times_is_a_mark(tmp_path):
    status, good, once = {"load": 400}, [], threading.Lock()

    def answer(model, prompt, time_):
        if prompt in known:
            return Reply(text="答え: 1", finish_reason="stop")
        time.sleep(0.05)  # each request of the load takes a while
        with once:
            return good.pop() if good else status["load"]

    with ChatDouble(answer, knows) as double:
        load = {"users": 3, "task": "mgsm", "questions": 10}
        experiment = Experiment(tmp_path, double.url, SMALL, concurrency=1, under_load=load)
        experiment.context("A")
        known = {prompt for of_task in experiment.questions().items() for prompt, _ in _with_prompt(*of_task)}
        facts = experiment.run("A").facts
        assert (facts.status, facts.answered) == ("ok", 44)
        assert sum(double.asked[key] for key in double.asked if key[1] in known) == 44 + 10
        experiment.run("B")
        made = experiment.tables()
        assert made["under_load"].num_rows == 0
        (found,) = schema.rows(made["targets"])[0]["marks"]
        assert found.kind == "no_load" and found.values["requests"] >= 3  # one or more of each user
        assert found.values["reason"].startswith("HTTP 400")
        before = found.values["requests"]
        status["load"] = 500
        good += 2 * [Reply(text="busy", finish_reason="length")]  # the load's first question, and one of its users
        told = experiment.run("A").facts.sessions[-1].load
        assert (told.users, told.replies) == (3, 1)
        assert told.failures >= 2
        made = experiment.tables()
    assert [row["n"] for row in made["under_load"].to_pylist()] == [10]
    (found,) = schema.rows(made["targets"])[0]["marks"]
    failures = before + told.failures
    assert (found.kind, found.values["failures"], found.values["requests"]) == ("load_failed", failures, failures + 1)
    assert found.values["reason"].startswith("HTTP 500")


def test_a_target_with_over_1_percent_of_a_tasks_replies_without_an_answer_is_marked(tmp_path):
    said = [("", "stop"), ("答え: 3", "length"), ("わかりました", "stop"), ("<think>", "stop")]

    def answer(model, prompt, time_):
        if model == "A" or prompt in choices:
            return Reply(text="1", finish_reason="stop")
        text, finish_reason = said.pop() if said else ("答え: 2", "stop")
        return Reply(text=text, finish_reason=finish_reason)

    with ChatDouble(answer, knows) as double:
        experiment = Experiment(tmp_path, double.url, SMALL)
        experiment.context("A")
        choices = {prompt for prompt, _ in _with_prompt("jcommonsenseqa", experiment.questions()["jcommonsenseqa"])}
        for target in ("A", "B"):
            experiment.run(target)
        none, some = schema.rows(experiment.tables()["targets"])
    outcomes = dict.fromkeys(("reasoning_leaked", "empty", "truncated", "unparsable"), 1)
    assert none["marks"] == []
    assert some["marks"] == [mark("without_answer", task="mgsm", without=4, replies=24, outcomes=outcomes)]


CUT = mark("without_answer", task="mgsm", without=3, replies=200, outcomes={"truncated": 3})


@pytest.mark.parametrize(("bad", "marks"), [(2, []), (3, [CUT])])
def test_up_to_1_percent_of_replies_without_an_answer_are_no_mark(bad, marks):
    counts = {"mgsm": Counter({"correct": 200 - bad, "truncated": bad, FAILED: 50})}
    assert list(evaluated.without_answer(counts)) == marks


def _with_prompt(task: str, questions: list[Question]):
    return [(TASKS[task].prompt(question), question) for question in questions]


def test_other_questions_than_planned_are_not_asked(tmp_path, double):
    experiment = Experiment(tmp_path, double.url, SMALL)
    context = experiment.context("A")
    path = Layout(experiment.results).questions("mgsm")
    path.write_text(path.read_text(encoding="utf-8").replace("5", "6"), encoding="utf-8")
    with pytest.raises(asking.engines.InfrastructureError, match=r"mgsm: has SHA-256 "):
        asking.run(context)
    assert not double.asked
