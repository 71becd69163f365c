"""Prompts and replies of a given length, counted as the server counts them."""

import json
import re
from collections import Counter

import pytest
from scripted_server import ScriptedServer, reply

from http_double import CLOSE
from servebench.faults import Fault
from servebench.load import prompts
from servebench.load.endpoint import Endpoint
from servebench.load.figures import measurement_figures
from servebench.load.lengths import Lengths, fitted
from servebench.load.line import Line
from servebench.load.run import measure
from servebench.load.workload import Workload
from servebench.marks import mark

TEMPLATE = 11  # tokens that the double's chat template adds


def tokens(text):
    """Words in pieces of at most three letters, blanks before them included; each digit by itself."""
    return len(re.findall(r" ?\d| ?[A-Za-z]{1,3}|\s|[^\sA-Za-z\d]", text))


def prompt_tokens(body):
    return TEMPLATE + sum(tokens(message["content"]) for message in body["messages"])


class CountingServer(ScriptedServer):
    """Count tokens as `tokens` does, by `/tokenize` and by usage, each only where it is said to."""

    def __init__(self, *, tokenize, usage=True):
        self.tokenize, self.usage = tokenize, usage

    def respond(self, request):
        if request.path == "/tokenize":
            found = {"tokens": [7] * tokens(request.body["content"])}
            return [request.response(found) if self.tokenize else request.response({"error": "what?"}, 404)]
        if request.body.get("stream"):
            return reply(request.body["max_tokens"])
        usage = {"prompt_tokens": prompt_tokens(request.body), "completion_tokens": 1} if self.usage else None
        choice = {"index": 0, "message": {"role": "assistant", "content": "a"}, "finish_reason": "length"}
        return [request.response({"choices": [choice], "usage": usage})]


def sent(server):
    return [request.body for request in server.received if request.body.get("stream")]


@pytest.mark.parametrize(("tokenize", "how"), [(True, "/tokenize"), (False, "usage")])
@pytest.mark.parametrize("wanted", [64, 1024])
def test_prompts_have_the_tokens_asked_for_and_ask_for_the_replies(tokenize, how, wanted):
    workload = Workload(mode="count", requests=12, prompt_tokens=wanted, reply_tokens=5, system="Be brief.")
    with CountingServer(tokenize=tokenize) as server:
        measured = measure(Endpoint(url=server.url, model="m"), workload, 2)
    assert measured.meta.prompts.counted_by == how
    bodies = sent(server)
    assert len(bodies) == 12
    exact = 0 if tokenize else max(1, wanted // 100)
    assert all(abs(prompt_tokens(body) - wanted) <= exact for body in bodies)
    assert {(body["max_tokens"], body["min_tokens"], body["ignore_eos"]) for body in bodies} == {(5, 5, True)}
    heads = {body["messages"][1]["content"].partition("\n")[0] for body in bodies}
    assert len(heads) == 12, "no two prompts begin alike, so none comes from a cache"


def test_a_distribution_of_prompts_and_replies():
    workload = Workload(mode="count", requests=64, prompt_tokens="uniform:100,300", reply_tokens="uniform:2,4")
    with CountingServer(tokenize=True) as server:
        measure(Endpoint(url=server.url, model="m"), workload, 4)
    lengths = sorted(map(prompt_tokens, sent(server)))
    assert 100 <= lengths[0] < 115
    assert 285 < lengths[-1] <= 300
    assert 190 < lengths[32] < 210
    assert set(Counter(body["max_tokens"] for body in sent(server))) == {2, 3, 4}


def test_null_takes_a_wish_out_that_a_server_refuses():
    workload = Workload(mode="count", requests=1, reply_tokens=3)
    with CountingServer(tokenize=True) as server:
        measure(Endpoint(url=server.url, model="m", extra={"ignore_eos": None, "min_tokens": None}), workload, 1)
    (body,) = sent(server)
    assert body["max_tokens"] == 3
    assert not body.keys() & {"ignore_eos", "min_tokens"}


@pytest.mark.parametrize(
    ("server", "workload", "words"),
    [
        ({"tokenize": False, "usage": False}, {"prompt_tokens": 64}, r"prompt_tokens: the server neither counts"),
        ({"tokenize": True}, {"prompt_tokens": 16}, r"prompt_tokens: 16 is too few: .* alone have \d+ tokens"),
        ({"tokenize": True}, {"prompt_tokens": "many"}, r"workload\.prompt_tokens: 'many' is not a number of tokens"),
    ],
)
def test_what_cannot_be_made_is_said_before_the_load(server, workload, words):
    with CountingServer(**server) as counting, pytest.raises(Fault, match=words):
        measure(Endpoint(url=counting.url, model="m"), Workload(**workload), 1)


def test_a_server_that_is_not_there():
    source = prompts.load(Workload(), 0)
    with pytest.raises(Fault, match=r"cannot be asked how long prompts are: .*; is the server up\?"):
        fitted(Endpoint(url="http://127.0.0.1:9", model="m"), Workload(prompt_tokens=100), source)


def test_a_server_whose_count_never_ends_is_given_up():
    with (
        ScriptedServer(lambda _: [b"HTTP/1.1 200 OK\r\n\r\n", *[0.05, b" "] * 40, CLOSE]) as server,
        pytest.raises(Fault, match=r"how long prompts are: (timed out|the response did not end in time)"),
    ):
        endpoint, workload = Endpoint(url=server.url, model="m"), Workload(prompt_tokens=100, timeout_s=0.3)
        fitted(endpoint, workload, prompts.load(workload, 0))


@pytest.mark.parametrize("other", [{"mode": "trace", "trace": "t.jsonl"}, {"shared_prefix_tokens": 100}])
def test_lengths_and_prompts_of_other_lengths_exclude_each_other(other):
    with pytest.raises(Fault, match=r"workload\.prompt_tokens: 64: .*; leave out one of the two"):
        Workload(prompt_tokens=64, **other)


def test_the_means_of_distributions():
    assert [Lengths.parse("k", text).mean for text in (7, "uniform:2,4", "exp:5", "lognormal:6,0.5")] == [7, 3, 5, 6]


def test_other_lengths_than_asked_are_marks():
    workload = Workload(mode="count", requests=4, reply_tokens=4)
    with CountingServer(tokenize=True) as server:  # whose replies say that they ended by themselves
        measured = measure(Endpoint(url=server.url, model="m"), workload, 1)
    found = measurement_figures(measured.requests, measured.chunks, measured.meta, Line())
    assert mark("replies_ended_early", replies=4, requests=4) in found["invalid_reasons"]


def test_a_trace_of_lengths_is_replayed_with_these_lengths(tmp_path):
    path = tmp_path / "mooncake.jsonl"
    lines = [(0, 1100, 3, [1, 2, 3]), (40, 1500, 2, [1, 2, 4]), (80, 40, 4, [5])]
    keys = ("timestamp", "input_length", "output_length", "hash_ids")
    path.write_text("".join(json.dumps(dict(zip(keys, line, strict=True))) + "\n" for line in lines))
    with CountingServer(tokenize=True) as server:
        workload = Workload(mode="trace", trace=str(path), trace_speed=2.0)
        measured = measure(Endpoint(url=server.url, model="m"), workload, 1)
    bodies = sent(server)
    assert all(
        abs(prompt_tokens(body) - line[1]) <= 0.01 * line[1] + 1 for body, line in zip(bodies, lines, strict=True)
    )
    assert [(body["max_tokens"], body["min_tokens"]) for body in bodies] == [(3, 3), (2, 2), (4, 4)]
    first, second, other = (body["messages"][-1]["content"] for body in bodies)
    third = first.rindex("No. ") + 4
    assert first[:third] == second[:third], "the first two blocks are the same"
    assert first[third : third + 12] != second[third : third + 12]
    assert first[:16] != other[:16]
    due_ns = measured.requests["scheduled_ns"].to_pylist()
    assert [round((at - due_ns[0]) / 1e6) for at in due_ns] == [0, 20, 40]
    assert (measured.meta.prompts.name, measured.meta.prompts.prompts) == ("mooncake.jsonl", 3)
