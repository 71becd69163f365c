"""An API key, and what controls a terminal, stay out of everything that a run writes, whatever the server echoes."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import psutil
import pyarrow.parquet as pq
import pytest

from http_double import HttpDouble, Request, Step
from servebench.cli import messages
from servebench.machine import untrusted
from workspace import BIN, Workspace

KEY = 'sk-Planted/0123+456"789\\key'
FORGED = "\x1b[2J\x1b[1;1Hservebench: complete, 0 failed\x9b1m\x07"


class Echo(HttpDouble):
    """Echoes the request's headers, with escape sequences, wherever a server can say something."""

    def __init__(self, *, refuses: bool) -> None:
        self.refuses = refuses
        self.keys: set[str | None] = set()

    def respond(self, request: Request) -> Iterator[Step]:
        told = request.headers.get("authorization", "") + FORGED
        self.keys.add(request.headers.get("authorization"))
        server = {"server": f"echo {request.headers.get('authorization', '')}"}
        if request.method == "GET":
            yield request.response({"data": [{"id": "m"}, {"id": told}]}, 200, server)
        elif self.refuses:
            yield request.response({"error": {"message": told}}, 401, server)
        elif request.body.get("stream"):
            piece = {"choices": [{"index": 0, "delta": {"content": told}}]}
            last = {"choices": [{"index": 0, "delta": {}, "finish_reason": f"stop {told}"}]}
            said = "".join(f"data: {json.dumps(event)}\n\n" for event in (piece, last)) + "data: [DONE]\n\n"
            yield request.response(said.encode(), 200, {"content-type": "text/event-stream", **server})
        else:
            message = {"content": f"Paris. {told}"}
            yield request.response({"choices": [{"message": message, "finish_reason": "stop"}]}, 200, server)


class Searched:
    """Search the argument list and the environment of every process below this one for the key, again and again."""

    KINDS = ("guard.py", "simulated.py", "servebench.machine.sampler", "servebench.load.worker")

    def __enter__(self) -> Searched:
        self.argv_with_key: list[list[str]] = []
        self.with_key: dict[str, set[bool]] = {}  # whether the key was in the environment, by kind of process
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._look)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _look(self) -> None:
        while not self._over.wait(0.1):
            for process in psutil.Process().children(recursive=True):
                with suppress(psutil.Error, OSError):
                    argv = process.cmdline()
                    if any(form in word for word in argv for form in (KEY, json.dumps(KEY)[1:-1])):
                        self.argv_with_key.append(argv)
                    own = argv[: argv.index("--log")] if "--log" in argv else argv[:4]
                    kind = next((kind for kind in self.KINDS if any(word.endswith(kind) for word in own)), "other")
                    said = "\0".join(f"{name}={value}" for name, value in process.environ().items())
                    self.with_key.setdefault(kind, set()).add(KEY in said)


def strings(path: Path) -> bytes:
    """A file's bytes; of a Parquet file also the values of its text columns, which are compressed."""
    content = path.read_bytes()
    if path.suffix == ".parquet":
        content += json.dumps(pq.read_table(path).to_pylist(), default=str, ensure_ascii=False).encode()
    return content


def written(folder: Path) -> Iterator[Path]:
    return (path for path in folder.rglob("*") if path.is_file() and not path.is_symlink())


def check(folder: Path, said: str) -> None:
    """Search every file below the folder, and what was said, for the key, and what was said for control characters."""
    forms = [form.encode() for form in (KEY, json.dumps(KEY)[1:-1], KEY[:20])]
    files = list(written(folder))
    for path in files:
        assert not any(form in strings(path) for form in forms), path
    assert not any(form in said.encode() for form in forms)
    assert not set(said) & set("\x1b\x9b\x07"), said
    for path in (path for path in files if path.suffix == ".log"):
        assert b"\x1b" not in path.read_bytes(), path


@pytest.mark.parametrize("refuses", [True, False], ids=["refusing", "answering"])
def test_load_writes_no_key_and_no_escape_sequence(refuses: bool, tmp_path: Path) -> None:
    with Echo(refuses=refuses) as server, Searched() as searched:
        command = [BIN / "servebench", "load", "--url", server.url, "--model", "m", "--out", tmp_path / "out"]
        options = ["--requests", "3", "--api-key-env", "FAR_KEY", "--keep-text", "--max-tokens", "4"]
        env = {**os.environ, "FAR_KEY": KEY, "SERVEBENCH_CACHE": str(tmp_path / "cache")}
        done = subprocess.run([*command, *options], capture_output=True, text=True, timeout=120, env=env)
    assert server.keys == {f"Bearer {KEY}"}
    assert not searched.argv_with_key
    check(tmp_path, done.stdout + done.stderr)
    assert "hidden" in done.stdout + done.stderr + "".join(str(strings(path)) for path in written(tmp_path))


@pytest.mark.outcome(
    "a server that echoes the API key and escape sequences",
    at="a whole experiment",
    into="scripted server",
    kept="all",
    again="–",
    reads="[hidden], \\x1b",
    code="0",
)
def test_an_experiment_writes_no_key_and_no_escape_sequence(tmp_path: Path) -> None:
    workspace = Workspace(tmp_path)
    workspace.env["FAR_KEY"] = KEY
    with Echo(refuses=False) as answering, Echo(refuses=True) as refusing, Searched() as searched:
        workspace.config["rounds"] = 1
        workspace.config["settings"] = {"ours": {**workspace.config["settings"]["one"], "users": [1]}}
        for name, server in (("answering", answering), ("refusing", refusing)):
            workspace.config["engines"][name] = {"kind": "url", "url": server.url, "api_key_env": "FAR_KEY"}
            workspace.config["engines"][name]["options"] = {"model": "m"}
            workspace.config["settings"][name] = {"engine": name, "model": "none", "slots": 1, "users": [1]}
        said = workspace.snakemake("results/reruns/tables/measurements.parquet")
        told = workspace.servebench("status", code=1)
        env = {**workspace.env, "PYTHONIOENCODING": "utf-8"}
        done = subprocess.run(
            [BIN / "servebench", "watch", "--once", "--configfile", tmp_path / "config.yaml"],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            env=env,
        )
    assert answering.keys == refusing.keys == {f"Bearer {KEY}"}
    assert "HTTP 401" in told and list((workspace.results / "store").glob("*.parquet"))
    assert not searched.argv_with_key
    for kind in ("guard.py", "simulated.py", "servebench.machine.sampler"):
        assert searched.with_key[kind] == {False}, kind
    # Who sends the key has it from its parent's environment, and nowhere else.
    assert True in searched.with_key["servebench.load.worker"]
    check(tmp_path, said + told + done.stdout + done.stderr)


def test_secrets_and_passwords_in_urls_are_hidden_and_dummies_are_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(untrusted, "_secrets", set())
    for secret in (KEY, "none", "EMPTY", "x"):
        untrusted.keep_secret(secret)
    hidden = untrusted.HIDDEN
    assert untrusted.redacted(f"key {KEY}, {json.dumps(KEY)}") == f'key {hidden}, "{hidden}"'
    assert untrusted.redacted("none of these xs is EMPTY") == "none of these xs is EMPTY"
    for text, wanted in {
        "https://user:pass@host/x": f"https://user:{hidden}@host/x",
        "http://h/v1?api-version=3&token=abc#x": f"http://h/v1?api-version=3&token={hidden}#x",
        "GET https://h/?api_key=abc failed": f"GET https://h/?api_key={hidden} failed",
        '{"url": "https://h/?sig=a%2Fb\\"c"}': f'{{"url": "https://h/?sig={hidden}\\"c"}}',
        "monkey=banana, a:b@c": "monkey=banana, a:b@c",
    }.items():
        assert untrusted.redacted(text) == wanted


@pytest.mark.parametrize("character", ["\x1b", "\x07", "\x00", "\r", "\x9b", "\x7f", "\u202e"])
def test_no_control_character_reaches_a_terminal_or_a_log(
    character: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = f"a{character}[31mb\tc"
    messages.say(text)
    messages.tell(text)
    formatter = messages._Shown("%(message)s")
    shown = formatter.format(logging.makeLogRecord({"msg": text}))
    out, err = capsys.readouterr()
    for said in (out, err, shown):
        assert character not in said
        assert "[31mb\tc" in said
