"""Images for apptainer come by digest, once, and are then run from the cache without a registry."""

import os

import pytest

from servebench import plan
from servebench.engines import images, runtime
from servebench.engines.base import Launch
from servebench.machine.infrastructure import InfrastructureError

ENTRY = {"repository": "docker.io/ollama/ollama", "digest": f"sha256:{'ab' * 32}", "entrypoint": "/bin/ollama"}


@pytest.fixture
def apptainer(tmp_path, monkeypatch):
    """Replace apptainer by a stand-in that writes an image only of the right digest; return the list of its calls."""
    calls = tmp_path / "calls"
    program = tmp_path / "bin" / "apptainer"
    program.parent.mkdir()
    program.write_text(
        f'#!/bin/sh\necho "$@" >> {calls}\n[ "$4" != "${{4%{"cd" * 32}}}" ] && exit 1\necho image > "$3"\n'
    )
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}{os.pathsep}/usr/bin:/bin")
    return lambda: calls.read_text().splitlines()


def test_an_image_is_pulled_once_by_digest(tmp_path, apptainer):
    first = images.pull(ENTRY, tmp_path, print)
    assert first == tmp_path / "images" / f"{'ab' * 32}.sif"
    assert first.read_text() == "image\n"
    assert images.pull(ENTRY, tmp_path, print) == first
    (call,) = apptainer()
    assert call.startswith("pull --force ")
    assert call.endswith(f" docker://docker.io/ollama/ollama@sha256:{'ab' * 32}")


def test_a_pull_that_fails_leaves_no_image(tmp_path, apptainer):
    entry = {**ENTRY, "digest": f"sha256:{'cd' * 32}"}
    with pytest.raises(InfrastructureError, match="apptainer could not pull it"):
        images.pull(entry, tmp_path, print)
    assert not images.path(entry, tmp_path).exists()


@pytest.mark.parametrize("pulled", [True, False])
def test_a_pulled_image_is_run_and_the_registry_is_not_asked(pulled, tmp_path, apptainer, monkeypatch):
    monkeypatch.setattr(runtime, "image", lambda engine: ENTRY)
    if pulled:
        images.pull(ENTRY, tmp_path, print)
    engine = plan.Engine(
        key="e", kind="ollama", runtime="container", image="ollama", options={"container": "apptainer"}
    )
    model = plan.Model(key="m", name="M")
    launch = Launch(
        setting=plan.Setting(name="s", run="r", engine=engine, model=model, slots=1, users=(1,)),
        label="test",
        model_path=tmp_path / "model" / "m.gguf",
        environment=None,
        runtime=plan.Runtime(cache=str(tmp_path)),
        log_path=tmp_path / "log",
        devices=(),
    )
    argv = runtime.command(launch, ["serve"], port=1, in_venv=[], in_image=[]).argv
    source = str(images.path(ENTRY, tmp_path)) if pulled else f"docker://{images.reference(ENTRY)}"
    assert argv[-3:] == [source, "/bin/ollama", "serve"]
