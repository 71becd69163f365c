"""Attach to a server we did not start, at any OpenAI-compatible address (LM Studio, TGI, a cloud endpoint)."""

from __future__ import annotations

import hashlib
import logging
import statistics
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

import httpx

from servebench import plan
from servebench.engines.base import Adapter, Command, Difference, LaunchFailed, Server, ask
from servebench.load.reply import ReplyError
from servebench.machine import cache
from servebench.machine.infrastructure import InfrastructureError, api_key, locked

ROUND_TRIPS = 9
log = logging.getLogger("servebench")


class Url(Adapter):
    """Nothing is launched or stopped; what the server does not say about itself stays unknown."""

    uses_gpu = False
    loads_model = False
    start_s = 1.0

    @staticmethod
    def gpus(setting: plan.Setting) -> int:
        """Return 0: the server runs on another machine."""
        return 0

    def command(self, port: int) -> Command:
        """Refuse: a server at a URL is not started by us."""
        raise InfrastructureError(f"engines.{self.setting.engine.key}: a server at a URL is not started by us")

    @property
    def model(self) -> str:
        """The engine's option `model`, else the model's name."""
        return str(self.setting.engine.options.get("model", self.setting.model.name))

    @property
    def root(self) -> str:
        """The server's root, without /v1."""
        assert self.setting.engine.url  # config: kind url has one (configuration.py)
        return self.setting.engine.url.rstrip("/").removesuffix("/v1")

    def headers(self) -> dict[str, str]:
        """Return the header with the API key, which comes from the environment only."""
        engine = self.setting.engine
        if engine.api_key_env is None:
            return {}
        return {"Authorization": f"Bearer {api_key(f'engines.{engine.key}.api_key_env', engine.api_key_env)}"}

    def inspect(self, client: httpx.Client) -> dict[str, Any]:
        """Ask for the models that the server lists, and its `Server` header."""
        response = client.get("/v1/models")
        found: dict[str, Any] = {"version": response.headers.get("server"), "build": None, "models": None}
        if response.is_success:
            with suppress(ValueError, KeyError, TypeError, AttributeError):  # the server lists no models
                found["models"] = [entry.get("id") for entry in response.json()["data"]]
        return found

    def compare(self, facts: Mapping[str, Any]) -> list[Difference]:
        """Compare the model alone, with those the server lists, if it lists any."""
        if facts["models"] and self.model not in facts["models"]:
            return [Difference(what="model", asked=self.model, got=", ".join(map(str, facts["models"])))]
        return []


@contextmanager
def attached(adapter: Url) -> Iterator[Server]:
    """Yield a `Server` for the address, once it has given a token, to this session alone.

    Two sessions at once, on whatever nodes, would measure each other. Raises `LaunchFailed` when no token comes.
    """
    name = hashlib.sha256(adapter.root.encode()).hexdigest()[:16]
    lock = cache.root(adapter.launch.runtime.cache) / "locks" / f"url-{name}.lock"
    waiting = "waiting for %s; another session measures it"
    with locked(lock, waiting=lambda _: log.warning(waiting, adapter.root)), _attached(adapter) as server:
        yield server


@contextmanager
def _attached(adapter: Url) -> Iterator[Server]:
    began_ns = time.monotonic_ns()
    deadline = time.monotonic() + adapter.launch.runtime.ready_timeout_s
    # As the load goes: without a proxy.
    tls = httpx.create_ssl_context()
    with httpx.Client(
        base_url=adapter.root, headers=adapter.headers(), timeout=30.0, trust_env=False, verify=tls
    ) as client:
        while True:
            try:
                ask(adapter, client, max_tokens=1)
                break
            except (httpx.HTTPError, ReplyError) as error:
                if time.monotonic() >= deadline:
                    raise LaunchFailed(f"{adapter.root} gave no token: {_said(error)}") from error
            time.sleep(0.5)
        first_token_s = (time.monotonic_ns() - began_ns) / 1e9
        try:
            facts = adapter.inspect(client) | round_trips(client)
        except httpx.HTTPError as error:
            raise LaunchFailed(f"{adapter.root}/v1/models: {_said(error)}") from error
        version, build = adapter.version(facts)

        def alive() -> bool:
            try:
                client.get("/v1/models")
            except httpx.HTTPError:
                return False
            return True

        def differences() -> list[Difference]:
            try:
                found = adapter.compare(adapter.inspect(client))
            except httpx.HTTPError as error:
                return [Difference(what="/v1/models", asked="a reply", got=_said(error))]
            return [*found, *adapter.probe(client)]

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


def round_trips(client: httpx.Client) -> dict[str, float]:
    """Measure the round-trip time: `round_trip_p50_s`, `_min_s` and `_max_s` over `ROUND_TRIPS` small requests.

    Each is `GET /v1/models` on an open connection, from before it is sent until its whole reply has arrived. The
    server's own time for the request is included; so is the time to connect, when the server closes every connection.
    The time to connect alone would be shorter: behind a cloud's front end it ends at that front end, not at the
    server. Raises httpx.HTTPError.
    """
    client.get("/v1/models")  # opens the connection where the server has closed it
    seconds = []
    for _ in range(ROUND_TRIPS):
        began_ns = time.monotonic_ns()
        client.get("/v1/models")
        seconds.append((time.monotonic_ns() - began_ns) / 1e9)
    return {
        "round_trip_p50_s": statistics.median(seconds),
        "round_trip_min_s": min(seconds),
        "round_trip_max_s": max(seconds),
    }


def _said(error: Exception) -> str:
    return str(error) or type(error).__name__
