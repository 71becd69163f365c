"""Traces as others record them: arrivals and lengths by hand, and texts that share what they shared."""

import json

import pytest

from servebench.faults import Fault
from servebench.load.traces import BLOCK, Blocks, Entry, read_trace

MOONCAKE = [
    {"timestamp": 27000, "input_length": 1024, "output_length": 5, "hash_ids": [7, 8]},
    {"timestamp": 27000, "input_length": 600, "output_length": 3, "hash_ids": [7, 9]},
    {"timestamp": 87000, "input_length": 100, "output_length": 2, "hash_ids": [10]},
]
AZURE = """TIMESTAMP,ContextTokens,GeneratedTokens
2023-11-16 18:17:03.9799600,374,44
2023-11-16 18:17:04.0319600,396,109
2023-11-16 18:18:04.0319600,879,55
"""
BURST = """Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type
5,ChatGPT,472,18,490,Conversation log
45,ChatGPT,1087,230,1317,Conversation log
118,GPT-4,417,0,417,Conversation log
"""


@pytest.fixture
def file(tmp_path):
    def write(text, name):
        path = tmp_path / name
        path.write_text(text if isinstance(text, str) else "".join(json.dumps(line) + "\n" for line in text))
        return str(path)

    return write


def told(trace):
    return [(entry.line, entry.arrival_s, entry.prompt_tokens, entry.max_tokens) for entry in trace.entries]


def test_mooncake(file):
    trace = read_trace(file(MOONCAKE, "m.jsonl"))
    assert told(trace) == [(1, 0.0, 1024, 5), (2, 0.0, 600, 3), (3, 60.0, 100, 2)]
    assert [entry.blocks for entry in trace.entries] == [("7", "8"), ("7", "9"), ("10",)]
    assert trace.lengths_only


def test_a_trace_is_cut_and_then_hastened(file):
    path = file(MOONCAKE, "m.jsonl")
    assert [entry.arrival_s for entry in read_trace(path, 2.0).entries] == [0, 0, 30]
    assert [entry.arrival_s for entry in read_trace(path, 2.0, 60.0).entries] == [0, 0]
    own = file([{"arrival_s": 3.0, "prompt": "a"}, {"arrival_s": 9.0, "prompt": "b"}], "own.jsonl")
    assert [entry.arrival_s for entry in read_trace(own, 2.0).entries] == [1.5, 4.5], "an own trace begins when it says"
    with pytest.raises(Fault, match=r"trace_first_s: 3: no request arrives so early"):
        read_trace(own, 1.0, 3.0)


def test_azure(file):
    trace = read_trace(file(AZURE, "azure.csv"))
    assert [(line, round(at_s, 6), *rest) for line, at_s, *rest in told(trace)] == [
        (2, 0.0, 374, 44),
        (3, 0.052, 396, 109),
        (4, 60.052, 879, 55),
    ]
    assert len({name for entry in trace.entries for name in entry.blocks}) == 1 + 1 + 2, "no two requests share a text"


def test_burstgpt_without_its_failures(file):
    trace = read_trace(file(BURST, "burst.csv"))
    assert told(trace) == [(2, 0.0, 472, 18), (3, 40.0, 1087, 230)]
    assert trace.skipped == 1


@pytest.mark.parametrize(
    ("text", "name", "words"),
    [
        ("a,b\n1,2\n", "t.csv", r"t\.csv: 'a,b' is not the header of a known trace"),
        (AZURE + "yesterday,3,4\n", "t.csv", r"t\.csv:5: TIMESTAMP: 'yesterday' is not a time"),
        (BURST + "130,GPT-4,many,3,3,API log\n", "t.csv", r"t\.csv:5: Request tokens: 'many' is not an integer"),
        (BURST + "nan,GPT-4,3,3,6,API log\n", "t.csv", r"t\.csv:5: Timestamp: 'nan' is not a time"),
        (
            BURST + "130,GPT-4,333333333324,3,6,API log\n",
            "t.csv",
            "'333333333324' is not an integer from 0 to 16,777,216",
        ),
        (BURST + "130,GPT-4\n", "t.csv", r"t\.csv:5: Request tokens: None is not an integer"),
        ([{**MOONCAKE[0], "hash_ids": [7]}], "t.jsonl", r"t\.jsonl:1: hash_ids: \[7\] is not a list of 2 ids"),
        ([{**MOONCAKE[0], "input_length": 2**40}], "t.jsonl", r"t\.jsonl:1: input_length: 1099511627776 is not an int"),
        ([MOONCAKE[0], {**MOONCAKE[1], "output_length": 0}], "t.jsonl", r"t\.jsonl:2: output_length: 0 is not an int"),
        ([{**MOONCAKE[0], "timestamp": None}], "t.jsonl", r"t\.jsonl:1: timestamp: None is not an integer"),
        (AZURE.splitlines()[0], "t.csv", r"t\.csv: holds no requests"),
    ],
)
def test_a_bad_line_is_named(file, text, name, words):
    with pytest.raises(Fault, match=words):
        read_trace(file(text, name))


def test_equal_blocks_are_equal_texts_and_others_share_nothing():
    text = "x" * 4 * BLOCK
    blocks = Blocks([text], [[(12, 0), (BLOCK, 4 * (BLOCK - 12))]], added=12, seed=3)

    def prompt(tokens, *names):
        (message,) = blocks.message(Entry(1, 0.0, None, 1, tokens, names))
        return message["content"]

    long, longer = prompt(2 * BLOCK, "a", "b"), prompt(2 * BLOCK, "a", "c")
    assert long.count("No. ") == 2
    shared = long.rindex("No. ")
    assert long[:shared] == longer[:shared]
    assert long[shared:] != longer[shared:]
    assert len(prompt(BLOCK + 12, "a")) == 17 + 4 * (BLOCK - 12), "the template's tokens are counted"
    assert len(prompt(BLOCK // 4 + 12, "a")) == 17 + 4 * (BLOCK // 4 - 12)
    assert (
        Blocks([text], [[(12, 0), (BLOCK, 4 * (BLOCK - 12))]], 12, seed=4).message(
            Entry(1, 0.0, None, 1, 600, ("a", "b"))
        )
        != long
    )
