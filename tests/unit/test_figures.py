"""Figures of measurements small enough to compute by hand."""

import json

import msgspec
import numpy as np
import pyarrow as pa
import pytest

from exchanges import delta, event, exchange, load_meta, usage
from servebench.load.figures import measurement_figures
from servebench.load.line import Line
from servebench.load.measurement import Address, Client, ClientProcess
from servebench.load.percentiles import line_confidence, mean, median, percentile
from servebench.load.stream import to_tables
from servebench.marks import mark

S = 10**9


def reply(request_id, sent_s, arrivals_s, tokens=None, end_s=None, **facts):
    """A reply whose chunks arrive at `arrivals_s`; usage says `tokens`, by default one a chunk."""
    blocks = [(round(at * S), delta(content="x")) for at in arrivals_s]
    end_s = end_s or arrivals_s[-1]
    blocks.append((round(end_s * S), delta("stop") + usage(tokens or len(arrivals_s))))
    sent_ns = round(sent_s * S)
    base = {"scheduled_ns": sent_ns, "sent_ns": sent_ns, "end_ns": round(end_s * S), "blocks": blocks}
    return exchange(request_id=request_id, **(base | {"first_byte_ns": round(arrivals_s[0] * S)} | facts))


def failure(request_id, sent_s, kind="reset", **facts):
    at_ns = round(sent_s * S)
    base = {"scheduled_ns": at_ns, "sent_ns": at_ns, "end_ns": at_ns + S, "failure": kind, "http_status": None}
    return exchange(request_id=request_id, **(base | facts))


def figures(*exchanges, window_s=(10, 20), mode="closed", line=None, client=None, users=1, extra=None, **more):
    whole = mode in ("count", "trace")
    window = (window_s[0] * S, window_s[1] * S + whole)  # the load's last nanosecond belongs to it
    requests, chunks = to_tables(exchanges, None if whole else window, by_schedule=mode == "open")
    asked = Address(url="http://127.0.0.1:8000", model="m", extra=extra or {})
    meta = load_meta(window, mode=mode, users=users, client=client or Client(), target=asked)
    found = measurement_figures(requests, chunks, meta, line or Line(), **more)
    json.dumps(msgspec.to_builtins(found), allow_nan=False)  # every figure fits into summary.json
    return found


def test_nearest_rank():
    values = np.arange(1.0, 21.0)
    assert percentile(values, 95) == 19  # ⌈0.95 · 20⌉ = 19, and the 19th is 19
    assert percentile(values, 50) == 10
    assert percentile(values, 1) == 1
    assert percentile(values, 100) == 20
    assert percentile(np.array([5.0, 1.0, 3.0]), 95) == 5
    assert percentile(np.array([]), 95) is None


def test_median_and_mean():
    assert median(np.array([4.0, 1.0, 3.0])) == 3
    assert median(np.array([4.0, 1.0, 2.0, 3.0])) == 2.5
    assert median(np.array([])) is None
    assert mean(np.array([1.0, 2.0, 6.0])) == 3
    assert mean(np.array([])) is None


@pytest.mark.parametrize(("passes", "requests", "confidence"), [(28, 28, 0.76), (59, 59, 0.95)])
def test_confidence_as_published(passes, requests, confidence):
    assert line_confidence(passes, requests) == pytest.approx(confidence, abs=0.005)


def test_confidence_with_misses():
    # One of two: 1 − (0.95² + 2 · 0.05 · 0.95) = 0.05²
    assert line_confidence(1, 2) == pytest.approx(0.0025)
    assert line_confidence(0, 1) == pytest.approx(0)
    assert line_confidence(0, 0) is None


def test_token_at_the_windows_edges():
    found = figures(reply(0, 9, [9.999999999, 10, 19.999999999, 20]))
    assert found["output_tok_s"] == 2 / 10  # at the start it counts, at the end it does not
    before = figures(reply(0, 9, [10, 20]), window_s=(0, 10))
    after = figures(reply(0, 9, [10, 20]), window_s=(20, 30))
    assert [before["output_tok_s"], after["output_tok_s"]] == [None, 0.1]  # a token at an edge counts once
    assert before["invalid_reasons"] == [mark("no_output")]


def test_all_requests_give_output_but_only_targets_give_latency():
    warm_up = reply(0, 1, [2, 12])  # one of two tokens in the window
    target = reply(1, 11, [11.5, 12, 12.5, 13, 13.5], tokens=7)
    late = reply(2, 20, [20.5])
    broken = exchange(
        request_id=3, sent_ns=12 * S, end_ns=14 * S, failure="reset",
        blocks=[(13 * S, delta(content="x")), (13 * S, delta(content="x"))],
    )  # fmt: skip
    found = figures(warm_up, target, late, broken)
    assert found["output_tok_s"] == (1 + 7 + 2) / 10
    assert found["target_requests"] == 2
    assert found["failures"] == 1
    assert found["failures_reset"] == 1
    assert found["other_failures"] == 0
    assert found["ttft_p50_s"] == 0.5
    assert found["user_tok_s"] == 6 / 2  # the first arrival brought one of 7 tokens, and the rest took 2 s
    assert found["tokens_from_usage"] == 3
    assert found["tokens_from_chunks"] == 1


def test_reasoning_that_is_not_streamed_makes_nobody_faster():
    hidden = {"completion_tokens_details": {"reasoning_tokens": 200}}
    chunks = [(11 * S, delta(content="a")), (12 * S, delta(content="b")), (13 * S, delta("stop", content="c"))]
    counted = exchange(sent_ns=9 * S, end_ns=14 * S, blocks=[*chunks, (13 * S, usage(203, **hidden))])
    found = figures(counted, window_s=(8, 18))
    assert (found["user_tok_s"], found["tokens_per_chunk"], found["output_tok_s"]) == (1.0, 1.0, 0.3)
    assert (found["output_tokens_mean"], found["reasoning_replies"]) == (203, 1)
    assert found["invalid_reasons"] == [mark("reasoning_seen", replies=1)]
    untold = figures(exchange(sent_ns=9 * S, end_ns=14 * S, blocks=[*chunks, (13 * S, usage(203))]), window_s=(8, 18))
    assert [found.kind for found in untold["invalid_reasons"]] == ["many_tokens_a_chunk", "clumped_stream"]
    assert untold["user_tok_s"] is None


def test_max_completion_tokens_is_the_limit_where_it_is_given():
    def reasons(**extra):
        return figures(reply(0, 11, [11.5, 12, 12.5, 13, 13.5], tokens=9), extra=extra)["invalid_reasons"]

    assert reasons(max_completion_tokens=8) == [mark("output_beyond_limit", replies=1, max_tokens=8)]
    assert reasons(max_completion_tokens=9, max_tokens=8) == []


def test_latencies_by_hand():
    found = figures(
        reply(0, 10, [10.5, 11.5], end_s=11.6),
        reply(1, 12, [13.0, 13.25, 13.5], end_s=13.7),
        reply(2, 14, [16.0], end_s=16.1),
    )
    assert found["ttft_p50_s"] == 1
    assert found["ttft_mean_s"] == pytest.approx((0.5 + 1 + 2) / 3)
    assert found["ttft_p95_s"] == found["ttft_max_s"] == 2
    assert found["user_tok_s"] == pytest.approx((1 + 4) / 2)
    assert found["one_chunk_requests"] == 1
    assert found["tpot_p50_s"] == pytest.approx((1 + 0.25) / 2)
    assert found["inter_chunk_p50_s"] == 0.25  # of 0.25, 0.25 and 1
    assert found["inter_chunk_p99_s"] == 1
    assert found["e2e_p50_s"] == pytest.approx(1.7)
    assert found["tokens_per_chunk"] == 1
    assert found["prompt_tokens_p50"] == 100
    assert found["output_tokens_mean"] == 2
    assert found["in_flight_mean"] == pytest.approx((1.6 + 1.7 + 2.1) / 10)


def served(gap_s=0.02, tokens=128, each=1, buffer_bytes=1, segments=1, ttft_s=0.05):
    """Replies of a server of 1 ÷ `gap_s` tokens/s that sends `each` tokens a chunk, behind a proxy that releases them
    when it holds `buffer_bytes`, in `segments` 50 µs apart."""
    replies = []
    for user in range(20):
        sent_s, held, blocks = 10 + 0.1 * user, [], []
        for n in range(1, tokens + 1):
            if n % each == 0 or n == tokens:
                held.append(delta(content="x" * min(each, n), padding="x" * 120))
            if held and (sum(map(len, held)) >= buffer_bytes or n == tokens):
                body, at_s = b"".join(held), sent_s + ttft_s + n * gap_s
                size = -(-len(body) // segments)
                pieces = [body[i : i + size] for i in range(0, len(body), size)]
                blocks += [(round((at_s + 5e-5 * i) * S), piece) for i, piece in enumerate(pieces)]
                held = []
        end_ns = blocks[-1][0] + 1
        blocks.append((end_ns, delta("stop") + usage(tokens)))
        at = round(sent_s * S)
        replies.append(
            exchange(
                request_id=user, scheduled_ns=at, sent_ns=at, first_byte_ns=blocks[0][0], end_ns=end_ns, blocks=blocks
            )
        )
    return figures(*replies)


@pytest.mark.parametrize("gap_s", [0.02, 0.125])
@pytest.mark.parametrize("segments", [1, 7])
@pytest.mark.parametrize("buffer_bytes", [1, 1024, 4096, 8192, 65536])
@pytest.mark.parametrize("each", [1, 2, 3, 5, 8, 16, 32, 64])
def test_a_speed_is_the_servers_or_there_is_none(each, buffer_bytes, segments, gap_s):
    found = served(gap_s, each=each, buffer_bytes=buffer_bytes, segments=segments)
    if found["user_tok_s"] is None:
        assert "clumped_stream" in {doubt.kind for doubt in found["invalid_reasons"]}
        assert not found["meets_line"] and found["goodput_requests_s"] is None
    else:
        assert found["user_tok_s"] == pytest.approx(1 / gap_s, rel=0.02)
        assert found["meets_line"] == (gap_s == 0.02)


@pytest.mark.parametrize(("each", "buffer_bytes"), [(1, 1), (1, 1024), (8, 1)])
def test_small_pieces_do_show_a_speed(each, buffer_bytes):
    assert served(each=each, buffer_bytes=buffer_bytes)["user_tok_s"] == pytest.approx(50, rel=0.02)


def test_a_whole_reply_in_two_pieces_shows_no_speed():
    found = served(buffer_bytes=10**9, segments=2)
    assert found["user_tok_s"] is None and found["tpot_p50_s"] is None


def test_a_tenth_of_replies_in_one_piece_leaves_no_speed_for_the_others():
    one_piece = [reply(100 + i, 12 + i, [12.5 + i] * 11) for i in range(3)]
    assert figures(*steady(), *one_piece[:1])["user_tok_s"] == pytest.approx(50)
    assert figures(*steady(), *one_piece)["user_tok_s"] is None


def test_a_reply_of_one_token_has_no_speed_to_show_and_hides_none():
    short = [reply(100 + i, 12 + i, [12.5 + i]) for i in range(5)]
    found = figures(*steady(), *short)
    assert (found["user_tok_s"], found["goodput_share"]) == (pytest.approx(50), 1)


def test_two_chunks_in_one_block_have_no_speed():
    found = figures(reply(0, 10, [11, 11]))
    assert (found["user_tok_s"], found["one_chunk_requests"]) == (None, 1)
    assert not found["meets_line"]


def test_reasoning_counts_as_first_token_and_is_marked():
    blocks = [(11 * S, delta(reasoning="hm")), (13 * S, delta("stop", content="x") + usage(2))]
    found = figures(exchange(request_id=0, sent_ns=10 * S, end_ns=13 * S, blocks=blocks))
    assert (found["ttft_p50_s"], found["ttft_answer_p50_s"]) == (1, 3)
    assert found["reasoning_replies"] == 1
    assert not found["valid"]
    assert mark("reasoning_seen", replies=1) in found["invalid_reasons"]


def steady(count=20, ttft_s=0.5, window_s=10):
    """`count` targets, one after the other over the window, each with 11 tokens in 0.2 s."""
    pace = window_s / count
    return [reply(i, 10 + i * pace, [10 + i * pace + ttft_s + 0.02 * n for n in range(11)]) for i in range(count)]


def test_the_line():
    found = figures(*steady())
    assert found["meets_line"]
    assert found["user_tok_s"] == pytest.approx(50)
    assert found["line_confidence"] == pytest.approx(1 - 0.95**20)
    assert not found["reference_only"]
    assert (found["goodput_requests_s"], found["goodput_share"]) == (2, 1)
    assert figures(*steady(19))["reference_only"]
    assert not figures(*steady(19))["meets_line"]
    assert not figures(*steady(ttft_s=2.1))["meets_line"]
    assert figures(*steady(ttft_s=2.1))["goodput_share"] == 0
    assert not figures(*steady(), line=Line(user_tok_s=51))["meets_line"]
    assert figures(*steady(), line=Line(ttft_p95_s=0.5, user_tok_s=49, min_targets=20))["meets_line"]


def test_failures_count_as_endless_waiting():
    one_of_21 = figures(*steady(), failure(99, 15))
    assert one_of_21["ttft_p95_s"] == one_of_21["ttft_p95_all_s"] == pytest.approx(0.5)  # rank 20 of 21
    assert not one_of_21["ttft_p95_all_infinite"]
    assert not one_of_21["meets_line"]
    two_of_22 = figures(*steady(), failure(98, 15), failure(99, 16, "timeout"))
    assert two_of_22["ttft_p95_s"] == pytest.approx(0.5)
    assert two_of_22["ttft_p95_all_s"] is None  # rank 21 of 22 is a failure
    assert two_of_22["ttft_p95_all_infinite"]
    assert two_of_22["line_confidence"] < one_of_21["line_confidence"] < 1 - 0.95**20
    assert (two_of_22["failures_reset"], two_of_22["failures_timeout"], two_of_22["failures"]) == (1, 1, 2)


def test_half_of_the_requests_refused_is_a_mark_and_never_within_the_line():
    refused = [failure(100 + n, 10.1 + n / 2, None, http_status=503) for n in range(20)]
    found = figures(*steady(), *refused)
    assert (found["target_requests"], found["failures"]) == (40, 20)
    assert found["invalid_reasons"] == [mark("requests_failed", failures=20, requests=40, statuses={"http_error": 20})]
    assert not found["meets_line"]


@pytest.mark.parametrize(("failures", "marked"), [(1, False), (2, True), (3, True)])
def test_a_warm_up_that_failed_by_half_is_a_mark_and_never_within_the_line(failures, marked):
    warmup = [reply(100, 5, [5.5]), reply(101, 6, [6.5]), *(failure(102 + n, 7) for n in range(failures))]
    found = figures(*steady(), *warmup)
    mark_ = mark("warmup_failed", failures=failures, requests=2 + failures)
    assert found["invalid_reasons"] == [mark_] * marked
    assert found["meets_line"] is not marked
    assert found["other_failures"] == failures


def test_replies_left_open_after_done_are_counted_and_marked():
    found = figures(reply(0, 11, [11.5, 12]), reply(1, 13, [13.5, 14], complete=False, left_open=True))
    assert (found["failures"], found["left_open"]) == (0, 1)
    assert found["invalid_reasons"] == [mark("left_open", replies=1)]


MEASURED_OF_REPLIES = (
    "output_tok_s", "requests_s", "goodput_requests_s", "steadiness", "ttft_p50_s", "ttft_p95_s", "ttft_p95_all_s",
    "user_tok_s", "e2e_p50_s", "output_tokens_mean",
)  # fmt: skip


@pytest.mark.parametrize("targets", [1, 25])  # fewer than the line asks for, and more
def test_nothing_but_failures(targets):
    others = [failure(99, 5, "connect_error"), reply(98, 8, [10.1, 10.2])]  # a warm-up's tokens are no result either
    found = figures(*[failure(n, 11 + n / 10, "http_error") for n in range(targets)], *others)
    assert (found["target_requests"], found["failures"], found["other_failures"]) == (targets, targets, 1)
    assert [found[name] for name in MEASURED_OF_REPLIES] == [None] * len(MEASURED_OF_REPLIES)
    assert found["ttft_p95_all_infinite"]
    assert not found["meets_line"]
    assert not found["valid"]
    assert found["invalid_reasons"] == [mark("all_failed", requests=targets, statuses={"http_error": targets})]


def test_no_requests_at_all():
    found = figures()
    assert found["target_requests"] == 0
    for name in ("output_tok_s", "ttft_p95_all_s", "line_confidence", "goodput_share", "in_flight_mean", "steadiness"):
        assert found[name] is None
    assert not found["ttft_p95_all_infinite"]
    assert found["invalid_reasons"] == [mark("nothing_sent")]


def test_output_of_a_request_longer_than_the_window_is_measured_though_it_has_no_target():
    found = figures(reply(0, 9, [11, 12, 25]))
    assert (found["target_requests"], found["output_tok_s"], found["requests_s"]) == (0, 0.2, None)
    assert found["valid"]


def test_chunks_that_stand_for_tokens_are_a_doubt():
    """A chunk may hold several tokens; a server that sends usage, or a tokenizer, says how many."""
    told, untold = reply(0, 11, [11.5, 12]), exchange(
        request_id=1, sent_ns=13 * S, end_ns=14 * S, blocks=[(14 * S, delta(content="x") + delta("stop"))]
    )  # fmt: skip
    assert figures(told)["valid"]
    assert figures(told, untold)["invalid_reasons"] == [mark("tokens_are_chunks", replies=1)]


def test_cancelled_requests_are_nothing():
    cancelled = reply(1, 21, [21.5, 22], failure="cancelled")
    found = figures(reply(0, 11, [11.5, 12]), cancelled)
    assert (found["target_requests"], found["other_failures"], found["tokens_from_chunks"]) == (1, 0, 0)
    assert found["valid"]
    stopped = figures(reply(0, 11, [11.5, 12]), reply(1, 15, [15.5, 16], failure="cancelled"))
    assert (stopped["target_requests"], stopped["failures"], stopped["output_tok_s"]) == (1, 0, 0.2)
    assert stopped["invalid_reasons"] == [mark("stopped_early", requests=1)]


def test_open_loop_counts_from_the_schedule():
    late = reply(0, 13, [14, 15], scheduled_ns=11 * S)  # due at 11, sent at 13
    found = figures(late, mode="open")
    assert (found["ttft_p50_s"], found["e2e_p50_s"], found["send_delay_p50_s"]) == (3, 4, 2)
    assert figures(late)["ttft_p50_s"] == 1  # closed loop: from sending


def test_backlog_of_the_open_loop():
    # Due before and at the start of the window; over inside it, after it, never sent.
    never = failure(3, 19.5, "connect_error", sent_ns=None)
    found = figures(reply(0, 9, [11]), reply(1, 10, [21]), reply(2, 18, [25]), never, mode="open")
    assert (found["backlog_start"], found["backlog_end"]) == (2, 3)
    over = figures(reply(0, 9, [10]), reply(1, 11, [20]), mode="open")  # over at that very moment
    assert (over["backlog_start"], over["backlog_end"]) == (0, 0)
    assert figures(reply(0, 9, [11]))["backlog_end"] is None


def queue(rate, served_per_s, window_s=(60, 120)):
    """An open loop of `rate` requests/s at a server that ends at most `served_per_s`, each in 11 tokens."""
    replies, free_s = [], 0.0
    for i in range(rate * 130):
        due_s = i / rate
        free_s = max(free_s, due_s) + 1 / served_per_s
        times = [free_s + 0.01 * n for n in range(11)]
        replies.append(reply(i, due_s, times))
    return figures(*replies, mode="open", window_s=window_s)


def test_an_open_loop_reports_what_the_server_did_and_not_what_it_was_offered():
    keeps_up, falls_behind = queue(2, 10), queue(4, 2)
    assert keeps_up["requests_s"] == pytest.approx(2, rel=0.02)
    assert keeps_up["meets_line"] and keeps_up["invalid_reasons"] == []
    assert falls_behind["requests_s"] == pytest.approx(2, rel=0.02)  # of the 4 that were due
    assert "backlog_grows" in {found.kind for found in falls_behind["invalid_reasons"]}
    assert falls_behind["backlog_end"] - falls_behind["backlog_start"] == pytest.approx(120, abs=2)


def test_an_open_loop_that_falls_behind_meets_no_line_though_its_first_tokens_come_in_time():
    found = queue(4, 2, window_s=(0, 6))
    prompt = [reply(i, i, [i + 0.1 + 0.01 * n for n in range(11)]) for i in range(30)]
    assert figures(*prompt, mode="open", window_s=(0, 30))["meets_line"]
    assert found["backlog_end"] > found["backlog_start"] + 5 and not found["meets_line"]


def test_request_count_mode():
    # Two streams at once, four requests of 10 tokens, all over after 8 s: 40 ÷ 8.
    each = [reply(i, 10 + i // 2 * 4, [11 + i // 2 * 4 + n / 3 for n in range(10)]) for i in range(4)]
    found = figures(*each, mode="count", window_s=(10, 18))
    assert found["target_requests"] == 4
    assert found["ttft_mean_s"] == 1
    assert found["output_tok_s"] == pytest.approx(5)
    assert found["valid"]


def test_unsteady_window():
    slow_end = [*steady(30, window_s=4), reply(99, 16, [17, 18], tokens=2)]
    found = figures(*slow_end)
    assert found["steadiness"] < 0.1
    assert found["invalid_reasons"] == [mark("unsteady_window", ratio=found["steadiness"])]
    assert figures(*slow_end, mode="count")["valid"]
    assert figures(reply(0, 10, [11, 12]))["valid"]  # too few requests to tell


@pytest.mark.parametrize(
    ("wait_s", "gap_s", "steady"),
    [(1.5, 0.04, True), (0.25, 0.2, False)],  # of a period of 2 s: mostly waiting; mostly streaming
)
def test_waves_of_replies_are_not_unsteady(wait_s, gap_s, steady):
    """Four users in step, a wave of 4 × 8 tokens every 2 s of which the window's halves hold two and three."""
    waves = [(wave * 2, number) for wave in range(5) for number in range(4)]
    chunks = range(8)
    replies = [
        reply(10 * wave + n, 10 + at, [10 + at + wait_s + gap_s * k for k in chunks], end_s=12 + at)
        for wave, (at, n) in enumerate(waves)
    ]
    if not steady:  # the same halves, but from replies that stream nearly all the time: the second half is faster
        replies = [r for r in replies if r.sent_ns >= 15 * S or r.request_id % 10 < 2]
    found = figures(*replies, users=4, line=Line(min_targets=12))
    assert found["steadiness"] > 1.2
    assert found["valid"] is steady


def test_reasons_against_a_measurement():
    lags = ClientProcess(pid=1, cpu_s=0.71, wall_s=1, loop_lag_p99_s=0.002, loop_lag_max_s=0.01)
    busy = Client(cpu_ratio=0.71, processes=[lags])
    foreign = mark("foreign_use", samples=3, share_percent=5.0)
    found = figures(*steady(), client=busy, users=64, calibrated_users=32, seen=[foreign])
    assert found["invalid_reasons"] == [
        mark("beyond_calibration", users=64, calibrated_users=32),
        mark("client_busy", cpu_ratio=0.71, limit=0.7),
        foreign,
    ]
    assert found["client_cpu_ratio"] == 0.71
    assert found["client_loop_lag_p99_s"] == 0.002
    assert figures(*steady(), client=Client(cpu_ratio=0.7), users=32, calibrated_users=32)["valid"]


def test_cached_tokens_and_queue_wait():
    def told(request_id, cached, prompt_ms):
        last = event(
            choices=[{"delta": {}, "finish_reason": "length"}],
            usage={"prompt_tokens": 100, "completion_tokens": 2, "prompt_tokens_details": {"cached_tokens": cached}},
            timings={"prompt_ms": prompt_ms, "predicted_ms": 5.0},
        )
        blocks = [(12 * S, delta(content="x")), (13 * S, delta(content="x") + last)]
        return exchange(request_id=request_id, sent_ns=11 * S, end_ns=13 * S, blocks=blocks)

    found = figures(told(0, 60, 250.0), told(1, 20, 750.0), reply(2, 14, [15, 16]))
    assert (found["cached_tokens_mean"], found["cached_share"]) == (40, 0.4)
    assert found["prefill_p50_s"] == 0.5
    assert found["queue_wait_p50_s"] == 0.5  # TTFT 1 s less 0.25 and 0.75 s of prefill
    assert found["finished_by_length"] == 2
    assert found["without_done"] == 3


@pytest.mark.parametrize("prompt_ms", [-50000.0, 1e308, 1200.0])
def test_a_prompt_time_that_cannot_be_is_a_mark_and_no_figure(prompt_ms):
    last = event(choices=[{"delta": {}, "finish_reason": "stop"}], timings={"prompt_ms": prompt_ms})
    blocks = [(12 * S, delta(content="x")), (13 * S, delta(content="x") + last + usage(2))]
    found = figures(exchange(request_id=0, sent_ns=11 * S, end_ns=13 * S, blocks=blocks))  # TTFT 1 s
    assert (found["prefill_p50_s"], found["queue_wait_p50_s"]) == (None, None)
    assert found["invalid_reasons"] == [mark("impossible_timings", replies=1)]


@pytest.mark.parametrize(("cached", "prompt"), [(150, 100), (2**31 - 1, 100), (1, 0)])
def test_more_cached_than_prompt_tokens_is_a_mark_and_no_share(cached, prompt):
    def told(request_id, cached, prompt):
        last = usage(2, prompt, prompt_tokens_details={"cached_tokens": cached})
        blocks = [(12 * S, delta(content="x")), (13 * S, delta("stop", content="x") + last)]
        return exchange(request_id=request_id, sent_ns=11 * S, end_ns=13 * S, blocks=blocks)

    found = figures(told(0, cached, prompt), told(1, 40, 100))
    assert (found["cached_tokens_mean"], found["cached_share"]) == (40, 0.4)
    assert found["invalid_reasons"] == [mark("cached_beyond_prompt", replies=1)]
    alone = figures(told(0, cached, prompt))
    assert (alone["cached_tokens_mean"], alone["cached_share"], alone["valid"]) == (None, None, False)
    assert figures(told(0, 100, 100))["cached_share"] == 1
    assert figures(told(0, 100, 100))["valid"]


@pytest.mark.parametrize(("tokens", "valid"), [(8, True), (9, False), (100_000, False)])
def test_more_tokens_than_asked_for_are_a_mark(tokens, valid):
    requests, chunks = to_tables([reply(0, 11, [12, 13, 14, 15], tokens=tokens)], (10 * S, 20 * S))
    meta = load_meta((10 * S, 20 * S), workload={"max_tokens": 8})
    found = measurement_figures(requests, chunks, meta, Line())
    assert found["valid"] is valid
    assert (mark("output_beyond_limit", replies=1, max_tokens=8) in found["invalid_reasons"]) is not valid


def test_cached_tokens_without_prompt_tokens_are_no_contradiction():
    last = event(choices=[], usage={"completion_tokens": 1}, timings={"cache_n": 44})
    blocks = [(12 * S, delta("stop", content="x") + last)]
    found = figures(exchange(request_id=0, sent_ns=11 * S, end_ns=13 * S, blocks=blocks))
    assert (found["cached_tokens_mean"], found["cached_share"], found["valid"]) == (44, None, True)


def test_several_processes_tables_in_any_order():
    first, second = reply(0, 11, [12, 13], tokens=3), reply(1, 11, [14, 18], tokens=9)
    one, two = to_tables([first], (10 * S, 20 * S)), to_tables([second], (10 * S, 20 * S))
    meta = load_meta((10 * S, 20 * S), users=2)
    both = [pa.concat_tables(tables) for tables in zip(one, two, strict=True)]
    turned = [pa.concat_tables([one[0], two[0]]), pa.concat_tables([two[1], one[1]])]
    assert measurement_figures(*both, meta, Line()) == measurement_figures(*turned, meta, Line())


def test_a_conversation_whose_prompt_shrinks_has_lost_messages():
    def turn(request_id, number, prompt_tokens, of="doc1"):
        asked = {"prompt_id": f"{of} turn {number}"}
        told = reply(request_id, 10 + request_id, [10.5 + request_id], **asked)
        told.blocks[-1] = (told.blocks[-1][0], delta("stop") + usage(1, prompt_tokens=prompt_tokens))
        return told

    grown = [turn(0, 1, 100), turn(1, 2, 180), turn(2, 3, 180), turn(3, 1, 90, "doc2")]
    shrunk = [*grown, turn(4, 2, 60, "doc2")]
    assert mark("prompts_shrank", turns=1) in figures(*shrunk, mode="conversation")["invalid_reasons"]
    for good in (figures(*grown, mode="conversation"), figures(*shrunk)):
        assert not any(found.kind == "prompts_shrank" for found in good["invalid_reasons"])
