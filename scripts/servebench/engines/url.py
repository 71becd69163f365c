"""A server we did not start: any OpenAI-compatible address (LM Studio, TGI, a cloud endpoint)."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import httpx

from servebench.engines.base import Adapter, Command, Difference, LaunchFailed, Server, ask
from servebench.infrastructure import InfrastructureError


class Url(Adapter):
    """Nothing is launched, locked or stopped; what the server does not say about itself stays unknown."""

    uses_gpu = False

    def command(self, port: int) -> Command:
        """There is none."""
        raise InfrastructureError(f"engines.{self.setting.engine.key}: a server at a URL is not started by us")

    @property
    def model(self) -> str:
        """The engine's option `model`, else the model's name."""
        return str(self.setting.engine.options.get("model", self.setting.model.name))

    @property
    def root(self) -> str:
        """The server's root, without /v1."""
        assert self.setting.engine.url  # config: kind url has one (plan.py)
        return self.setting.engine.url.rstrip("/").removesuffix("/v1")

    def headers(self) -> dict[str, str]:
        """The API key, from the environment only."""
        name = self.setting.engine.api_key_env
        if name is None:
            return {}
        if not os.environ.get(name):
            raise InfrastructureError(
                f"engines.{self.setting.engine.key}.api_key_env: {name} is not set; export the key"
            )
        return {"Authorization": f"Bearer {os.environ[name]}"}

    def inspect(self, client: httpx.Client) -> dict[str, Any]:
        """The models it lists, and its `Server` header."""
        response = client.get("/v1/models")
        found: dict[str, Any] = {"version": response.headers.get("server"), "build": None, "models": None}
        if response.is_success:
            found["models"] = [entry.get("id") for entry in response.json().get("data", [])]
        return found

    def compare(self, facts: Mapping[str, Any]) -> list[Difference]:
        """Only whether it has the model, where it lists any."""
        if facts["models"] and self.model not in facts["models"]:
            return [Difference(what="model", asked=self.model, got=", ".join(map(str, facts["models"])))]
        return []


@contextmanager
def attached(adapter: Url) -> Iterator[Server]:
    """A `Server` for the address, once it has given a token. Raises `LaunchFailed` when it gives none in time."""
    began_ns = time.monotonic_ns()
    deadline = time.monotonic() + adapter.launch.runtime.ready_timeout_s
    with httpx.Client(base_url=adapter.root, headers=adapter.headers(), timeout=30.0) as client:
        while True:
            try:
                ask(client, adapter.model, {**adapter.extra, **adapter.setting.request}, max_tokens=1)
                break
            except (httpx.HTTPError, ValueError) as error:
                if time.monotonic() >= deadline:
                    raise LaunchFailed(f"{adapter.root} gave no token: {error}") from error
            time.sleep(0.5)
        first_token_s = (time.monotonic_ns() - began_ns) / 1e9
        facts = adapter.inspect(client)
        version, build = adapter.version(facts)

        def alive() -> bool:
            try:
                client.get("/v1/models")
            except httpx.HTTPError:
                return False
            return True

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
            differences=lambda: [*adapter.compare(adapter.inspect(client)), *adapter.probe(client)],
        )
