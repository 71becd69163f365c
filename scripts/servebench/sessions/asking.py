"""Evaluate one target: start its engine, ask every question without a reply, store each reply at once, stop.

A failure that is part of the experiment (an engine that does not start, a question without a reply) is recorded in the
result with its reason. A failure of the infrastructure raises; the replies received before it are in the store.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
import time
import uuid
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import msgspec

import servebench
from servebench import engines, plan
from servebench.engines import llama_log
from servebench.load import bounded
from servebench.load.beside import Counts, loaded
from servebench.load.endpoint import Endpoint
from servebench.machine import cpus
from servebench.machine.identity import machine
from servebench.marks import Mark
from servebench.outlook import duration
from servebench.outlook.questions import asked_questions
from servebench.plan import ALONE, LOADED
from servebench.plan.identity import named
from servebench.plan.layout import Layout
from servebench.sessions.client import Asked, ask_all, client_for
from servebench.sessions.job import Context, whole_log, workload_of
from servebench.sessions.progress import ASKING, Publisher
from servebench.store import replies
from servebench.store.records import ColdStart, ModelFile
from servebench.store.replies import AnswerFile
from servebench.tasks import TASKS
from servebench.tasks.answers import answer_row, failed_row, table
from servebench.tasks.task import Question, Reply
from servebench.versions import PROMPTS

SAY_EVERY_S, TELL_EVERY_S = 15.0, 1.0


log = logging.getLogger("servebench")


def run(context: Context) -> None:
    """Ask the missing questions, and write `results/<experiment>/evaluations/<target>.parquet`."""
    job = _Evaluation(context)
    try:
        reason: Sequence[Mark] = ()
        if job.pending():
            with Publisher(context.results, job.session, "evaluation") as published:
                reason = job.ask(published)
        job.write(reason)
    finally:
        job.close()


class _Evaluation:
    """Hold a target, its questions and its reply files: one for each task, and two for the task under load."""

    def __init__(self, context: Context) -> None:
        self.session = plan.session_from_spec(context.spec, 1, 0, context.models, context.engines)
        self.setting = self.session.setting
        self.context = context.identified(self.setting)
        content = json.loads(context.spec)
        self.repeats, self.seed = range(1, content["repeats"] + 1), int(content["seed"])
        self.tasks = msgspec.convert(content["tasks"], dict[str, plan.TaskSet])
        self.under_load: dict[str, Any] | None = content["under_load"]
        self.questions = {name: asked_questions(context.results, name, task) for name, task in self.tasks.items()}
        self.files: dict[tuple[str, str], AnswerFile] = {}
        self._open()
        self.session_id = uuid.uuid4().hex[:12]
        self.progress: _Progress | None = None

    def _open(self) -> None:
        """Open the reply files and read what they hold."""
        self.close()
        self.files = {(name, ""): self._file(name, None) for name in self.tasks}
        if self.under_load:
            name = self.under_load["task"]
            self.files |= {(name, condition): self._file(name, condition) for condition in (ALONE, LOADED)}

    def _file(self, task: str, condition: str | None) -> AnswerFile:
        digest = plan.answers_digest(self.context.spec, task, condition)
        return AnswerFile(Layout(self.context.results).replies(digest))

    def close(self) -> None:
        """Close the reply files."""
        for file in self.files.values():
            file.close()

    def wanted(self, condition: str = "") -> Iterator[Asked]:
        """Yield all questions in the order of asking.

        The first repeat follows the files, further repeats are shuffled task by task. Under load: the first questions
        of one task, once.
        """
        if condition:
            assert self.under_load
            name = self.under_load["task"]
            for question in self.questions[name][: self.under_load["questions"]]:
                yield Asked(name, 1, question, self.tasks[name].max_tokens, self.tasks[name].request)
            return
        for repeat in self.repeats:
            for name, task in self.tasks.items():
                questions = self.questions[name]
                for question in questions if repeat == 1 else shuffled(questions, self.seed):
                    yield Asked(name, repeat, question, task.max_tokens, task.request)

    def missing(self, condition: str = "") -> list[Asked]:
        """Return the questions of `wanted` that have no reply."""
        return [
            asked
            for asked in self.wanted(condition)
            if self.files[asked.task, condition].missing(
                asked.repeat, asked.question.question_id, retry_failed=self.context.retry_failed
            )
        ]

    @property
    def conditions(self) -> tuple[str, ...]:
        """Return the conditions under which questions are asked; "" is the evaluation itself."""
        return ("", ALONE, LOADED) if self.under_load else ("",)

    def pending(self) -> int:
        """Count the questions that have no reply."""
        return sum(len(self.missing(condition)) for condition in self.conditions)

    def _work(self, asked: Asked, condition: str) -> float:
        """Estimate the work of a question: the tokens of its reply ÷ the number of questions asked at once."""
        tokens = min(asked.max_tokens, TASKS[asked.task].reply_tokens)
        return tokens if condition else tokens / self.setting.users[0]

    def ask(self, published: Publisher) -> Sequence[Mark]:
        """Ask every question that has no reply; return why the engine failed, empty when it did not."""
        context, setting = self.context, self.setting
        model_path, model = context.weights(setting)
        log.info("evaluations %s: starting %s", setting.name, setting.engine.kind)
        try:
            with context.launched(self.session, model_path) as server:
                self._open()  # another job may have asked the same questions while this job waited for the device
                self._keep_session(**_facts(server, setting, model), prompt_tokens=self._prompt_tokens(server))
                work = [self._work(asked, c) for c in self.conditions for asked in self.missing(c)]
                self.progress = _Progress(setting.name, len(work), sum(work), published)
                try:
                    asyncio.run(self._ask(server))
                except ExceptionGroup as group:
                    raise _first(group) from None
                if not server.alive():
                    said = server.log_tail()
                    raise engines.LaunchFailed("the server died while answering: " + _last_line(said), said)
                self._keep_session(differences=msgspec.convert(server.check(), list[replies.Difference]))
        except engines.LaunchFailed as error:
            log.error("evaluations %s: %s", setting.name, error.reason)
            return error.marks
        return ()

    def _endpoint(self, server: engines.Server) -> Endpoint:
        return Endpoint(
            url=server.url,
            model=server.model,
            extra={**server.extra, **self.setting.request},
            api_key_env=self.setting.engine.api_key_env,
        )

    def _load(self, endpoint: Endpoint) -> AbstractAsyncContextManager[Counts]:
        """Load the endpoint with the experiment's workload, as a session of this setting would."""
        assert self.under_load
        return loaded(
            endpoint,
            workload_of(self.under_load["workload"]),
            self.under_load["users"],
            processes=self.setting.processes,
            seed=self.seed,
            cpus=cpus.allot(self.setting.cpus).get("load", []),
        )

    async def _ask(self, server: engines.Server) -> None:
        setting, endpoint, log_start = self.setting, self._endpoint(server), server.log_size()
        async with client_for(endpoint, setting.users[0]) as client:
            for condition in self.conditions:
                if condition == LOADED:  # the log then has the load's requests, too
                    self._keep_unsaid(server, log_start)
                questions = self.missing(condition)
                if not questions:
                    continue

                def answered(asked: Asked, answer: replies.Answer, condition: str = condition) -> bool:
                    if answer.failed is not None and not server.alive():
                        return False  # the engine failed, not the question
                    self._keep(asked, answer, condition)
                    return True

                at_once = 1 if condition else setting.users[0]
                if condition == LOADED:
                    async with self._load(endpoint) as load:
                        self._keep_session(load=replace(load))
                        if load.replies:
                            try:
                                await ask_all(client, endpoint, questions, at_once, self.seed, answered)
                            finally:
                                self._keep_session(load=replace(load))
                        elif server.alive():
                            said = "evaluations %s: no question asked under load: all requests of the load failed (%s)"
                            log.error(said, setting.name, load.failed)
                else:
                    await ask_all(client, endpoint, questions, at_once, self.seed, answered)
            if LOADED not in self.conditions:
                self._keep_unsaid(server, log_start)

    def _keep_unsaid(self, server: engines.Server, log_start: int) -> None:
        """Keep what the server did to questions without telling it in a reply, as far as its log tells it."""
        log = whole_log(server, log_start)
        told = engines.ADAPTERS[self.setting.engine.kind].counted(log)
        if ends := [request.truncated for request in llama_log.requests(log) if request.truncated is not None]:
            told["shifted_replies"] = sum(ends)
        if told:
            self._keep_session(facts={**server.facts, **told})

    def _keep(self, asked: Asked, answer: replies.Answer, condition: str) -> None:
        reply = replies.Reply(
            repeat=asked.repeat,
            question_id=asked.question.question_id,
            session_id=self.session_id,
            **msgspec.structs.asdict(answer),
        )
        self.files[asked.task, condition].append(reply)
        assert self.progress
        self.progress.say(asked.task, condition, self._work(asked, condition), failed=answer.failed is not None)

    def _keep_session(self, **facts: Any) -> None:
        session = replies.AskingSession(session_id=self.session_id, **facts)
        for file in self.files.values():
            file.append(replies.SessionLine(session=session))

    def _prompt_tokens(self, server: engines.Server) -> dict[str, list[int] | None]:
        """Ask the server for the token ids of each task's first question."""
        endpoint, ids_of = self._endpoint(server), engines.ADAPTERS[self.setting.engine.kind].prompt_tokens
        headers = endpoint.request_headers()
        with bounded.Client(server.url, timeout_s=30.0, headers=headers) as client:
            return {
                name: ids_of(client, server.model, Asked(name, 1, questions[0], 0).messages, endpoint.extra)
                for name, questions in self.questions.items()
            }

    def _prompt_lengths(self) -> dict[str, dict[str, int]]:
        return {
            name: {
                question: reply.prompt_tokens
                for (_, question), reply in self.files[name, ""].replies.items()
                if reply.prompt_tokens is not None
            }
            for name in self.tasks
        }

    def write(self, reason: Sequence[Mark]) -> None:
        """Write the replies as a table, together with the sessions that got them."""
        rows = []
        for condition in self.conditions:
            for asked in self.wanted(condition):
                reply = self.files[asked.task, condition].replies.get((asked.repeat, asked.question.question_id))
                if reply is not None:
                    rows.append(_row(named(self.setting.name, condition, self.under_load), asked, reply))
        counts = Counter(row["outcome"] == "failed" for row in rows if row["target"] == self.setting.name)
        sessions: dict[str, replies.AskingSession] = {}
        for file in self.files.values():
            for session in file.sessions.values():
                replies.merged(sessions, session)
        facts = replies.EvaluationFacts(
            target=self.setting.name,
            digest=plan.digest(self.context.spec),
            status="failed" if reason else "ok",
            reason=list(reason),
            asked=sum(1 for _ in self.wanted()),
            answered=counts[False],
            failures=counts[True],
            setting=msgspec.to_builtins(self.setting),
            prompt_lengths=self._prompt_lengths(),
            sessions=sorted(sessions.values(), key=lambda session: session.started_at or ""),
            servebench=replies.Evaluator(version=servebench.__version__, prompts=PROMPTS),
        )
        path = Layout(self.context.results).evaluation(self.setting.name)
        replies.write(replies.Evaluated(table(rows), facts), path)
        log.info(
            "evaluations %s: %d of %d questions answered, %d failed",
            self.setting.name,
            facts.answered,
            facts.asked,
            facts.failures,
        )


def _first(error: Exception) -> Exception:
    """Return the first exception of a group that concurrent tasks raised."""
    return _first(error.exceptions[0]) if isinstance(error, ExceptionGroup) else error


def shuffled(questions: Sequence[Question], seed: int) -> list[Question]:
    """Shuffle the questions in the same way on every machine (`random` may change with Python)."""
    return sorted(questions, key=lambda question: hashlib.sha256(f"{seed} {question.question_id}".encode()).digest())


def _row(target: str, asked: Asked, reply: replies.Reply) -> dict[str, Any]:
    question, latency_s = asked.question, reply.latency_s
    if reply.failed is not None:
        return failed_row(target, asked.task, asked.repeat, question.question_id, reply.failed, latency_s)
    said = Reply(text=reply.text, finish_reason=reply.finish_reason, reasoning=reply.reasoning)
    return answer_row(target, asked.task, asked.repeat, question, said, tokens=reply.tokens, latency_s=latency_s)


def _facts(server: engines.Server, setting: plan.Setting, model: Mapping[str, Any] | None) -> dict[str, Any]:
    """Describe a session: its server and its machine."""
    return {
        "started_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "engine_version": server.version,
        "engine_build": server.build,
        "engine_pin": setting.engine.pin,
        "argv": server.argv,
        "env": server.env,
        "cold_start_s": ColdStart(**server.cold_start_s),
        "facts": server.facts,
        "model": msgspec.convert(model, ModelFile | None),
        "machine": machine(),
    }


def _last_line(text: str) -> str:
    return next((line for line in reversed(text.splitlines()) if line.strip()), "its log is empty")


class _Progress:
    """Report progress and the time left, to `servebench watch` always and to the console now and then.

    The time left follows from the work left rather than from the number of questions: one problem takes as long as
    dozens of multiple choices, and is asked after them.
    """

    def __init__(self, target: str, total: int, work: float, published: Publisher) -> None:
        self.target, self.total, self.work, self.published = target, total, work, published
        self.done = self.failed = 0
        self.worked = 0.0
        self.began = self.said = time.monotonic()
        self.told = 0.0

    def say(self, task: str, condition: str, work: float, *, failed: bool) -> None:
        """Count one more reply and report the progress."""
        self.done += 1
        self.worked += work
        self.failed += failed
        now = time.monotonic()
        left_s = (now - self.began) / self.worked * max(0.0, self.work - self.worked)
        what = f"{task}, {condition}" if condition else task
        last = self.done == self.total
        if now - self.told >= TELL_EVERY_S or last:
            self.told = now
            counts = {"asked": self.done, "questions": self.total, "failures": self.failed}
            self.published.tell(phase=ASKING, task=what, left_s=left_s, **counts)
        if now - self.said >= SAY_EVERY_S or last:
            self.said = now
            log.info(
                "evaluations %s: %d of %d asked (%s), %d failed; %s left of this target",
                *(self.target, self.done, self.total, what, self.failed, duration.minutes(left_s)),
            )
