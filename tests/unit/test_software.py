"""`servebench load` records which version the server says it is, and a search or a comparison sees another one."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

import synthetic
from http_double import HttpDouble, Request, Step
from servebench.load.endpoint import Endpoint
from servebench.load.software import version
from servebench.report import comparison


class Says(HttpDouble):
    """Answer each of these paths with this content, and any other with 404."""

    def __init__(self, content: Mapping[str, Any]) -> None:
        self.content = content

    def respond(self, request: Request) -> Iterator[Step]:
        known = request.path in self.content
        yield request.response(self.content.get(request.path), 200 if known else 404)


@pytest.mark.parametrize(
    ("content", "told"),
    [
        ({"/version": {"version": "0.11.2"}}, "0.11.2"),
        ({"/api/version": {"version": "0.12.6"}}, "0.12.6"),
        ({"/props": {"build_info": "b6990-1b2c3d4", "total_slots": 4}}, "b6990-1b2c3d4"),
        ({"/version": {"error": "Unexpected endpoint"}}, None),
        ({"/version": ["0.1"], "/api/version": b"<html>", "/props": {"build_info": 7}}, None),
        ({}, None),
    ],
)
def test_a_server_is_asked_for_its_version_where_such_servers_say_it(content: dict[str, Any], told: str | None) -> None:
    with Says(content) as server:
        for url in (server.url, f"{server.url}/v1", f"{server.url}/v1/chat/completions"):
            assert version(Endpoint(url=url, model="m")) == told


def test_a_gateway_under_another_path_is_not_asked_and_no_server_has_no_version() -> None:
    with Says({"/version": {"version": "1"}}) as server:
        assert version(Endpoint(url=f"{server.url}/api/v3", model="m")) is None
        assert server.received == []
    assert version(Endpoint(url=server.url, model="m")) is None


def test_loads_of_two_versions_are_compared_with_both_named(tmp_path: Path) -> None:
    one, other = (synthetic.loaded(tmp_path / name) for name in ("one", "other"))
    for folder, said in ((one, "b1"), (other, "b2")):
        path = folder / "summary.json"
        text = path.read_text(encoding="utf-8")
        path.write_text(text.replace('"extra": {}}', f'"extra": {{}}, "version": "{said}"}}'), encoding="utf-8")
    found = comparison.compare(comparison.read(str(one)), comparison.read(str(other)))
    told = {(difference.what, difference.first, difference.second) for difference in found.differences}
    assert ("engine_version", "b1", "b2") in told
    assert all(pair.claim and "engine_version" in pair.claim.values["differs"] for pair in found.pairs)
