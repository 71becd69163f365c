"""Tables that do not match the records' schemas are refused, and the message names the place."""

import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from exchanges import delta, exchange, usage
from servebench.load.records import (
    REQUESTS_SCHEMA,
    RecordError,
    check_chunks,
    check_requests,
    chunk_rows,
    write_measurement,
)
from servebench.load.stream import to_tables


@pytest.fixture
def tables():
    two = [
        exchange(delta(content="a"), delta("stop", content="b"), usage(5), request_id=i, prompt_id=f"p{i}")
        for i in (7, 3)
    ]
    return to_tables(two, None)


def changed(table: pa.Table, column: str, values: list) -> pa.Table:
    field = table.schema.field(column)
    return table.set_column(table.schema.get_field_index(column), field, pa.array(values, field.type))


@pytest.mark.parametrize(
    ("column", "values", "words"),
    [
        ("status", ["ok", "fine"], "requests.status: 'fine' is not one of ok"),
        ("phase", ["window", None], "requests.phase: .*nulls"),
        ("tokens_from", ["usage", "guess"], "requests.tokens_from: 'guess'"),
        ("request_id", [7, 7], "requests.request_id: "),
        ("end_ns", [1, 10**9], "requests.end_ns: .* last_token_ns"),
    ],
)
def test_requests_refused(tables, column, values, words):
    with pytest.raises(RecordError, match=words):
        check_requests(changed(tables[0], column, values))


def test_a_table_from_before_reasoning_was_counted_has_none(tables):
    requests, chunks = tables
    older = check_requests(requests.drop_columns(["left_open", "reasoning_tokens"]))
    assert older.schema.equals(REQUESTS_SCHEMA, check_metadata=True)
    assert older["reasoning_tokens"].to_pylist() == older["left_open"].to_pylist() == [None, None]
    assert check_chunks(chunks, older) is chunks


def test_other_columns_or_types_are_refused(tables):
    with pytest.raises(RecordError, match="requests: columns are"):
        check_requests(tables[0].drop_columns(["error"]))
    as_float = tables[0].set_column(0, "request_id", pa.array([1.0, 2.0]))
    with pytest.raises(RecordError, match=r"requests\.request_id: is double, not int64"):
        check_requests(as_float)


@pytest.mark.parametrize(
    ("column", "values", "words"),
    [
        ("tokens", [2, 3, 2, 4], "request 3 has 6, not 5 completion_tokens"),
        ("request_id", [7, 7, 7, 3], "request 7 has 3, not 2 chunks"),
        ("request_id", [7, 3, 7, 3], "chunks.request_id: "),
        ("request_id", [7, 7, 3, 8], "belongs to no request"),
        ("arrival_ns", [2, 1, 1, 2], "chunks.arrival_ns: "),
    ],
)
def test_chunks_refused(tables, column, values, words):
    requests, chunks = tables
    with pytest.raises(RecordError, match=words):
        check_chunks(changed(chunks, column, values), requests)


def test_a_chunk_lost_with_its_request_is_noticed(tables):
    requests, chunks = tables
    with pytest.raises(RecordError, match="request 3 has 0, not 2 chunks"):
        check_chunks(chunks.slice(0, 2), requests)


def test_chunk_rows():
    requests, chunks = to_tables([exchange(delta("stop", content="a"), request_id=i) for i in (5, 9, 3, 7)], None)
    turned = chunks.take([2, 0, 3, 1])  # of requests 3, 5, 7, 9
    assert chunk_rows(turned, requests).tolist() == [2, 0, 3, 1]
    with pytest.raises(RecordError, match="no request"):
        chunk_rows(chunks, REQUESTS_SCHEMA.empty_table())


def test_written_and_read_again(tables, tmp_path):
    requests, chunks = tables
    write_measurement(tmp_path / "new", requests, chunks, {"output_tok_s": None, "名": "値"})
    again = pq.read_table(tmp_path / "new" / "requests.parquet")
    assert check_requests(again).equals(requests)
    assert check_chunks(pq.read_table(tmp_path / "new" / "chunks.parquet"), again).equals(chunks)
    assert json.loads((tmp_path / "new" / "summary.json").read_text()) == {"output_tok_s": None, "名": "値"}


def test_nan_is_never_written(tables, tmp_path):
    with pytest.raises(ValueError, match="not JSON compliant"):
        write_measurement(tmp_path / "new", *tables, {"output_tok_s": float("nan")})
    assert not (tmp_path / "new").exists()


def test_wrong_tables_are_never_written(tables, tmp_path):
    requests, chunks = tables
    with pytest.raises(RecordError):
        write_measurement(tmp_path / "new", requests, chunks.slice(1), {})
    assert not (tmp_path / "new").exists()
