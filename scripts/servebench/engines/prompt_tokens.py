"""What a server makes of a prompt: the token ids after its chat template. Two servers that differ here are not asked
the same thing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import httpx


def rendered(
    client: httpx.Client, kind: str, model: str, messages: Sequence[Mapping[str, str]], extra: Mapping[str, Any]
) -> list[int] | None:
    """The ids as this kind of engine says them; None where it has no way to, or answers with an error.

    extra: what requests add to their bodies; `chat_template_kwargs` of it changes the template's output.
    """
    template = {key: extra[key] for key in ("chat_template_kwargs",) if extra.get(key) is not None}
    try:
        if kind == "llama-server":
            prompt = _post(client, "/apply-template", {"messages": messages, **template})["prompt"]
            answer = _post(client, "/tokenize", {"content": prompt, "add_special": True, "parse_special": True})
        elif kind == "vllm":
            answer = _post(client, "/tokenize", {"model": model, "messages": messages, **template})
        else:
            return None
        return [int(token) for token in answer["tokens"]]
    except (httpx.HTTPError, ValueError, KeyError, TypeError):
        return None


def _post(client: httpx.Client, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
    response = client.post(path, json=body)
    response.raise_for_status()
    answer: dict[str, Any] = response.json()
    return answer
