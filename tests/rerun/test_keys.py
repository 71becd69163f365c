"""A server's key is needed where its jobs are to run, not where they are planned."""

import subprocess

from workspace import Workspace


def test_nothing_starts_without_the_key_of_a_server_that_is_asked(tmp_path):
    workspace = Workspace(tmp_path)
    workspace.env.pop("FAR_KEY", None)
    workspace.config["engines"]["far"] = {"kind": "url", "url": "http://127.0.0.1:9", "api_key_env": "FAR_KEY"}
    workspace.config["settings"]["far"] = {"engine": "far", "model": "none", "slots": 1, "users": [1]}
    assert workspace.planned("results/reruns/plan.json") == {"plan": 1}
    assert workspace.planned()["session_main_far"] == 2
    workspace.snakemake("results/reruns/plan.json")  # asks no server
    for key, said in ((None, "FAR_KEY is not set; export the key"), ("k\n", "FAR_KEY holds no key: character 2 of 2")):
        env = workspace.env if key is None else workspace.env | {"FAR_KEY": key}
        done = subprocess.run(workspace.command("all"), capture_output=True, text=True, timeout=120, env=env)
        assert done.returncode == 1
        assert f"engines.far.api_key_env: {said}" in done.stderr
        assert not workspace.measured()
        assert not (workspace.results / "logs" / "sessions").exists()
