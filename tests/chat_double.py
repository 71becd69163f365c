"""Run a chat server in this process that gives scripted answers and counts its requests."""

import threading
from collections import Counter
from collections.abc import Callable, Iterator

from http_double import CLOSE, HttpDouble, Request, Step
from servebench.tasks.task import Reply

PROBED = Reply(text="Paris", finish_reason="stop")


class ChatDouble(HttpDouble):
    """`answer(model, prompt, time)` gives the reply to the `time`-th asking (from 1) of a prompt; None: the connection
    is dropped; a number: an error with this HTTP status. `asked`: how often each (model, prompt) was; `order`: in
    which order; `bodies`: the requests as they came; `keys`: their Authorization. Prompts that `knows` says False of
    are probes. `listing`: what it says of its models, after `delay_s`."""

    def __init__(self, answer: Callable[[str, str, int], Reply | int | None], knows: Callable[[str], bool]) -> None:
        self.answer, self.knows = answer, knows
        self.asked: Counter[tuple[str, str]] = Counter()
        self.order: list[tuple[str, str]] = []
        self.bodies: list[dict] = []
        self.keys: set[str | None] = set()
        self.listing, self.delay_s = b'{"data": []}', 0.0
        self.running = self.most_running = 0
        self.lock = threading.Lock()

    def respond(self, request: Request) -> Iterator[Step]:
        if request.method == "GET":
            yield self.delay_s
            yield request.response(self.listing)
            return
        if "messages" not in request.body:  # it has no such path as /tokenize
            yield request.response({"error": {"message": "not found"}}, 404)
            return
        self.keys.add(request.headers.get("authorization"))
        said = self.reply(request.body)
        if said is None:
            yield CLOSE
        elif isinstance(said, int):
            yield request.response({"error": {"message": "told to"}}, said)
        else:
            message = {"role": "assistant", "content": said.text, "reasoning_content": said.reasoning}
            choice = {"index": 0, "message": message, "finish_reason": said.finish_reason}
            usage = {"prompt_tokens": 9, "completion_tokens": 3}
            yield request.response({"choices": [choice], "usage": usage})

    def reply(self, body: dict) -> Reply | int | None:
        prompt = body["messages"][-1]["content"]
        if not self.knows(prompt):
            return PROBED
        key = (body["model"], prompt)
        with self.lock:
            self.asked[key] += 1
            asking = self.asked[key]
            self.order.append(key)
            self.bodies.append(body)
            self.running += 1
            self.most_running = max(self.most_running, self.running)
        try:
            return self.answer(*key, asking)
        finally:
            with self.lock:
                self.running -= 1
