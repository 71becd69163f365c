"""Prompts: the request of the H200 experiment, files as people have them, numbers that never repeat."""

import json
from itertools import pairwise

import pytest
import yaml

from servebench.faults import Fault
from servebench.load.prompts import BUILT_IN, NUMBERS, load, number
from servebench.load.workload import Workload

EN_SHORT = yaml.safe_load((BUILT_IN / "en-short" / "set.yaml").read_text(encoding="utf-8"))


def source(prompts, seed=0, **facts):
    return load(Workload(prompts=str(prompts), **facts), seed)


@pytest.fixture
def file(tmp_path):
    def write(*lines, name="prompts.jsonl"):
        path = tmp_path / name
        path.write_text("\n".join(line if isinstance(line, str) else json.dumps(line) for line in lines))
        return path

    return write


def test_a_built_in_request_is_instruction_number_document():
    prompt_id, messages = source("en-short", seed=3).request(0)
    system, user = messages
    documents = [json.loads(line) for line in (BUILT_IN / "en-short" / "documents.jsonl").open(encoding="utf-8")]
    document = next(d for d in documents if d["id"] == prompt_id)
    assert system == {"role": "system", "content": EN_SHORT["system"]}
    assert user == {
        "role": "user",
        "content": f"{EN_SHORT['instruction']}\nNo. {number(3, 0):012d}\n{document['text']}",
    }


def test_every_set_in_the_checkout_is_built_in():
    for folder in BUILT_IN.glob("*/set.yaml"):
        assert source(folder.parent.name).describe()["prompts"] >= 50


def test_all_documents_come_before_one_comes_again():
    prompts = source("en-short", seed=1)
    size = prompts.describe()["prompts"]
    ids = [prompts.request(n)[0] for n in range(2 * size)]
    assert len(set(ids[:size])) == size
    assert ids[:size] == ids[size:]
    assert ids[:size] == [source("en-short", seed=1).request(n)[0] for n in range(size)]
    assert ids[:size] != [source("en-short", seed=2).request(n)[0] for n in range(size)]


def test_another_number_seed_asks_the_same_documents_in_the_same_order_behind_other_numbers():
    one, other = (load(Workload(prompts="en-short"), 3, number_seed) for number_seed in (5, 6))
    for n in range(60):
        (id, (_, asked)), (other_id, (_, other_asked)) = one.request(n), other.request(n)
        assert id == other_id
        (instruction, line, document), others = asked["content"].split("\n", 2), other_asked["content"].split("\n", 2)
        assert line == f"No. {number(5, n):012d}"
        assert others == [instruction, f"No. {number(6, n):012d}", document]


def test_numbers_never_repeat():
    some = {number(seed, n) for seed in range(20) for n in range(5000)}
    assert len(some) == 20 * 5000
    assert 0 <= min(some) < max(some) < NUMBERS
    assert number(5, 0) == number(5, NUMBERS)  # and the cycle is as long as can be


def test_numbers_differ_from_the_first_digits_on():
    following = [f"{number(0, n):012d}"[:2] for n in range(100)]
    assert all(a != b for a, b in pairwise(following))


def test_workload_replaces_system_and_instruction():
    _, messages = source("en-short", system="You are terse.", instruction="Go:").request(0)
    assert messages[0]["content"] == "You are terse."
    assert messages[1]["content"].startswith("Go:\nNo. ")
    assert [m["role"] for m in source("en-short", system="").request(0)[1]] == ["user"]


def test_jsonl_of_prompts_and_messages(file):
    as_is = [{"role": "system", "content": "s"}, {"role": "user", "content": "q"}]
    path = file({"id": "a", "prompt": "one\u2028line"}, "", {"messages": as_is})
    prompts = source(path)
    asked = dict(prompts.request(n) for n in range(2))
    assert asked["3"][0] == as_is[0]  # named by its line
    assert asked["3"][1]["content"].endswith("\nq")
    assert asked["a"][0]["content"].startswith("No. ")
    assert asked["a"][0]["content"].endswith("\none\u2028line")
    assert prompts.describe()["prompt_chars"] == {"min": 19, "p5": 19, "p50": 19, "p95": 25, "max": 25}


SHAREGPT = [
    {
        "id": "x",
        "conversations": [
            {"from": "system", "value": "s"},
            {"from": "gpt", "value": "left over"},
            {"from": "human", "value": "q1"},
            {"from": "gpt", "value": "a1"},
            {"from": "human", "value": "q2"},
        ],
    }
]


@pytest.mark.parametrize("name", ["s.json", "s.jsonl"])
def test_sharegpt(file, name):
    prompts = source(file(json.dumps(SHAREGPT if name == "s.json" else SHAREGPT[0]), name=name))
    asked = {"role": "user", "content": f"No. {number(0, 0):012d}\nq1"}
    assert prompts.request(0) == ("x", [{"role": "system", "content": "s"}, asked])
    assert prompts.follow_up(0, 1) == {"role": "user", "content": "q2"}
    assert prompts.follow_up(0, 2) is None


def test_follow_ups_of_a_document_are_other_documents():
    prompts = source("en-short")
    later = [prompts.follow_up(5, turn)["content"] for turn in (1, 2, 3)]
    assert len(set(later)) == 3
    assert all(text.startswith(EN_SHORT["instruction"] + "\n") and "No. " not in text for text in later)


def test_shared_head_is_the_same_and_about_as_long_as_asked():
    prompts = source("en-short", shared_prefix_tokens=1000)
    heads = {prompts.request(n)[1][0]["content"] for n in range(5)}
    assert len(heads) == 1
    (head,) = heads
    assert head.endswith(EN_SHORT["system"])
    assert len(head) == pytest.approx(4600, rel=0.02)  # 4.6 characters a token
    longer = source("en-short", shared_prefix_tokens=20_000)  # longer than all documents together
    assert len(longer.request(0)[1][0]["content"]) == pytest.approx(92_000, rel=0.02)


def test_shared_head_before_a_system_message_is_refused(file):
    path = file({"messages": [{"role": "system", "content": "s"}, {"role": "user", "content": "q"}]})
    with pytest.raises(Fault, match="its own system message"):
        source(path, shared_prefix_tokens=100)


USER = {"role": "user", "content": "q"}


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        (["{"], r"p\.jsonl:1: is not JSON"),
        ([{"prompt": "a"}, "[]"], r"p\.jsonl:2: is not a JSON object"),
        ([{"text": "a"}], r"p\.jsonl:1: has neither `prompt` nor `messages`"),
        ([{"prompt": ""}], r"p\.jsonl:1: prompt: '' is not a non-empty string"),
        ([{"prompt": "a"}, {"prompt": "\ud800"}], r"p\.jsonl:2: cannot be sent as JSON in UTF-8 \(.*surrogates"),
        ([{"id": "\udc00", "prompt": "a"}], r"p\.jsonl:1: cannot be sent"),
        ([{"messages": [{"role": "user", "content": "a", "name": "\ud800"}]}], r"p\.jsonl:1: cannot be sent"),
        (['{"prompt": "a", "weight": NaN}'], r"p\.jsonl:1: cannot be sent"),
        (["[" * 100_000], r"p\.jsonl:1: is not JSON"),
        ([{"prompt": None}], r"p\.jsonl:1: prompt: None is not a non-empty string"),
        ([{"messages": []}], r"p\.jsonl:1: messages: \[\] is not a list of messages"),
        ([{"messages": None}], r"p\.jsonl:1: messages: None is not a list of messages"),
        ([{"messages": [5]}], r"p\.jsonl:1: messages: message 1: 5 is not an object"),
        ([{"messages": [{"content": "a"}]}], r"p\.jsonl:1: messages: message 1: .* is not an object with `role`"),
        ([{"messages": [USER, {"role": "user", "content": None}]}], r"p\.jsonl:1: messages: message 2: content: None"),
        ([{"messages": [{"role": "user", "content": 5}]}], r"message 1: content: 5 is not a string"),
        ([{"messages": [{"role": "user", "content": ["a"]}]}], r"message 1: content: \['a'\] is not a string"),
        ([{"conversations": {}}], r"p\.jsonl: holds no prompts"),
        ([{"conversations": [{"from": "gpt", "value": "a"}]}], r"p\.jsonl: holds no prompts"),
        ([""], r"p\.jsonl: holds no prompts"),
    ],
)
def test_files_refused_by_line(file, lines, words):
    with pytest.raises(Fault, match=words):
        source(file(*lines, name="p.jsonl"))


def test_content_of_parts_and_beside_a_tool_call_is_sent_as_it_is_without_number_lines(file):
    call = {"role": "assistant", "content": None, "tool_calls": [{"id": "1"}]}
    parts = {"role": "user", "content": [{"type": "text", "text": "abc"}, {"type": "image_url", "image_url": {}}]}
    prompts = source(file({"messages": [parts, call]}), number_lines=False)
    assert prompts.request(0)[1] == [parts, call]
    assert prompts.describe()["prompt_chars"]["max"] == 3  # the words, not how Python writes a list or None


def test_conversations_in_which_nobody_asks_are_skipped_and_counted(file):
    def said(*turns):
        return {"conversations": [{"from": who, "value": words} for who, words in turns]}

    asked = said(("human", "q"), ("gpt", None))
    unasked = [
        {"conversations": {}},
        {"conversations": [{"from": "human"}]},
        said(),
        said(("gpt", "a")),
        said(("human", None)),
        said(("human", "q"), ("human", "")),
    ]
    without_words = said(("system", None), ("human", "q"))
    prompts = source(file(json.dumps([*unasked, asked, without_words]), name="s.json"))
    assert prompts.request(0) == ("7", [{"role": "user", "content": f"No. {number(0, 0):012d}\nq"}])
    assert (prompts.describe()["prompts"], prompts.describe()["skipped"]) == (1, 7)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("p.jsonl", r"p\.jsonl:2: is not JSON in UTF-8 \(.* byte 0xe9 in position 13"),
        ("p.json", r"p\.json: is not JSON in UTF-8 \(.* byte 0xe9 in position 29"),
    ],
)
def test_a_file_in_another_encoding_is_named_with_line_and_byte(tmp_path, name, words):
    path = tmp_path / name
    path.write_bytes('{"prompt": "a"}\n{"prompt": "cé"}\n'.encode("latin-1"))
    with pytest.raises(Fault, match=words):
        source(path)


def test_half_a_surrogate_pair_in_a_list_is_named_with_its_item(file):
    path = file('[{"prompt": "\\ud83d\\ude00"}, {"prompt": "\\ud83d"}]', name="p.json")
    with pytest.raises(Fault, match=r"p\.json: item 2: cannot be sent"):
        source(path)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("system: [", r"set\.yaml: is not YAML in UTF-8 \(.*line 1"),
        ("license: 2024-99-99", r"set\.yaml: is not YAML"),
        (b"system: \xe9", r"set\.yaml: is not YAML in UTF-8 \(.*0xe9"),
        ("", r"set\.yaml: None is not a mapping"),
        ("- a", r"set\.yaml: \['a'\] is not a mapping"),
        ("instruction: 5", r"set\.yaml: instruction: 5 is not a string"),
        ("system: [a]", r"set\.yaml: system: \['a'\] is not a string"),
        ("language: [en]", r"set\.yaml: language: \['en'\] is not a string"),
        (r'system: "\ud800"', r"set\.yaml: system: cannot be sent"),
    ],
)
def test_a_set_that_says_nothing_of_itself(tmp_path, text, words):
    (tmp_path / "set.yaml").write_bytes(text if isinstance(text, bytes) else text.encode())
    (tmp_path / "documents.jsonl").write_text('{"id": "a", "text": "b"}')
    with pytest.raises(Fault, match=words) as fault:
        source(tmp_path)
    assert "\n" not in str(fault.value)


def test_a_sets_own_files(tmp_path):
    (tmp_path / "set.yaml").write_text("license: CC0")
    with pytest.raises(Fault, match=r"paragraphs\.jsonl: cannot be read"):
        source(tmp_path)
    same = json.dumps({"id": "a", "topic": "t", "text": "b"})
    (tmp_path / "paragraphs.jsonl").write_text(f"{same}\n{same}")
    with pytest.raises(Fault, match=r"paragraphs\.jsonl: .* the same id or text"):
        source(tmp_path)
    (tmp_path / "documents.jsonl").write_text('{"id": 5, "text": "b"}')
    with pytest.raises(Fault, match=r"documents\.jsonl:1: id: 5 is not a non-empty string"):
        source(tmp_path)
    (tmp_path / "documents.jsonl").write_text('{"id": "a", "text": "b"}')
    assert source(tmp_path).request(0) == ("a", [{"role": "user", "content": f"No. {number(0, 0):012d}\nb"}])


def test_json_that_is_no_sharegpt(file):
    with pytest.raises(Fault, match="not a list of objects"):
        source(file("{}", name="p.json"))
    with pytest.raises(Fault, match="is not JSON"):
        source(file('{"prompt": "a"}\n{"prompt": "b"}', name="p.json"))


def test_unknown_names_say_which_there_are():
    with pytest.raises(Fault, match="'nothing' is neither a file nor a prompt set; built-in sets: en-short"):
        source("nothing")


def test_a_batch_of_openai_and_a_plain_text_file(file):
    messages = [{"role": "system", "content": "s"}, {"role": "user", "content": "q"}]
    batch = {"custom_id": "a", "method": "POST", "url": "/v1/chat/completions", "body": {"messages": messages}}
    assert source(file(batch), number_lines=False).request(0) == ("a", messages)
    prompts = source(file("first line", "", "second line", name="p.txt"))
    asked = dict(prompts.request(n) for n in range(2))
    assert {name: found[0]["content"].partition("\n")[2] for name, found in asked.items()} == {
        "line 1": "first line",
        "line 3": "second line",
    }
    with pytest.raises(Fault, match=r"p\.jsonl:1: body: messages: \[\] is not a list of messages"):
        source(file({"body": {"messages": []}}, name="p.jsonl"))


def test_messages_have_a_number_line_before_the_first_that_is_not_the_systems(file):
    system, call = {"role": "system", "content": "s"}, {"role": "assistant", "content": None, "tool_calls": [{}]}
    parts = {"role": "user", "content": [{"type": "image_url", "image_url": {}}]}
    prompts = source(
        file(
            {"id": "a", "messages": [system, USER, USER]},
            {"id": "b", "messages": [call, parts]},
            {"id": "c", "messages": [system]},
        )
    )
    found = {}
    for n in range(6):
        name, messages = prompts.request(n)
        found.setdefault(name, []).append((f"No. {number(0, n):012d}\n", messages))
    for line, messages in found["a"]:
        assert messages == [system, {"role": "user", "content": f"{line}q"}, USER]
    for line, messages in found["b"]:
        assert messages == [call, {"role": "user", "content": [{"type": "text", "text": line}, *parts["content"]]}]
    for line, messages in found["c"]:
        assert messages == [{"role": "system", "content": f"{line}s"}]


def test_without_number_lines_documents_repeat_as_they_are(file):
    prompts = source(file({"prompt": "b"}), instruction="Say it:", number_lines=False)
    assert [prompts.request(n)[1][0]["content"] for n in range(2)] == 2 * ["Say it:\nb"]
