"""A record says which format it is of: older ones are read, a newer one is refused, a damaged one is noticed.

`data/store-ee5deb3` is the store of a small simulated experiment as commit ee5deb3 wrote it, before there were formats:
a good measurement, one whose engine did not start, a discarded one, and a target's replies.
"""

import json
import random
import shutil
from collections.abc import Callable
from pathlib import Path

import msgspec
import pyarrow.parquet as pq
import pytest
from msgspec.structs import replace

from servebench import plan, schema, tables
from servebench.load.line import Line
from servebench.marks import mark
from servebench.outlook import inventory
from servebench.store import measurements, parquet, replies
from servebench.store.parquet import Damaged, Newer
from servebench.store.records import FORMAT, MEASUREMENT

OLD = Path(__file__).parent / "data" / "store-ee5deb3"
GOOD, FAILED = (OLD / "store" / f"{name}.parquet" for name in ("3fe936745736926094b3", "e39022420af1924f4212"))
DISCARDED = OLD / "store" / "discarded" / "39dc6211302839d8d879-1.parquet"


def json_of(path: Path) -> dict:
    return json.loads(pq.read_schema(path).metadata[parquet.METADATA_KEY])


def known(session: dict) -> dict:
    """Return a session's facts without nulls."""
    return {name: value for name, value in session.items() if value is not None}


def lost(old: object, new: object) -> bool:
    """Return whether any value of `old` is missing in `new`, which may hold more."""
    if isinstance(old, dict):
        return not isinstance(new, dict) or any(key not in new or lost(old[key], new[key]) for key in old)
    if isinstance(old, list):
        return not isinstance(new, list) or len(old) != len(new) or any(map(lost, old, new))
    return old != new


@pytest.mark.parametrize("path", [GOOD, FAILED, DISCARDED], ids=["good", "failed", "discarded"])
def test_nothing_of_an_older_record_is_lost(path: Path) -> None:
    told = json_of(path)
    assert "format" not in told
    rule = (told["meta"] or {}).pop("foreign_use", None)
    record, reason = measurements.read_metadata(path), told.pop("reason")
    assert record.reason == ([] if reason is None else [mark("failed", reason=reason)])
    assert not lost(told, msgspec.to_builtins(record))
    assert rule is None or rule == msgspec.to_builtins(record.foreign_use)
    assert measurements.read(path).requests.num_rows == pq.read_metadata(path).num_rows


def test_what_was_measured_before_is_found_where_it_was_and_tabulated() -> None:
    experiment = plan.from_json((OLD / "plan.json").read_bytes())
    paths = {
        (session.setting.name, users): inventory.stored_path(experiment, OLD, session, users, protocol=1)
        for session in experiment.sessions()
        for users in session.setting.users
    }
    assert paths[("one", 1)] == GOOD
    assert paths[("big", 1)] == FAILED
    assert not paths[("one", 2)].exists(), "it is discarded"
    assert inventory.of_earlier_protocols(experiment, OLD) == {1: 2}, "both are to be measured again"
    assert inventory.done(experiment, OLD) == 0
    records = [measurements.read(path) for path in (GOOD, FAILED)]
    good, failed = schema.rows(tables.measurements(records, Line()).sort_by("setting"))[::-1]
    assert (good["status"], good["target_requests"], good["foreign_limit"]) == ("ok", 7, 100)
    assert (failed["status"], failed["output_tok_s"]) == ("failed", None)
    assert [reason.kind for reason in failed["reason"]] == ["failed"], "a text is taken as it is"
    (thrown,) = tables.discarded(measurements.Store(OLD).discarded()).to_pylist()
    assert (thrown["why"], thrown["session_id"]) == ("a backup ran", good["session_id"])


def test_an_older_record_written_again_is_of_this_format_and_the_same(tmp_path: Path) -> None:
    record = measurements.read(GOOD)
    measurements.write(record, tmp_path / "a.parquet")
    assert json_of(tmp_path / "a.parquet")["format"] == FORMAT
    assert measurements.read(tmp_path / "a.parquet") == record


def test_a_record_of_a_newer_format_is_refused_by_name_with_what_to_do(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    measurements.write(replace(measurements.read(GOOD), format=FORMAT + 1), path)
    for read in (measurements.read, measurements.read_metadata):
        with pytest.raises(Newer, match=rf"^{path}: .* format {FORMAT + 1}.*; use "):
            read(path)


@pytest.mark.parametrize("found", ["1", None, -1, 1.5, True])
def test_a_format_that_is_not_one_is_damage(found: object) -> None:
    with pytest.raises((TypeError, ValueError)):
        MEASUREMENT.read({**json_of(GOOD), "format": found})


@pytest.mark.parametrize(
    "change",
    [
        lambda found: [found],
        lambda found: None,
        lambda found: {},
        lambda found: {**found, "status": "perhaps"},
        lambda found: {**found, "status": ["ok"]},
        lambda found: {**found, "identity": 5},
    ],
    ids=["a list", "null", "nothing", "a status that is none", "a status in a list", "an identity that is none"],
)
def test_metadata_of_another_shape_is_damage_that_names_its_file(
    change: Callable[[dict], object], tmp_path: Path
) -> None:
    """Those of formats without digests: nothing but their shape tells that they are damaged."""
    path, content = tmp_path / "a.parquet", json.dumps(change(json_of(GOOD)))
    pq.write_table(pq.read_table(GOOD).replace_schema_metadata({parquet.METADATA_KEY: content}), path)
    for read in (measurements.read, measurements.read_metadata):
        with pytest.raises(Damaged, match=rf"^{path}: is damaged"):
            read(path)


@pytest.mark.outcome(
    "one flipped bit of a stored measurement",
    at="reading",
    into="files",
    kept="the file, as discarded",
    again="it alone",
    reads="is damaged; it is kept as …",
    code="1",
)
def test_every_flipped_bit_of_a_stored_file_is_noticed(tmp_path: Path) -> None:
    path, flipped = tmp_path / "a.parquet", tmp_path / "b.parquet"
    measurements.write(measurements.read(GOOD), path)
    content = path.read_bytes()
    for bit in random.Random(5).sample(range(8 * len(content)), 300):
        changed = bytearray(content)
        changed[bit // 8] ^= 1 << bit % 8
        flipped.write_bytes(changed)
        with pytest.raises((Damaged, Newer), match=f"^{flipped}: "):
            measurements.read(flipped)


@pytest.mark.outcome(
    "one flipped bit of a stored reply",
    at="reading",
    into="files",
    kept="every other reply, and the line aside",
    again="its question alone",
    reads="damaged lines are moved to …",
    code="0",
)
def test_every_flipped_bit_of_a_reply_is_noticed_and_only_its_question_asked_again(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    said = [
        replies.Reply(
            repeat=1, question_id=f"q{n}", session_id="s", text=f"答え {n}", finish_reason="stop", latency_s=1.5
        )
        for n in range(3)
    ]
    file = replies.AnswerFile(path)
    for reply in said:
        file.append(reply)
    file.close()
    content = path.read_bytes()
    start, end = (content.index(b"\n") + 1, content.index(b"\n", content.index(b"\n") + 1))  # the second line
    for bit in random.Random(5).sample(range(8 * start, 8 * end), 300):
        changed = bytearray(content)
        changed[bit // 8] ^= 1 << bit % 8
        path.write_bytes(changed)
        try:
            replies.Answers(path)
        except Newer:
            continue  # the digit of the format
        except Damaged as error:
            assert str(error).startswith(f"{path}:2: ")
        else:
            pytest.fail(f"bit {bit}: {changed[start:end]!r}")
        mended = replies.AnswerFile(path)
        assert list(mended.replies) == [(1, "q0"), (1, "q2")]
        mended.append(said[1])
        mended.close()
        assert list(replies.Answers(path).replies.values()) == [said[0], said[2], said[1]]
    assert path.with_name("a.jsonl.damaged").read_bytes().count(b"\n") > 200


def test_records_of_tables_that_do_not_fit_together_name_their_file(tmp_path: Path) -> None:
    """As a program other than this one might write them."""
    path = tmp_path / "a.parquet"
    table, metadata = parquet.read(GOOD, MEASUREMENT)
    late = table.set_column(0, "request_id", [[0] * table.num_rows])
    with path.open("wb") as file:
        parquet.write(late.cast(table.schema), metadata, file)
    with pytest.raises(Damaged, match=rf"^{path}: .*request_id.*; discard it"):
        measurements.read(path)


def test_nothing_of_older_replies_is_lost() -> None:
    path = OLD / "store" / "answers" / "9c490d4332b767b47481.jsonl"
    told = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    read = replies.Answers(path)
    for line in (line for line in told if "session" not in line):
        assert not lost(line, msgspec.to_builtins(read.replies[line["repeat"], line["question_id"]]))
    (session,) = read.sessions.values()
    for line in (line["session"] for line in told if "session" in line):
        assert not lost(known(line), msgspec.to_builtins(session))
    assert (len(read.replies), session.differences) == (3, [])


def test_nothing_of_an_older_evaluation_is_lost() -> None:
    path = OLD / "evaluations" / "A.parquet"
    told = json_of(path)
    assert "format" not in told
    sessions, reason = told.pop("sessions"), told.pop("reason")
    found = replies.read(path)
    assert (reason, found.facts.reason) == (None, [])
    assert not lost(told, msgspec.to_builtins(found.facts))
    for before, after in zip(sessions, found.facts.sessions, strict=True):
        assert not lost(known(before), msgspec.to_builtins(after))
    assert (found.answers.num_rows, found.facts.answered) == (3, 3)
    assert replies.read_facts(path) == found.facts


def test_replies_are_added_to_an_older_file(tmp_path: Path) -> None:
    path = Path(shutil.copy(OLD / "store" / "answers" / "9c490d4332b767b47481.jsonl", tmp_path))
    before = replies.Answers(path)
    file = replies.AnswerFile(path)
    reply = replies.Reply(repeat=1, question_id="3", session_id="s", failed="ReadTimeout", latency_s=1.5)
    (session_id,) = before.sessions
    later = replies.AskingSession(session_id=session_id, differences=[replies.Difference(what="slots", asked=2, got=1)])
    for line in (reply, replies.SessionLine(session=later)):
        file.append(line)
    file.close()
    after = replies.Answers(path)
    assert after.replies == before.replies | {(1, "3"): reply}
    assert after.sessions[session_id] == replace(before.sessions[session_id], differences=later.differences)


@pytest.mark.parametrize("line", [{"repeat": 1, "question_id": "1"}, {"session": {"session_id": "s"}}])
def test_a_line_of_a_newer_format_is_refused_by_name_with_what_to_do(tmp_path: Path, line: dict) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text(json.dumps(line | {"format": replies.FORMAT + 1}) + "\n", encoding="utf-8")
    with pytest.raises(Newer, match=rf"^{path}:1: .*; use "):
        replies.Answers(path)


def test_an_evaluation_of_a_newer_format_is_refused_by_name_with_what_to_do(tmp_path: Path) -> None:
    path, found = tmp_path / "A.parquet", replies.read(OLD / "evaluations" / "A.parquet")
    replies.write(replies.Evaluated(found.answers, replace(found.facts, format=replies.FORMAT + 1)), path)
    for read in (replies.read, replies.read_facts):
        with pytest.raises(Newer, match=rf"^{path}: .*; use "):
            read(path)
