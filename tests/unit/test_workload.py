"""What no server can be asked, said as one sentence before anything is sent."""

import pytest

from servebench.load.arrivals import Pause, read_trace
from servebench.load.workload import Target, Workload


@pytest.mark.parametrize("url", ["http://", "http://:80", "http://127.0.0.1:abc", "http://[::1", "http://h:99999"])
def test_a_url_nobody_can_connect_to(url):
    with pytest.raises(ValueError, match=r"target\.url: .*has no host and port"):
        Target(url=url, model="m")


@pytest.mark.parametrize("url", ["http://127.0.0.1", "https://host:443/v1", "http://[::1]:8000"])
def test_a_url_that_has_them(url):
    assert Target(url=url, model="m").url == url


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -1.0])
@pytest.mark.parametrize("key", ["window_s", "warmup_s", "timeout_s", "rate", "spread_s", "temperature", "top_p"])
def test_numbers_that_are_none(key, value):
    with pytest.raises(ValueError, match=f"workload.{key}: "):
        Workload(**{key: value})


@pytest.mark.parametrize("text", ["nan", "inf", "exp:inf", "uniform:1,nan", "lognormal:nan,1"])
def test_pauses_that_are_none(text):
    with pytest.raises(ValueError, match=r"workload\.think: "):
        Pause.parse(text)


def test_a_trace_that_is_no_file_and_one_that_is_no_text(tmp_path):
    (tmp_path / "latin.jsonl").write_bytes(b"\xff\xfe")
    for path in (tmp_path / "missing.jsonl", tmp_path, tmp_path / "latin.jsonl"):
        with pytest.raises(ValueError, match=f"^{path}: cannot be read: .*; name a JSONL file in UTF-8"):
            read_trace(str(path))
