"""Define what every engine has in common: the launch, the server, and the errors."""

from __future__ import annotations

import hashlib
import math
import os
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypedDict, cast

import httpx

from servebench import plan
from servebench.engines.arguments import Option
from servebench.load import body
from servebench.load.endpoint import CHAT
from servebench.load.reply import Completion, ReplyError, completion, evidence
from servebench.machine.gpu import Gpu
from servebench.machine.untrusted import redacted, shown
from servebench.marks import Mark, mark

PROBE_TIMEOUT_S = 60.0
CONNECT_TIMEOUT_S = 10.0
# What reading a server's answer ends in when the answer has another shape.
UNREADABLE = (
    httpx.HTTPError,
    httpx.InvalidURL,
    LookupError,
    TypeError,
    ValueError,
    AttributeError,
    ArithmeticError,
    RecursionError,
)
PROBE = "What is the capital of France? Answer with one word."


class Difference(TypedDict):
    """Describe one fact that is not as it was asked for."""

    what: str
    asked: Any
    got: Any


class LaunchFailed(Exception):
    """Report that the engine did not start or died: part of the experiment, a row with this reason."""

    def __init__(self, reason: str, log_tail: str = "") -> None:
        super().__init__(shown(reason))
        self.reason, self.log_tail = shown(reason), redacted(log_tail)

    @property
    def marks(self) -> list[Mark]:
        """Return the reason as it is stored."""
        return [mark("failed", reason=self.reason)]


class AskedNotGot(LaunchFailed):
    """The server runs but is not what was asked for; with `measured`, not any more after a measurement."""

    def __init__(self, differences: Sequence[Difference], log_tail: str, *, measured: bool = False) -> None:
        said = "; ".join(f"{d['what']}: asked {d['asked']}, got {d['got']}" for d in differences)
        super().__init__(f"after the measurement: {said}" if measured else said, log_tail)
        self.differences, self.measured = list(differences), measured

    @property
    def marks(self) -> list[Mark]:
        """Return each difference as it is stored."""
        kind = "no_longer_as_asked" if self.measured else "not_as_asked"
        return [mark(kind, **difference) for difference in self.differences]


@dataclass(frozen=True, kw_only=True)
class Launch:
    """Say what to launch, and with what."""

    setting: plan.Setting
    label: str  # for people: experiment, run, setting, round
    model_path: Path | None
    environment: Mapping[str, Any] | None  # manifest of servebench.engines.environment
    runtime: plan.Runtime
    log_path: Path
    devices: tuple[Gpu, ...]  # (): the CPU

    @property
    def device(self) -> Gpu | None:
        """Return the first device; None on the CPU."""
        return self.devices[0] if self.devices else None


@dataclass(frozen=True)
class Container:
    """Name a container, and the program that it belongs to: docker or podman."""

    tool: str
    name: str


@dataclass(frozen=True, kw_only=True)
class Command:
    """Say how to start a server: its command line, and the variables it gets beyond the allow-list."""

    argv: list[str]
    env: dict[str, str] = field(default_factory=dict)
    cleanup: list[str] = field(default_factory=list)  # removes what does not descend from us (a container)
    container: Container | None = None


@dataclass(frozen=True, kw_only=True)
class Server:
    """A server that is ready.

    `url` is its root (kind `url`: any address that an `Endpoint` takes); `extra` is to be merged into every request
    body.
    """

    url: str
    model: str
    extra: dict[str, Any]
    argv: list[str]
    env: dict[str, str]
    pid: int | None  # of the main process; None for a server we did not start
    devices: tuple[str, ...]  # the server's alone: UUIDs of GPUs, "cpu"; () for a server we did not start
    version: str | None
    build: str | None
    launched_ns: int  # CLOCK_MONOTONIC
    cold_start_s: dict[str, float | None]  # from launch to: process_s, healthy_s, first_token_s
    facts: Mapping[str, Any]  # what the server says about itself, as of the last `check`
    log_path: Path
    is_alive: Callable[[], bool]
    differences: Callable[[], list[Difference]]
    watched: tuple[str, ...] = ()  # UUIDs of the GPUs whose memory and use are the server's; (): the CPU

    def alive(self) -> bool:
        """Return whether the process lives (or, for a server we did not start, whether the server answers)."""
        return self.is_alive()

    def check(self) -> list[Difference]:
        """Find what is not as asked now: before the first user, and again after the last. Empty when all is well."""
        if not self.alive():
            return [Difference(what="server", asked="alive", got="dead")]
        try:
            found = self.differences()
        except UNREADABLE as error:
            found = [Difference(what="server", asked="answers", got=f"{type(error).__name__}: {error}")]
        return [cast(Difference, _storable(each)) for each in found]

    def log_tail(self, lines: int = 20) -> str:
        """Return the last lines of the log; it may hold a model's invalid UTF-8."""
        return log_tail(self.log_path, lines)

    def log_size(self) -> int:
        """Return how many bytes the log has now; 0 without a log."""
        return self.log_path.stat().st_size if self.log_path.exists() else 0

    def log_since(self, start: int) -> str:
        """Return the log's whole lines after its first `start` bytes; the last line may still be written."""
        if not self.log_path.exists():
            return ""
        with self.log_path.open("rb") as file:
            file.seek(start)
            part = file.read()
        return part[: part.rfind(b"\n") + 1].decode(errors="replace")


class Adapter(ABC):
    """One kind of engine. A subclass says how it is started, when it is healthy, and what it says about itself."""

    health_path = "/health"
    uses_gpu = True  # where there is one
    loads_model = True  # from a file or folder of this machine; it then needs the setting's `context`, too
    fills_device = False  # takes a share of the device's memory, whatever the model and its slots need
    start_s = 10.0  # roughly: from launch to the first token and to stop again, without reading the weights
    slots = Option()  # what the engine calls a setting's `slots`
    context = Option()  # and its `context`
    ignored: Mapping[str, str] = {}  # keys of a request's body that it drops without a word: what to do instead

    def __init__(self, launch: Launch) -> None:
        self.launch = launch
        self.setting = launch.setting
        self.log_start = 0  # bytes that the log had before this launch

    @abstractmethod
    def command(self, port: int) -> Command:
        """Return the command that serves on 127.0.0.1:`port`; raises `InfrastructureError` when a part is missing."""

    @staticmethod
    def cache_types(setting: plan.Setting) -> tuple[str, str]:
        """Return the types of the KV cache's keys and values that the setting asks for.

        Types that `models.kv_cache` knows have its names. Unless asked, an engine keeps 16 bits.
        """
        return "f16", "f16"

    @classmethod
    def option_names(cls, runtime: str | None) -> tuple[str, ...]:
        """Return the names that `engines.<key>.options` may have."""
        return ("thinking", "container") if runtime == "container" else ("thinking",)

    @staticmethod
    def unheard(variable: str, runtime: str | None) -> str | None:
        """Return what to do instead of giving an environment variable that has no effect; None for any other."""
        return None

    @staticmethod
    def fitting_context(context: int, slots: int, args: Sequence[str]) -> int | None:
        """Return the context that the engine would use instead of `context`; None where it uses `context` itself."""
        return None

    @staticmethod
    def gpus(setting: plan.Setting) -> int:
        """Return how many GPUs of one node the setting needs.

        An engine that runs on the CPU needs 1 too: the device that a session holds, and its turn among the sessions.
        """
        return 1

    @classmethod
    def memory_share(cls, setting: plan.Setting) -> float:
        """Return the share of its device's memory that the server may take; raises Fault for an impossible share."""
        return 1.0

    @staticmethod
    def micro_batch(argv: Sequence[str]) -> int | None:
        """Return how many prompt tokens a server started by `argv` takes in one computation.

        None for an engine whose command line does not say.
        """
        return None

    @classmethod
    def prompt_tokens(
        cls, client: httpx.Client, model: str, messages: Sequence[Mapping[str, str]], extra: Mapping[str, Any]
    ) -> list[int] | None:
        """Return the token ids that the server makes of a prompt, after its chat template.

        Two servers with different ids are not asked the same question. `extra` is what requests add to their bodies;
        its `chat_template_kwargs` change the template's output. None when the engine has no way to say, or answers
        with an error.
        """
        template = {key: extra[key] for key in ("chat_template_kwargs",) if extra.get(key) is not None}
        try:
            answer = cls.tokenized(client, {"model": model, "messages": messages, **template})
            return None if answer is None else [int(token) for token in answer["tokens"]]
        except (httpx.HTTPError, ValueError, KeyError, TypeError):
            return None

    @staticmethod
    def tokenized(client: httpx.Client, request: Mapping[str, Any]) -> dict[str, Any] | None:
        """Return the server's answer with the `tokens` of a chat request; None for an engine that has none."""
        return None

    @staticmethod
    def counted(log: str) -> dict[str, int]:
        """Count in the log of one load what happened to requests that no reply tells; {} for most engines."""
        return {}

    @property
    def model(self) -> str:
        """Return the model's name in requests."""
        return self.setting.model.key

    @property
    def chat_url(self) -> str:
        """Return where chat completions are asked for: an absolute address, or a path below the server's root."""
        return f"/v1/{CHAT}"

    @property
    def extra(self) -> dict[str, Any]:
        """Return what this engine needs in every request body to switch thinking off."""
        return {}

    @property
    def thinking_off(self) -> bool:
        """Return whether replies must bring no reasoning: yes, unless the engine's options say `thinking: true`."""
        return not self.setting.engine.options.get("thinking", False)

    def healthy(self, client: httpx.Client) -> bool:
        """Return whether the health endpoint answers 200. A ready server has given a token, too."""
        return client.get(self.health_path).status_code == httpx.codes.OK

    def prepare(self, client: httpx.Client) -> None:  # noqa: B027  most engines need nothing
        """Load the model, once the server is healthy, for an engine that does not load it by itself."""

    @abstractmethod
    def inspect(self, client: httpx.Client) -> dict[str, Any]:
        """Ask the server about itself: facts from its endpoints and its log, None for a fact it does not give."""

    def version(self, facts: Mapping[str, Any]) -> tuple[str | None, str | None]:
        """Return (version, build or commit)."""
        return facts.get("version"), facts.get("build")

    @abstractmethod
    def compare(self, facts: Mapping[str, Any]) -> list[Difference]:
        """Find the differences between what the setting asks and what `inspect` returned."""

    def log(self) -> str:
        """Return the server's log of this launch so far."""
        if not self.launch.log_path.exists():
            return ""
        with self.launch.log_path.open("rb") as file:
            file.seek(self.log_start)
            return file.read().decode(errors="replace")

    def probe(self, client: httpx.Client) -> list[Difference]:
        """Ask for one short reply: it must come, end properly, and bring no reasoning when none is wanted."""
        try:
            answer = ask(self, client, max_tokens=16)
        except (httpx.HTTPError, httpx.InvalidURL, ReplyError) as error:
            return [Difference(what="a short request", asked="a reply", got=str(error) or type(error).__name__)]
        text = (answer.text or "").strip()
        if len(text) >= 8 and len(set(text)) == 1:  # what NaN in the logits looks like, at full speed
            return [Difference(what="a short request", asked="a sensible reply", got=text)]
        if answer.prompt_tokens == 0:
            return [Difference(what="usage.prompt_tokens", asked="at least 1", got=0)]
        reasoning = answer.reasoning
        if not reasoning and re.match(r"\s*<think>(?!\s*</think>)", answer.text or ""):
            reasoning = answer.text or ""
        if self.thinking_off and (reasoning or answer.reasoning_tokens):
            size = f"{len(reasoning)} characters" if reasoning else f"{answer.reasoning_tokens} tokens"
            return [Difference(what="thinking", asked="off", got=f"{size} of reasoning")]
        return []


def ask(adapter: Adapter, client: httpx.Client, max_tokens: int) -> Completion:
    """Ask the server for one chat completion, not streamed.

    Raises httpx.HTTPError, and ReplyError when the request failed, did not finish or brought no token."""
    base = {
        "model": adapter.model,
        "messages": [{"role": "user", "content": PROBE}],
        "max_tokens": max_tokens,
        "temperature": 0,
    }
    content = body.build(base, adapter.extra, adapter.setting.request)
    response = client.post(
        adapter.chat_url, json=content, timeout=httpx.Timeout(PROBE_TIMEOUT_S, connect=CONNECT_TIMEOUT_S)
    )
    answer = completion(response, response.content)
    if answer.finish_reason is None or not (answer.text or answer.reasoning or answer.completion_tokens):
        raise ReplyError(f"no token came: {evidence(response.content)}")
    return answer


def inspected(adapter: Adapter, client: httpx.Client) -> dict[str, Any]:
    """Return what `adapter.inspect` finds, as it can be stored; raises one of UNREADABLE."""
    return {name: _storable(value) for name, value in adapter.inspect(client).items()}


def _storable(value: Any) -> Any:
    """Return a JSON value without secrets and without what files and terminals cannot hold.

    NaN and infinity become None, lone surrogates U+FFFD.
    """
    if isinstance(value, str):
        return shown(value.encode("utf-16", "surrogatepass").decode("utf-16", "replace"))
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(_storable(key)): _storable(held) for key, held in value.items()}
    return [_storable(held) for held in value] if isinstance(value, list | tuple) else value


def post(client: httpx.Client, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
    """Return the JSON answer to a POST. Raises httpx.HTTPError, and ValueError when the answer is not JSON."""
    response = client.post(path, json=body)
    response.raise_for_status()
    answer: dict[str, Any] = response.json()
    return answer


def log_tail(path: Path, lines: int, start: int = 0) -> str:
    """Return the last `lines` lines of a log after its first `start` bytes; invalid UTF-8 is replaced."""
    if not path.exists():
        return ""
    with path.open("rb") as file:
        file.seek(max(start, file.seek(0, os.SEEK_END) - 200 * lines - 4096))
        return "\n".join(file.read().decode(errors="replace").splitlines()[-lines:])


def unlike(asked: Mapping[str, Any], facts: Mapping[str, Any]) -> list[Difference]:
    """Find the `facts` that are not as `asked`; None on either side (not asked, not known) is no difference."""
    return [
        Difference(what=what, asked=wanted, got=facts[what])
        for what, wanted in asked.items()
        if wanted is not None and facts[what] is not None and facts[what] != wanted
    ]


def sha256(text: str | None) -> str | None:
    """Return the SHA-256 of a text such as a chat template; None stays None."""
    return None if text is None else hashlib.sha256(text.encode()).hexdigest()
