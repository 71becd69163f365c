"""Where requests go for each way to write a server's address, and which addresses are refused."""

import pytest

from servebench.faults import Fault
from servebench.load.endpoint import CHAT, Endpoint, address


@pytest.mark.parametrize(
    ("given", "chat", "models"),
    [
        ("http://h:8000", "http://h:8000/v1/chat/completions", "http://h:8000/v1/models"),
        ("http://h/", "http://h/v1/chat/completions", "http://h/v1/models"),
        ("http://h/v1/", "http://h/v1/chat/completions", "http://h/v1/models"),
        ("http://[::1]:80/openai/v1", "http://[::1]:80/openai/v1/chat/completions", "http://[::1]:80/openai/v1/models"),
        ("https://h/v1/chat/completions", "https://h/v1/chat/completions", "https://h/v1/models"),
        ("https://h/chat/completions/", "https://h/chat/completions", "https://h/models"),
        ("https://h/api/paas/v4", "https://h/api/paas/v4/chat/completions", "https://h/api/paas/v4/models"),
        ("https://h/v1beta/openai/", "https://h/v1beta/openai/chat/completions", "https://h/v1beta/openai/models"),
        ("https://h/v1beta1/a/openapi", "https://h/v1beta1/a/openapi/chat/completions", "https://h/v1beta1/a/openapi/models"),
        # A version inside the path of a proxy is not that of the API behind it, nor is a name that begins with v.
        ("http://h/api/v1/x/proxy", "http://h/api/v1/x/proxy/v1/chat/completions", "http://h/api/v1/x/proxy/v1/models"),
        ("http://h/vllm", "http://h/vllm/v1/chat/completions", "http://h/vllm/v1/models"),
        ("http://h?tenant=a", "http://h/v1/chat/completions?tenant=a", "http://h/v1/models?tenant=a"),
        (
            "https://h/openai/deployments/d?api-version=2024-10-21",
            "https://h/openai/deployments/d/chat/completions?api-version=2024-10-21",
            "https://h/openai/deployments/d/models?api-version=2024-10-21",
        ),
        (
            "https://h/d/chat/completions?api-version=1",
            "https://h/d/chat/completions?api-version=1",
            "https://h/d/models?api-version=1",
        ),
    ],
)  # fmt: skip
def test_where_requests_go(given: str, chat: str, models: str) -> None:
    assert Endpoint(url=given, model="m").chat_url == address(given, CHAT) == chat
    assert address(given, "models") == models


@pytest.mark.parametrize(
    "url",
    [
        *("http://me:hunter2@h", "http://hunter2@h/v1", "http://h/v1?x=hunter2@h"),
        *("http://h?key=hunter2", "http://h/v1?api_key=hunter2", "http://h?Subscription-Key=hunter2"),
        *(
            "http://h?v=1&access_token=hunter2",
            "http://h?sig=hunter2",
            "http://h?code=hunter2",
            "http://:80?key=hunter2",
        ),
    ],
)
def test_a_key_or_a_password_in_an_address_is_refused_and_not_repeated(url: str) -> None:
    with pytest.raises(Fault, match=r"^endpoint\.url: .* by api_key_env$") as fault:
        Endpoint(url=url, model="m")
    assert "hunter2" not in str(fault.value)


@pytest.mark.parametrize("url", ["http://h/v1#top", "http://h/a b", "http://h/v1\n"])
def test_an_address_with_more_than_an_address(url: str) -> None:
    with pytest.raises(Fault, match=r"^endpoint\.url: .*; give the address alone$"):
        Endpoint(url=url, model="m")
