"""A configuration that cannot be run is refused in one line for each fault, soon, and before anything is started."""

from __future__ import annotations

import copy
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from servebench import ROOT, configuration

QUICK = (ROOT / "config" / "config.yaml").read_text(encoding="utf-8")
Change = Callable[[dict[str, Any]], object]


def refused(tmp_path: Path, text: str) -> list[str]:
    file = tmp_path / "c.yaml"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(configuration.ConfigError) as error:
        configuration.read([file])
    return str(error.value).splitlines()


def changed(change: Change) -> str:
    config = copy.deepcopy(yaml.safe_load(QUICK))
    change(config)
    return yaml.safe_dump(config, sort_keys=False)


def first(config: dict[str, Any], section: str) -> dict[str, Any]:
    """The section's first entry."""
    return next(iter(config[section].values()))


LAUGHS = "a: &a [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{name}: &{name} [{', '.join([f'*{before}'] * 9)}]\n" for before, name in zip("abcdefgh", "bcdefghi", strict=True)
)


@pytest.mark.outcome(
    "a configuration: a key twice",
    "a configuration: exploding references",
    "a configuration: a reference to itself",
    "a configuration: nested deep",
    at="planning",
    into="files",
    kept="all",
    again="–",
    reads="file, line and key",
    code="1",
)
@pytest.mark.parametrize(
    ("text", "said"),
    [
        (QUICK + "rounds: 1\n", "rounds: is given in line"),
        ("workload: {window_s: 1, window_s: 2}\n", ":1: window_s: is given in line 1, too"),
        ("settings: {one: {slots: 1}, one: {slots: 2}}\n", ":1: one: is given in line 1, too"),
        (LAUGHS, "values once its references"),
        ("a: &a {b: *a}\n", ":1: refers to itself"),
        ("a: &a [*a]\n", ":1: refers to itself"),
        ("a: " + "[" * 3000 + "]" * 3000, "nest"),
        ("a: " + "x" * 2**23, "has more than 4 MiB"),
        ("- 1\n", "is not a mapping"),
    ],
    ids=["twice", "twice inside", "setting twice", "laughs", "circle", "list in a circle", "deep", "long", "list"],
)
def test_a_file_that_cannot_be_taken_as_it_is_is_refused_with_file_and_line(
    text: str, said: str, tmp_path: Path
) -> None:
    (line,) = refused(tmp_path, text)
    assert line.startswith(f"{tmp_path}/c.yaml:")
    assert said in line


def test_what_snakemake_has_merged_is_refused_like_what_servebench_merges(tmp_path: Path) -> None:
    file = tmp_path / "c.yaml"
    file.write_text(QUICK + "rounds: 1\n", encoding="utf-8")
    with pytest.raises(configuration.ConfigError, match="rounds: is given in line"):
        configuration.load(yaml.safe_load(QUICK), [file])


def test_a_device_is_no_configuration() -> None:
    with pytest.raises(configuration.ConfigError, match="/dev/zero: is not a file"):
        configuration.read(["/dev/zero"])


def source(text: str) -> Change:
    return lambda config: first(config, "models").update(source=text, sha256="0" * 64)


def workload(**keys: Any) -> Change:
    return lambda config: config["workload"].update(keys)


def collide(config: dict[str, Any]) -> None:
    setting = first(config, "settings")
    config["runs"] = {"a_b": {}, "a": {}}
    config["settings"] = {"c": {**setting, "run": "a_b"}, "b_c": {**setting, "run": "a"}}


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (workload(timeout_s=1e12), "workload.timeout_s: 1000000000000.0 is greater than"),
        (workload(window_s=1e308), "workload.window_s: 1e+308 is greater than"),
        (workload(window_s=float("inf")), "workload.window_s"),
        (lambda config: first(config, "settings").update(slots=2**50), "slots: 1125899906842624 is greater than"),
        (lambda config: config.update(runtime={"ready_timeout_s": 1e300}), "runtime.ready_timeout_s: 1e+300 is"),
        (lambda config: first(config, "settings").update(env={"A=B": "1"}), "name of an environment variable"),
        (lambda config: first(config, "settings").update(env={"": "1"}), "name of an environment variable"),
        (lambda config: first(config, "settings").update(env={"A\n": "1"}), "name of an environment variable"),
        (lambda config: first(config, "settings").update(env={"A": "x\0"}), "which no file or server takes"),
        (lambda config: config.update(experiment="abc\n"), "experiment: "),
        (collide, "settings.b_c: run a and setting b_c are joined to the same name as those of c"),
        (source("hf://o/r@x/../../.."), "leads elsewhere"),
        (source("hf://../r@x"), "leads elsewhere"),
        (source("hf://o/r/../../x@y"), "leads elsewhere"),
        (source("pypi://-r==x/y"), "leads elsewhere"),
        (source("pypi://a==1/../../x"), "leads elsewhere"),
        (source("ollama://../x"), "leads elsewhere"),
        (source("https://user:pass@h/m.gguf"), "holds a password or token"),
        (source("https://h/m.gguf?token=abc"), "holds a password or token"),
        (source("file:///x\n"), "does not fit"),
        (lambda config: config.update(runtime={"mirror": "https://user:pass@h/"}), "holds a password or token"),
    ],
)
def test_a_value_that_would_do_harm_later_is_refused_in_one_line(change: Change, said: str, tmp_path: Path) -> None:
    (line,) = refused(tmp_path, changed(change))
    assert said in line
    assert "pass" not in line.replace("password", "") and "abc" not in line.replace('"abc', "")


@pytest.mark.parametrize("device", ["/dev/zero", "/dev/urandom", "/dev/stdin"])
def test_a_device_is_no_trace(device: str, tmp_path: Path) -> None:
    lines = refused(tmp_path, changed(workload(mode="trace", trace=device)))
    assert any(f"{device}: is not a file" in line for line in lines)


@pytest.mark.parametrize("where", ["keys", "settings"])
def test_two_thousand_faults_are_told_soon(where: str, tmp_path: Path) -> None:
    def change(config: dict[str, Any]) -> None:
        if where == "keys":
            config.update({f"unknown{n}": 1 for n in range(2000)})
        else:
            setting = first(config, "settings")
            config["settings"] = {f"s{n}": {**setting, "slots": 0} for n in range(2000)}

    text = changed(change)
    began = time.process_time()
    assert len(refused(tmp_path, text)) == 2000
    # About 1 s on an idle core, most of it for reading the YAML; it was a minute.
    assert time.process_time() - began < 15
