"""What the server's log tells of requests whose replies do not: an Ollama's replies beside its log."""

import json

import pyarrow as pa
import pytest
from msgspec.structs import replace

import synthetic
from servebench.load.line import Line
from servebench.marks import mark
from servebench.store.measurements import Record
from servebench.tables import measurements
from servebench.tables.logged import completed, unsaid

CELL = next(cell for cell in synthetic.h200_cells() if cell["setting"] == "llama-np16")


@pytest.fixture
def record() -> Record:
    """A measurement in which no reply tells of cached tokens, with a log that has its requests."""
    (made, *_) = synthetic.records_of([CELL], synthetic.plan_of([CELL]))
    requests = made.requests
    for name in ("cached_tokens", "timings"):
        field = requests.schema.field(name)
        empty = pa.nulls(len(requests), field.type)
        requests = requests.set_column(requests.schema.get_field_index(name), field, empty)
    prompts, outputs = (requests[name].to_pylist() for name in ("prompt_tokens", "completion_tokens"))
    served = {
        "all_prompt_tokens": prompts,
        "eval_tokens": outputs,
        "cached_tokens": [prompt // 4 for prompt in prompts],
        "prompt_ms": [float(prompt) for prompt in prompts],
        "truncated": [False] * len(prompts),
    }
    return replace(made, requests=requests, served=served)


def test_a_request_of_the_log_is_ours_by_its_numbers_of_tokens(record: Record) -> None:
    told = completed(record)
    for row in told.to_pylist():
        assert row["cached_tokens"] == row["prompt_tokens"] // 4
        assert json.loads(row["timings"]) == {"prompt_ms": float(row["prompt_tokens"])}
    (row,) = measurements([record], Line()).to_pylist()
    assert row["cached_share"] == pytest.approx(0.25, abs=0.01)
    assert row["queue_wait_p50_s"] is not None


def test_what_the_log_has_twice_and_we_once_stays_unknown(record: Record) -> None:
    twice = {name: [*column, column[0]] for name, column in record.served.items()}
    prompts = record.requests["prompt_tokens"].to_pylist()
    told = completed(replace(record, served=twice))["cached_tokens"].to_pylist()
    assert told == [None if prompt == prompts[0] else prompt // 4 for prompt in prompts]


def test_a_request_that_we_broke_off_may_be_in_the_log_as_a_whole(record: Record) -> None:
    """The last request, of the first one's prompt, is broken off, but the server finishes it: the log has it twice."""
    rows = record.requests.to_pylist()
    first, *_, before, last = sorted(range(len(rows)), key=lambda place: rows[place]["sent_ns"])
    served = {name: [*column] for name, column in record.served.items()}
    served["all_prompt_tokens"][last] = rows[first]["prompt_tokens"]

    def told(prompt_id: str) -> list[int | None]:
        rows[last] |= {"status": "cancelled", "prompt_id": prompt_id, "prompt_tokens": None, "completion_tokens": None}
        requests = pa.Table.from_pylist(rows, record.requests.schema)
        return completed(replace(record, requests=requests, served=served))["cached_tokens"].to_pylist()

    quarter = [row["prompt_tokens"] // 4 for row in rows]
    for prompt_id in (rows[first]["prompt_id"], "of unknown length"):
        assert told(prompt_id)[:last] == quarter[:last]
    assert told(rows[before]["prompt_id"])[first] is None, "it had another prompt, so that the log has one too many"


def test_what_replies_tell_is_not_taken_from_the_log(record: Record) -> None:
    (told, *_) = synthetic.records_of([CELL], synthetic.plan_of([CELL]))
    assert completed(replace(told, served=record.served)) is told.requests


def test_cut_prompts_and_shifted_contexts_are_marked(record: Record) -> None:
    assert list(unsaid(record)) == []
    facts = {**(record.session.facts or {}), "truncated_prompts": 2}
    served = {**record.served, "truncated": [True, False, True, True]}
    found = list(unsaid(replace(record, session=replace(record.session, facts=facts), served=served)))
    assert found == [mark("prompts_cut", prompts=2), mark("context_shifted", replies=3)]
