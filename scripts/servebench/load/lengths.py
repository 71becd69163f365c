"""Give prompts a length in tokens: real text, cut by the tokenizer of the server that is loaded.

A count includes what the chat template adds, so that it is the server's `usage.prompt_tokens`.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import httpx

from servebench import __version__
from servebench.faults import Fault
from servebench.load import body, bounded, reach
from servebench.load.arrivals import Pause
from servebench.load.endpoint import CHAT, Endpoint
from servebench.load.prompts import NUMBERS, PromptSource, number, running
from servebench.load.reply import Completion, ReplyError, completion
from servebench.load.tokens import counter
from servebench.load.traces import BLOCK, MOST_TOKENS
from servebench.load.workload import Workload

# Texts of one measurement: quantiles of the distribution, each sent about equally often. Fewer where they are long,
# or where each count costs a completion.
TEXTS, FEW_TEXTS, ALL_TOKENS = 64, 8, 131_072
# Texts of a trace's blocks, and the tokens at which each is cut.
BLOCK_TEXTS, POINTS = 32, (128, 256, 384, BLOCK)
# Trials for one text. Where each costs a completion, a text within this share of its length is good enough.
_TRIALS, _NEAR = 24, 0.005
# Characters per token: a first guess, and more than any tokenizer has on average in prose; and the most tokens that a
# chat template can be believed to add.
_CHARS_PER_TOKEN, _MOST_CHARS_PER_TOKEN, _MOST_ADDED = 4.0, 12, 4096
_VERSION = re.compile(r"/v\d+$")


@dataclass(frozen=True, slots=True)
class Lengths:
    """Draw numbers of tokens: a constant, or a distribution in the forms of `Pause`."""

    drawn: Pause

    @classmethod
    def parse(cls, key: str, value: int | str) -> Lengths:
        """Parse `1024` or "uniform:100,2000". Raises Fault that begins with `key`."""
        try:
            found = cls(Pause.parse(str(value)))
        except Fault:
            forms = "an integer, uniform:LOW,HIGH, exp:MEAN or lognormal:MEAN,SIGMA"
            raise Fault(f"{key}: {value!r} is not a number of tokens; write {forms}") from None
        if not 1 <= found.mean <= MOST_TOKENS:
            raise Fault(f"{key}: {value!r} is not a number of tokens; give at least 1 and at most {MOST_TOKENS:,}")
        return found

    @property
    def constant(self) -> int | None:
        """Return the number that is always drawn; None for a distribution."""
        return round(self.drawn.parameters[0]) if self.drawn.kind == "constant" else None

    @property
    def mean(self) -> float:
        """Return the distribution's mean, tokens."""
        return self.drawn.mean

    def draw(self, random: Random) -> int:
        """Draw a number of tokens, at least 1 and at most MOST_TOKENS."""
        return round(min(max(1.0, self.drawn.draw_s(random)), MOST_TOKENS))

    def sample(self, count: int) -> list[int]:
        """Return `count` numbers that represent the distribution, the same each time, smallest first."""
        if self.constant is not None:
            return [self.constant] * count
        random = Random("lengths")
        drawn = sorted(self.draw(random) for _ in range(count * 101))
        return drawn[50::101]


@dataclass(frozen=True)
class Counter:
    """Count the tokens of a text as the server does.

    `how`: "/tokenize", "tokenizer" (a file) or "usage" (of completions of one token). `added`: tokens that the chat
    template and a system message add to the user's message.
    """

    how: str
    count: Callable[[str], int]
    added: int


@dataclass(frozen=True)
class Fitted:
    """Hold (tokens, characters) of each text that was cut, `Counter.how` and `Counter.added`; empty where none was."""

    cuts: list[tuple[int, int]] = field(default_factory=list)
    how: str | None = None
    added: int = 0


def fitted(endpoint: Endpoint, workload: Workload, source: PromptSource, *, blocks: bool = False) -> Fitted:
    """Find where to cut a set's texts so that prompts have the workload's `prompt_tokens`; or the blocks of a trace.

    Asks the server, or reads the workload's `tokenizer`. Raises Fault.
    """
    if workload.prompt_tokens is None and not blocks:
        return Fitted()
    headers = {"user-agent": f"servebench/{__version__}", **endpoint.request_headers()}
    with bounded.Client(timeout_s=workload.timeout_s, headers=headers) as client:
        client.timeout = httpx.Timeout(workload.timeout_s, connect=workload.connect_timeout_s)
        return _fitted(client, endpoint, workload, source, blocks)


def _fitted(client: httpx.Client, endpoint: Endpoint, workload: Workload, source: PromptSource, blocks: bool) -> Fitted:
    head = f"No. {number(source.number_seed, NUMBERS - 1):012d}\n"
    counted = counter_of(client, endpoint, workload, head + running(source.entries, 0, 400))
    least = counted.count(head) + counted.added
    cuts: list[tuple[int, int]] = []
    ratio = _CHARS_PER_TOKEN
    if blocks:
        places, texts = (POINTS, BLOCK_TEXTS) if counted.how != "usage" else ((BLOCK,), FEW_TEXTS)
        for i in range(texts):
            text = running(source.entries, i * len(source.entries) // texts, _MOST_CHARS_PER_TOKEN * BLOCK)
            cuts.append((least - counted.added, 0))
            for tokens in places:
                chars, ratio = _fit(counted, head, least, text, tokens + counted.added, ratio)
                cuts.append((tokens, chars))
        return Fitted(cuts, counted.how, counted.added)
    wanted = Lengths.parse("workload.prompt_tokens", workload.prompt_tokens or 0)
    texts = FEW_TEXTS if counted.how == "usage" else round(ALL_TOKENS / wanted.mean)
    sizes = wanted.sample(min(max(texts, FEW_TEXTS), TEXTS))
    if sizes[0] < least and wanted.constant is not None:
        needs = f"the chat template and the number line alone have {least} tokens"
        raise Fault(f"workload.prompt_tokens: {sizes[0]} is too few: {needs}; give more")
    for i, tokens in enumerate(sizes):
        text = running(source.entries, i * len(source.entries) // len(sizes), _MOST_CHARS_PER_TOKEN * tokens)
        chars, ratio = _fit(counted, head, least, text, max(tokens, least), ratio)
        cuts.append((tokens, chars))
    return Fitted(cuts, counted.how, counted.added)


def _fit(counted: Counter, head: str, least: int, text: str, tokens: int, ratio: float) -> tuple[int, float]:
    """Return how many characters of `text`, behind `head`, make `tokens` tokens, and the characters per token found.

    `least` tokens are there without any text; `ratio` is a first guess of the characters per token. Where no cut gives
    the exact number, the nearest of those tried counts.
    """
    near = max(1, _NEAR * tokens) if counted.how == "usage" else 0
    guess = round((tokens - least) * ratio)
    tried: list[tuple[int, int]] = []
    for _ in range(_TRIALS):
        chars = min(max(guess, 1), len(text))
        missing = tokens - counted.added - counted.count(head + text[:chars].rstrip())
        tried.append((abs(missing), chars))
        if abs(missing) <= near or (missing > 0 and chars == len(text)):
            break
        if tokens - missing > least:
            ratio = chars / (tokens - missing - least)
        guess = chars + round(missing * ratio if abs(missing) > 2 else missing / abs(missing))
        seen, best = {place for _, place in tried}, min(tried)[1]
        if guess in seen:  # then the nearest place around the best one that has not been tried
            guess = next(
                best + way * step for step in range(1, _TRIALS) for way in (1, -1) if best + way * step not in seen
            )
    return min(tried)[1], ratio


def counter_of(client: httpx.Client, endpoint: Endpoint, workload: Workload, example: str) -> Counter:
    """Find how to count tokens as the server at `endpoint` does; it gets a few short requests.

    First choice is the workload's `tokenizer`, then the server's `/tokenize`, then the usage that it reports.
    `example` is a user message. The counter asks by `client`, and ends with it. Raises Fault when the server cannot be
    asked, or when there is no way to count.
    """
    system = [{"role": "system", "content": workload.system}] if workload.system else []

    def used(text: str) -> int | None:
        return _answer(client, endpoint, [*system, {"role": "user", "content": text}]).prompt_tokens

    file = counter(workload.tokenizer)
    whole = used(example)
    ways: dict[str, Callable[[str], int | None]] = {"/tokenize": lambda text: _tokenized(client, endpoint, text)}
    if file is not None:
        ways = {"tokenizer": file, **ways}
    for how, count in ways.items():
        own = count(example)
        if own is not None and whole is None:
            return Counter(how, _sure(count), 0)
        if own is not None and whole is not None and 0 <= whole - own <= _MOST_ADDED:
            return Counter(how, _sure(count), whole - own)
    if whole is None:
        problem = "the server neither counts tokens (/tokenize) nor reports usage"
        raise Fault(f"workload.prompt_tokens: {problem}; name the model's tokenizer.json: workload.tokenizer")
    return Counter("usage", _sure(used), 0)


def _sure(count: Callable[[str], int | None]) -> Callable[[str], int]:
    def counted(text: str) -> int:
        found = count(text)
        if found is None:
            raise Fault("workload.prompt_tokens: the server stopped counting tokens; is it still up?")
        return found

    return counted


def _answer(client: httpx.Client, endpoint: Endpoint, messages: list[dict[str, Any]]) -> Completion:
    """Ask for one token. Raises Fault."""
    base = {"model": endpoint.model, "messages": messages, "max_tokens": 1, "temperature": 0}
    over = {key: value for key, value in endpoint.extra.items() if key not in (*body.LIMITS, "stream_options")}
    try:
        response = client.post(endpoint.chat_url, json=body.build(base, over))
        return completion(response, response.content)
    except (httpx.HTTPError, ReplyError) as error:
        status = error.status if isinstance(error, ReplyError) else None
        remedy = reach.refusal_remedy(endpoint.chat_url, status) or "is the server up?"
        told = f"cannot be asked how long prompts are: {error or type(error).__name__}"
        raise Fault(f"{endpoint.chat_url}: {told}; {remedy}") from None


def _tokenized(client: httpx.Client, endpoint: Endpoint, text: str) -> int | None:
    """Return how many tokens the server's `/tokenize` (llama.cpp, vLLM, SGLang) makes of a text; None without one."""
    parts = urlsplit(endpoint.chat_url)
    root = _VERSION.sub("", parts.path.removesuffix(f"/{CHAT}"))
    request = {"model": endpoint.model, "content": text, "prompt": text, "add_special_tokens": False}
    try:
        answer = client.post(urlunsplit(parts._replace(path=f"{root}/tokenize")), json=request)
        return len(answer.json()["tokens"]) if answer.is_success else None
    except (httpx.HTTPError, ValueError, KeyError, TypeError):
        return None
