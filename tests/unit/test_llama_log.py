"""llama-server's log, as captured from real runs (the wheel xllamacpp 2026.10.11549; the start of a CUDA build)."""

import pytest

from servebench.engines import llama_log

CAPTURED = """\
0.00.005.534 I srv          init: build_info: b0-unknown
0.00.655.883 I cmn          init: llama threadpool init, n_threads = 2
0.02.412.641 I srv    load_model: initializing, n_slots = 2, n_ctx_slot = 512, kv_unified = 'false'
0.02.426.128 I srv          init: listening on http://127.0.0.1:18080
0.05.962.259 I slot get_availabl: id  1 | task -1 | selected slot by LRU, t_last = -1
0.05.962.471 I slot launch_slot_: id  1 | task 1 | processing task, is_child = 0
0.06.100.000 I slot launch_slot_: id  0 | task 3 | processing task, is_child = 0
0.14.490.386 I slot print_timing: id  1 | task 1 | prompt eval time =    2444.26 ms /    31 tokens (   78.85 ms per token,    12.68 tokens per second)
0.14.490.448 I slot print_timing: id  1 | task 1 |        eval time =    6083.59 ms /     3 tokens ( 3041.80 ms per token,     0.33 tokens per second)
0.14.490.461 I slot print_timing: id  1 | task 1 |       total time =    8527.85 ms /    34 tokens
0.14.490.518 I slot      release: id  1 | task 1 | stop processing: n_tokens = 33, truncated = 0
0.15.000.100 W srv          stop: cancel task, id_task = 3
0.15.000.200 I slot      release: id  0 | task 3 | stop processing: n_tokens = 40, truncated = 0
1.02.000.000 I slot launch_slot_: id  1 | task 9 | processing task, is_child = 0
"""  # noqa: E501


def test_start() -> None:
    found = llama_log.start(CAPTURED)
    assert found["slots"] == 2
    assert found["n_ctx_slot"] == 512
    assert found["kv_unified"] is False
    assert found["threads"] == 2
    assert found["build"] == "b0-unknown"
    assert found["offloaded_layers"] is None


def test_start_on_a_gpu() -> None:
    found = llama_log.start(
        "system_info: n_threads = 96 (n_threads_batch = 96) / 192 | CUDA : ARCHS = 900 |\n"
        "load_tensors: offloaded 41/41 layers to GPU\n"
    )
    assert (found["threads"], found["offloaded_layers"], found["all_layers"]) == (96, 41, 41)
    assert found["slots"] is None


def test_batches_and_prompt_cache_at_verbosity_4() -> None:
    found = llama_log.start(
        "0.00.868.018 I llama_context: n_ctx                 = 4096\n"
        "0.00.868.083 I llama_context: n_ctx_seq             = 2048\n"
        "0.00.868.107 I llama_context: n_batch               = 2048\n"
        "0.00.868.148 I llama_context: n_ubatch              = 512\n"
        "0.01.748.783 I srv    load_model: prompt cache is enabled, size limit: 8192 MiB\n"
        "0.01.748.784 I srv    load_model: use `--cache-ram 0` to disable the prompt cache\n"
    )
    names = ("n_ctx", "n_batch", "n_ubatch", "cache_ram_mib")
    assert [found[name] for name in names] == [4096, 2048, 512, 8192]
    assert [llama_log.start(CAPTURED)[name] for name in names] == [None, None, None, None]


@pytest.mark.parametrize(
    ("line", "mib"),
    [
        ("W srv          init: --cache-idle-slots requires --cache-ram, disabling", 0),
        ("I srv    load_model: prompt cache is disabled - use `--cache-ram N` to enable it", 0),
        ("I srv    load_model: prompt cache is enabled, size limit: no limit", -1),
    ],
)
def test_prompt_cache_without_a_size(line: str, mib: int) -> None:
    assert llama_log.start(line)["cache_ram_mib"] == mib


def test_requests() -> None:
    first, second, third = llama_log.requests(CAPTURED)
    assert (first.task, first.slot, first.started_s, first.busy_slots) == (1, 1, 5.962471, 1)
    assert (first.prompt_ms, first.prompt_tokens, first.eval_ms, first.eval_tokens) == (2444.26, 31, 6083.59, 3)
    assert (first.total_tokens, first.truncated, first.cancelled) == (33, False, False)
    assert (second.busy_slots, second.cancelled, second.prompt_ms) == (2, True, None)
    assert (third.started_s, third.busy_slots) == (62.0, 1)
    assert llama_log.served(CAPTURED, "")["prompt_tokens"] == [31, None, None]


def test_a_log_that_does_not_tell_yet_how_a_request_ended() -> None:
    assert not llama_log.ended(CAPTURED)  # the last one got its slot
    assert llama_log.ended(CAPTURED[: CAPTURED.index("1.02.000.000")])
    assert llama_log.ended("a server that logs no requests\n")


def test_a_log_without_time_stamps_gives_no_start_times() -> None:
    lines = "\n".join(line[12:] for line in CAPTURED.splitlines())
    first = llama_log.requests(lines)[0]
    assert (first.started_s, first.prompt_tokens) == (None, 31)
