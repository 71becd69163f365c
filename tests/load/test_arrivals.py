"""Pauses, arrival processes and traces: what can be checked by hand."""

import asyncio
import itertools
import json
from random import Random
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from servebench.faults import Fault
from servebench.load.arrivals import Pause, schedule_ns
from servebench.load.traces import Entry, read_trace
from servebench.load.users import Dispatcher


@pytest.mark.parametrize(
    ("text", "mean_s"),
    [("2", 2.0), ("0", 0.0), ("exp:5", 5.0), ("exp:0", 0.0), ("uniform:2,8", 5.0), ("lognormal:5,0.5", 5.0)],
)
def test_the_mean_of_a_pause_is_what_was_asked(text, mean_s):
    random, pause = Random(1), Pause.parse(text)
    drawn = [pause.draw_s(random) for _ in range(20_000)]
    assert min(drawn) >= 0
    assert sum(drawn) / len(drawn) == pytest.approx(mean_s, rel=0.05)


def test_uniform_stays_within_its_ends():
    random, pause = Random(1), Pause.parse("uniform:2,8")
    drawn = [pause.draw_s(random) for _ in range(1_000)]
    assert 2 <= min(drawn) < 2.1 and 7.9 < max(drawn) <= 8


@pytest.mark.parametrize(
    "text", ["", "often", "-1", "exp", "exp:", "exp:1,2", "uniform:1", "uniform:8,2", "lognormal:0,1", "gamma:1,2"]
)
def test_what_is_no_pause_is_refused_by_name(text):
    with pytest.raises(Fault, match=r"workload\.think"):
        Pause.parse(text)


@given(processes=st.integers(1, 8), rate=st.floats(0.5, 500))
def test_constant_arrivals_of_all_processes_are_one_even_row(processes, rate):
    each = [schedule_ns(rate, "constant", 1_000, process, processes, Random(0)) for process in range(processes)]
    together = sorted(itertools.chain.from_iterable(itertools.islice(one, 5) for one in each))
    assert together == [1_000 + round(n * 1e9 / rate) for n in range(5 * processes)]


def test_a_fault_of_ours_in_one_request_of_an_open_loop_ends_all_of_it():
    async def breaks(user, request, scheduled_ns):
        raise ZeroDivisionError

    dispatcher = Dispatcher(SimpleNamespace(channels={0: None}, carry=breaks), iter([(0, lambda: None)] * 3))
    with pytest.raises(ExceptionGroup) as ended:
        asyncio.run(dispatcher.run())
    assert [type(one) for one in ended.value.exceptions] == [ZeroDivisionError]


@given(st.integers(0, 2**62))
def test_poisson_arrivals_lie_as_far_after_any_start(start_ns):
    def after(begin_ns):
        times = schedule_ns(40.0, "poisson", begin_ns, 0, 2, Random(7))
        return [at_ns - begin_ns for at_ns in itertools.islice(times, 50)]

    assert after(start_ns) == after(0)


def test_poisson_arrivals_of_all_processes_have_the_rate_and_the_spread_of_one():
    """Gaps of a Poisson process are exponential: their standard deviation is their mean."""
    each = [schedule_ns(100.0, "poisson", 0, process, 4, Random(process)) for process in range(4)]
    end_ns = 100_000_000_000
    together = sorted(itertools.chain.from_iterable(itertools.takewhile(lambda at: at < end_ns, one) for one in each))
    assert len(together) == pytest.approx(10_000, rel=0.05)
    gaps = [b - a for a, b in itertools.pairwise(together)]
    mean = sum(gaps) / len(gaps)
    deviation = (sum((gap - mean) ** 2 for gap in gaps) / len(gaps)) ** 0.5
    assert deviation == pytest.approx(mean, rel=0.05)


@pytest.mark.parametrize(
    ("line", "fault"),
    [
        ('{"prompt": "a"}', "arrival_s: None"),
        ('{"arrival_s": -1, "prompt": "a"}', "arrival_s: -1 is not a number of seconds"),
        ('{"arrival_s": 1e300, "prompt": "a"}', r"arrival_s: 1e\+300"),
        ('{"arrival_s": NaN, "prompt": "a"}', "cannot be sent"),
        ('{"arrival_s": "1", "prompt": "a"}', "arrival_s: '1'"),
        ('{"arrival_s": true, "prompt": "a"}', "arrival_s: True"),
        ('{"arrival_s": 0.1, "prompt": "a"}', r"arrival_s: 0\.1 is before the 0\.5 of line 1; sort"),
        ('{"arrival_s": 1}', "prompt: None"),
        ('{"arrival_s": 1, "prompt": 5}', "prompt: 5 is not a non-empty string"),
        ('{"arrival_s": 1, "prompt": "\\ud800"}', "cannot be sent"),
        ('{"arrival_s": 1, "messages": []}', r"messages: \[\] is not a list of messages"),
        ('{"arrival_s": 1, "messages": null}', "messages: None is not a list of messages"),
        ('{"arrival_s": 1, "messages": [5]}', "messages: message 1: 5 is not an object"),
        ('{"arrival_s": 1, "messages": [{"role": "user", "content": null}]}', "message 1: content: None"),
        ('{"arrival_s": 1, "prompt": "a", "max_tokens": -5}', "max_tokens: -5 is not a positive integer"),
        ('{"arrival_s": 1, "prompt": "a", "max_tokens": 0}', "max_tokens: 0"),
        ('{"arrival_s": 1, "prompt": "a", "max_tokens": 2.5}', r"max_tokens: 2\.5"),
        ('{"arrival_s": 1, "prompt": "a", "max_tokens": "5"}', "max_tokens: '5'"),
        ("[]", "is not a JSON object"),
        ("{", "JSON"),
    ],
)
def test_a_fault_in_a_trace_is_named_with_its_line(tmp_path, line, fault):
    path = tmp_path / "t.jsonl"
    path.write_text('{"arrival_s": 0.5, "prompt": "ok"}\n' + line, encoding="utf-8")
    with pytest.raises(Fault, match=rf"t\.jsonl:2: .*{fault}"):
        read_trace(str(path))


def test_a_trace_as_it_is_read(tmp_path):
    path = tmp_path / "t.jsonl"
    chat = [{"role": "user", "content": "b"}]
    lines = [{"arrival_s": 0, "prompt": "a"}, {"arrival_s": 0, "messages": chat, "max_tokens": 3}]
    path.write_text("\n\n".join(map(json.dumps, lines)), encoding="utf-8")
    first, second = read_trace(str(path)).entries
    assert first == Entry(1, 0.0, [{"role": "user", "content": "a"}], None)
    assert second == Entry(3, 0.0, chat, 3)


def test_an_empty_trace_is_refused(tmp_path):
    path = tmp_path / "t.jsonl"
    path.write_text("\n", encoding="utf-8")
    with pytest.raises(Fault, match="no requests"):
        read_trace(str(path))
