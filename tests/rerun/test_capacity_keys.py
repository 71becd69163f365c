"""What limits, resolution and rounds do in `snakemake capacity`, on a server at a URL that refuses a fourth user."""

import json

import pytest
from keyed import HEAD

from http_double import HttpDouble
from servebench.load.objective import LIMITED
from servebench.store import measurements
from workspace import Workspace

# What no server keeps, by limit.
BEYOND = {name: 1e-9 if most else 1e9 for name, most in LIMITED.items() if name != "goodput_share"}
MOST, LEAST = 5000, 5  # tokens of a reply


class Refusing(HttpDouble):
    """Refuse every fourth request while four users are connected, and count fewer tokens once they have been.

    Each user keeps a connection, so that it is known who is there however slow the machine is; so does the session.
    """

    def __init__(self):
        self.tired = False

    def respond(self, request):
        if request.method == "GET":
            yield request.response({"data": [{"id": "m"}]})
            return
        busy = self.connected > 3
        self.tired |= busy
        if busy and request.number % 4 == 0:
            yield request.response({"error": {"message": "busy"}}, 503)
        else:
            yield from reply(request, LEAST if self.tired else MOST)


def reply(request, tokens):
    """The steps of a reply that counts as so many tokens; a stream has six chunks, 3 ms apart."""
    usage = {"prompt_tokens": 9, "completion_tokens": tokens}
    if not request.body.get("stream"):
        choice = {"index": 0, "message": {"role": "assistant", "content": "Paris"}, "finish_reason": "stop"}
        return [request.response({"choices": [choice], "usage": usage})]
    word = {"choices": [{"index": 0, "delta": {"content": "word "}}]}
    end = {"choices": [{"index": 0, "delta": {}, "finish_reason": "length"}]}
    last = "".join(f"data: {json.dumps(one)}\n\n" for one in (end, {"choices": [], "usage": usage}))
    words = [chunk(f"data: {json.dumps(word)}\n\n")] * 6
    return [HEAD, *(step for one in words for step in (one, 0.003)), chunk(last + "data: [DONE]\n\n") + b"0\r\n\r\n"]


def chunk(text):
    return b"%x\r\n%s\r\n" % (len(text), text.encode())


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    """A finished search up to four users."""
    with Refusing() as server:
        made = Workspace(tmp_path_factory.mktemp("capacity"))
        made.config["rounds"] = {"min": 2, "max": 3}
        made.config["engines"] = {"far": {"kind": "url", "url": server.url}}
        made.config["models"] = {"m": {"source": "hf://a/b", "unverified": "It is a double."}}
        made.config["settings"] = {"one": {"engine": "far", "model": "m", "slots": 3, "users": [1, 2]}}
        made.config["workload"]["max_tokens"] = MOST
        made.config["line"] = {"ttft_p95_s": 1e-9, "user_tok_s": 0.001, "min_targets": 5}
        limits = {name: {name: limit} for name, limit in BEYOND.items()}
        limits |= {"good": {"goodput_share": 0.5}, "talkative": {"output_tok_s": 2000}}
        limits |= {"served": {"e2e_p95_s": 60}, "patient": {"e2e_p95_s": 60, "failures_share": 0.9}}
        made.config["objectives"] = {name: {**own, "min_targets": 5} for name, own in limits.items()}
        made.config["capacity"] = {"most_users": 4, "resolution": 1}
        made.snakemake("capacity")
        yield made


def test_each_setting_and_objective_has_an_answer(found):
    said = {
        claim["values"]["objective"]: claim
        for claim in json.loads((found.results / "capacity/answers.json").read_text())
    }
    none = [*BEYOND, "line", "good"]  # no request keeps the line, which judges what a good one is
    assert {name: said[name]["verdict"] for name in none} == dict.fromkeys(none, "none")
    assert {said[name]["values"]["misses"] for name in none} == {1}
    assert (said["patient"]["verdict"], said["patient"]["users"]) == ("at_least", 4)
    assert said["served"]["values"]["spans"] == [[1, 2]], "of four users a request in four is refused"


def test_what_is_measured_follows_from_how_fine_and_how_often_to_search(found):
    """`capacity.resolution`, `rounds.max`: 3 users are not tried, and where rounds differ there is a third one."""
    measured = {}
    for path in (found.results / "store").glob("*.parquet"):
        identity = measurements.read(path).identity
        measured.setdefault(identity.users, set()).add(identity.round)
    assert measured.keys() == {1, 2, 4}
    assert measured[2] == {1, 2, 3}, "fewer tokens since four users came"
