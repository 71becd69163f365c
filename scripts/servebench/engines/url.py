"""Attach to a server we did not start, at any OpenAI-compatible address (LM Studio, TGI, a cloud endpoint)."""

from __future__ import annotations

import hashlib
import logging
import ssl
import statistics
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

import httpx

from servebench import plan
from servebench.engines.base import (
    UNREADABLE,
    Adapter,
    Command,
    Difference,
    LaunchFailed,
    Server,
    ask,
    inspected,
)
from servebench.load import bounded, reach
from servebench.load.endpoint import CHAT, address
from servebench.load.reply import ReplyError
from servebench.machine import cache
from servebench.machine.infrastructure import InfrastructureError, api_key, locked

# The model of a configuration that names none: the only one that the server lists.
SERVED = "served"
ROUND_TRIPS = 9
# A server that the user says is running may be about to listen; after this long a refused connection is final.
REFUSED_S = 5.0
INSPECT_S = 30.0  # at least, for what the server says of itself and the round trips, once it has given a token
# HTTP statuses of a server, or a proxy before it, that is not ready yet: too early, too many requests, 5xx.
_NOT_READY = (408, 425, 429, *range(500, 600))
log = logging.getLogger("servebench")


class Url(Adapter):
    """Nothing is launched or stopped; what the server does not say about itself stays unknown."""

    uses_gpu = False
    loads_model = False
    start_s = 1.0
    _only: str | None = None

    @classmethod
    def option_names(cls, runtime: str | None) -> tuple[str, ...]:
        """Return all engines' options, and the model's name."""
        return *super().option_names(runtime), "model"

    @staticmethod
    def gpus(setting: plan.Setting) -> int:
        """Return 0: the server runs on another machine."""
        return 0

    def find_model(self, client: httpx.Client) -> None:
        """Take the only model that the server lists, where the configuration names none.

        Raises LaunchFailed for a server that lists several, and the errors of `UNREADABLE` for one that lists none.
        """
        if self._only or self.setting.model.name != SERVED or "model" in self.setting.engine.options:
            return
        names = [str(entry["id"]) for entry in client.get(self.models_url).raise_for_status().json()["data"]]
        if len(names) != 1:
            listed = ", ".join(names) or "none"
            told = f"{self.models_url} lists {len(names)} models ({listed})"
            raise LaunchFailed(f"{told}; name the one to measure: settings.{self.setting.name}.model")
        (self._only,) = names

    def command(self, port: int) -> Command:
        """Refuse: a server at a URL is not started by us."""
        raise InfrastructureError(f"engines.{self.setting.engine.key}: a server at a URL is not started by us")

    @property
    def model(self) -> str:
        """Return the engine's option `model`, else the model's name; of a model without one, what the server lists."""
        return self._only or str(self.setting.engine.options.get("model", self.setting.model.name))

    @property
    def url(self) -> str:
        """Return the server's address as the configuration gives it."""
        assert self.setting.engine.url  # config: kind url has one (configuration/faults.py)
        return self.setting.engine.url

    @property
    def root(self) -> str:
        """Return the address without a final /v1, below which requests go to the same place."""
        short = self.url.rstrip("/").removesuffix("/v1")
        return short if address(short, CHAT) == self.chat_url else self.url

    @property
    def chat_url(self) -> str:
        """Return the whole address of chat completions."""
        return address(self.url, CHAT)

    @property
    def models_url(self) -> str:
        """Return the whole address of the list of models; a server may have none."""
        return address(self.url, "models")

    def headers(self) -> dict[str, str]:
        """Return the header with the API key, which comes from the environment only."""
        engine = self.setting.engine
        if engine.api_key_env is None:
            return {}
        return {"Authorization": f"Bearer {api_key(f'engines.{engine.key}.api_key_env', engine.api_key_env)}"}

    def inspect(self, client: httpx.Client) -> dict[str, Any]:
        """Ask for the models that the server lists, and its `Server` header."""
        response = client.get(self.models_url)
        found: dict[str, Any] = {"version": response.headers.get("server"), "build": None, "models": None}
        if response.is_success:
            with suppress(*UNREADABLE):  # the server lists no models
                found["models"] = [entry.get("id") for entry in response.json()["data"]]
        return found

    def listed(self, facts: Mapping[str, Any]) -> bool:
        """Return whether the server lists the model under the name that is asked for.

        Servers also answer to names that they do not list: tags (`:latest`), aliases, wildcards, deployments.
        """
        tagged = self.model if ":" in self.model else f"{self.model}:latest"  # as Ollama lists it
        return not {self.model, tagged}.isdisjoint(facts["models"] or ())

    def compare(self, facts: Mapping[str, Any]) -> list[Difference]:
        """Find whether the server, which listed the model, now lists others only."""
        if facts["models"] and not self.listed(facts):
            return [Difference(what="model", asked=self.model, got=", ".join(map(str, facts["models"])))]
        return []


@contextmanager
def attached(adapter: Url) -> Iterator[Server]:
    """Yield a `Server` for the address, once it has given a token, to this session alone.

    Two sessions at once, on whatever nodes, would measure each other. Raises `LaunchFailed` when no token comes.
    """
    name = hashlib.sha256(adapter.chat_url.encode()).hexdigest()[:16]
    lock = cache.root(adapter.launch.runtime.cache) / "locks" / f"url-{name}.lock"
    waiting = "waiting for %s; another session measures it"
    with locked(lock, waiting=lambda _: log.warning(waiting, adapter.url)), _attached(adapter) as server:
        yield server


@contextmanager
def _attached(adapter: Url) -> Iterator[Server]:
    began_ns = time.monotonic_ns()
    deadline = time.monotonic() + adapter.launch.runtime.ready_timeout_s
    # As the load goes: without a proxy.
    with bounded.Client(timeout_s=30.0, headers=adapter.headers()) as client:
        client.until = deadline
        last: Exception | None = None
        while True:
            try:
                adapter.find_model(client)
                ask(adapter, client, max_tokens=1)
                break
            except UNREADABLE as error:  # ReplyError among them
                remedy = _final(adapter.chat_url, error, (time.monotonic_ns() - began_ns) / 1e9)
                if remedy is None and time.monotonic() < deadline:
                    last = error
                    time.sleep(0.5)
                    continue
                # What the server said before says more than that time was up.
                told = last if last and isinstance(error, httpx.TimeoutException) else error
                said = "; ".join(filter(None, (_said(told), remedy)))
                raise LaunchFailed(f"{adapter.chat_url} gave no token: {said}") from error
        first_token_s = (time.monotonic_ns() - began_ns) / 1e9
        client.until = max(deadline, time.monotonic() + INSPECT_S)
        try:
            facts = inspected(adapter, client) | round_trips(client, adapter.models_url)
        except UNREADABLE as error:
            raise LaunchFailed(f"{adapter.models_url}: {_said(error)}") from error
        client.until = None
        listed = adapter.listed(facts)
        if facts["models"] and not listed:
            others = ", ".join(map(str, facts["models"]))
            log.warning("%s answers to %s and lists only: %s", adapter.url, adapter.model, others)
        version, build = adapter.version(facts)

        def alive() -> bool:
            try:
                client.get(adapter.models_url)
            except UNREADABLE:
                return False
            return True

        def differences() -> list[Difference]:
            try:
                now = inspected(adapter, client)
            except UNREADABLE as error:
                return [Difference(what=adapter.models_url, asked="a reply", got=_said(error))]
            return [*(adapter.compare(now) if listed else ()), *adapter.probe(client)]

        yield Server(
            url=adapter.root,
            model=adapter.model,
            extra=adapter.extra,
            argv=[],
            env={},
            pid=None,
            devices=(),
            version=version,
            build=build,
            launched_ns=began_ns,
            cold_start_s={"process_s": None, "healthy_s": None, "first_token_s": first_token_s},
            facts=facts,
            log_path=adapter.launch.log_path,
            is_alive=alive,
            differences=differences,
        )


def round_trips(client: httpx.Client, url: str) -> dict[str, float]:
    """Measure the round-trip time: `round_trip_p50_s`, `_min_s` and `_max_s` over `ROUND_TRIPS` small requests.

    Each gets the list of models from `url` on an open connection, from before it is sent until its whole reply has
    arrived. The server's own time for the request is included; so is the time to connect, when the server closes every
    connection. The time to connect alone would be shorter: behind a cloud's front end it ends at that front end, not
    at the server. Raises httpx.HTTPError.
    """
    client.get(url)  # opens the connection where the server has closed it
    seconds = []
    for _ in range(ROUND_TRIPS):
        began_ns = time.monotonic_ns()
        client.get(url)
        seconds.append((time.monotonic_ns() - began_ns) / 1e9)
    return {
        "round_trip_p50_s": statistics.median(seconds),
        "round_trip_min_s": min(seconds),
        "round_trip_max_s": max(seconds),
    }


def _final(url: str, error: Exception, waited_s: float) -> str | None:
    """Return what to do about a failed request when waiting longer is in vain; None when the server may not be ready.

    Waited for are `_NOT_READY`, replies that do not come in time, connections that break, and for `REFUSED_S` a
    connection that is refused.
    """
    if isinstance(error, ReplyError) and error.status in _NOT_READY:
        return None
    if not isinstance(error, httpx.TransportError):
        status = error.status if isinstance(error, ReplyError) else None
        remedy = reach.refusal_remedy(url, status) if status else None
        return remedy or "is this the address of an OpenAI-compatible chat server?"
    if isinstance(error, httpx.ConnectError | httpx.ConnectTimeout):
        cause = _cause(error)
        waits = waited_s < REFUSED_S and not isinstance(cause, ssl.SSLError)
        return None if waits else reach.connect_remedy(cause, url)
    return None if isinstance(error, httpx.TimeoutException) else reach.refusal_remedy(url, None)


def _cause(error: BaseException) -> BaseException:
    """Return the error of the operating system or of TLS behind httpx's."""
    while (inner := error.__cause__ or error.__context__) is not None:
        error = inner
        if isinstance(error, OSError):
            break
    return error


def _said(error: Exception) -> str:
    return str(error) or type(error).__name__
