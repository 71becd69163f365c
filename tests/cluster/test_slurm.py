"""On a real SLURM of two nodes with two GPUs each: sessions spread; whatever ends a job, nothing is left or lost."""

import os
import re
import signal
import subprocess
from pathlib import Path

import pyarrow.parquet as pq
import pytest
import yaml

from cluster import Cluster, queue, slurm
from processes import alive, argv
from servebench import schema
from servebench.store import measurements
from waiting import until
from workspace import ROOT

TABLES = "results/reruns/tables/settings.parquet"


def simulated(cluster: Cluster, *, settings: int = 1, rounds: int = 1, users: int = 8, window_s: float = 3) -> None:
    """`settings` simulated settings, each measured with 1 to `users` users."""
    one = cluster.config["settings"]["one"]
    names = ["one", "two", "three"][:settings]
    cluster.config["settings"] = {name: {**one, "users": list(range(1, users + 1))} for name in names}
    cluster.config["workload"]["window_s"] = window_s
    cluster.config["rounds"] = rounds


def records(cluster: Cluster) -> list[measurements.Record]:
    """List all measurements that have a file."""
    return [measurements.read(path) for path in sorted(cluster.results.glob("measurements/**/*.parquet"))]


def stopped(run: subprocess.Popen[str], seconds: float = 240) -> str:
    """Return snakemake's output until its end; kill its process group if it does not end."""
    try:
        return run.communicate(timeout=seconds)[0]
    except subprocess.TimeoutExpired:
        os.killpg(run.pid, signal.SIGKILL)
        raise


def submitted(text: str) -> list[str]:
    """Return the numbers of the jobs that snakemake has submitted."""
    return re.findall(r"has been submitted with SLURM jobid (\d+)", text)


class Measuring:
    """Run an experiment whose first job has finished a measurement and goes on measuring."""

    def __init__(self, cluster: Cluster, *arguments: str) -> None:
        self.cluster = cluster
        self.run = cluster.start(TABLES, *arguments)
        try:
            until(cluster.measured, 180, "the first measurement")
        except BaseException:
            os.killpg(self.run.pid, signal.SIGINT)
            raise
        self.kept = cluster.measured()
        self.running = cluster.processes()
        (self.job, *_) = [number for number, (state, _) in queue().items() if state == "RUNNING"]
        assert any("simulated.py" in " ".join(argv(process)) for process in self.running)

    def ended_within_kill_wait(self) -> None:
        """SIGTERM was enough: nothing is left, and the engine was stopped in order, not by SLURM's SIGKILL."""
        jobs = [process for process in self.running if process.pid != self.run.pid]
        until(lambda: not alive(jobs), 60, "the end of session, engine and guard")
        assert "ended by SIGTERM" in self.cluster.logs()

    def kept_all(self) -> bool:
        """Return whether every earlier measurement is still the same file."""
        now = self.cluster.measured()
        return {name: now.get(name) for name in self.kept} == self.kept


def test_quick_start_and_simulators_spread_over_both_nodes(cluster, tmp_path):
    """One setting of the quick start and a simulated one, two rounds: four sessions at once on four devices."""
    quickstart = yaml.safe_load((ROOT / "config" / "config.yaml").read_text())
    simulated(cluster, users=2, window_s=8, rounds=2)
    cluster.config["engines"]["llama-cpp"] = quickstart["engines"]["llama-cpp"]
    cluster.config["models"]["smollm2-q4_1"] = quickstart["models"]["smollm2-q4_1"]
    # Two of them at once on a small machine: with a thread each they do not get in each other's way.
    cluster.config["settings"]["np1"] = {**quickstart["settings"]["np1"], "users": [1, 2], "args": ["--threads", "1"]}
    cluster.config["runtime"]["scratch"] = f"{tmp_path}/scratch-$SLURM_JOB_ID"
    run = cluster.start(TABLES, "results/reruns/charts/output_by_users.html", "--jobs", "4")
    try:
        until(lambda: [state for state, _ in queue().values()] == ["RUNNING"] * 4, 120, "four sessions at once")
    finally:
        out = stopped(run, 400)
    assert run.returncode == 0, out[-3000:]

    assert len(submitted(out)) == 4, "sessions are jobs; downloads and tables are not"
    found = records(cluster)
    assert [record.status for record in found] == ["ok"] * 8
    sessions = {record.session.session_id: record for record in found}
    assert len(sessions) == 4
    places = {(record.session.node, *record.session.devices) for record in sessions.values()}
    assert len(places) == 4, "each session had a device for itself"
    assert {node for node, _ in places} == {"node1", "node2"}
    ports = [re.search(r"port\W+(\d+)", " ".join(record.session.argv))[1] for record in sessions.values()]
    assert len(set(ports)) == 4

    (copied,) = {Path(r.session.argv[r.session.argv.index("-m") + 1]).name for r in found if "np1" in str(r.identity)}
    assert copied == "SmolLM2-135M-Instruct.Q4_1.gguf"
    scratches = {part for r in found for part in r.session.argv if part.startswith(f"{tmp_path}/scratch-")}
    assert len(scratches) == 2, "each job of the real engine loaded its own copy"

    for row in schema.rows(pq.read_table(cluster.folder / TABLES)):
        (mixed,) = (mark for mark in row["marks"] if mark.kind == "mixed_devices")
        assert all(device.startswith("node") for device in mixed.values["devices"])
    assert "Nothing to be done" in cluster.snakemake(TABLES, "--jobs", "4")


def test_over_the_time_limit_the_rest_is_measured_by_the_next_run(cluster):
    # 100 s of windows: SLURM looks at the time every half minute, and may end the job at 90 s.
    simulated(cluster, users=5, window_s=20)
    first = Measuring(cluster, "--retries", "0", "--set-resources", "session_main_one:runtime=1")
    out = stopped(first.run)
    assert first.run.returncode == 1
    assert "SLURM status is: 'TIMEOUT'" in out
    kept = cluster.measured()
    assert first.kept_all()
    assert 1 <= len(kept) < 5
    first.ended_within_kill_wait()

    out = cluster.snakemake(TABLES)
    after = cluster.measured()
    assert len(after) == len(records(cluster)) == 5
    assert {name: after[name] for name in kept} == kept, "measured once"
    assert len({record.session.session_id for record in records(cluster)}) == 2


def test_scancel_stops_the_engine_in_order(cluster):
    simulated(cluster)
    measuring = Measuring(cluster, "--retries", "0")
    slurm("scancel", measuring.job)
    measuring.ended_within_kill_wait()
    out = stopped(measuring.run)
    assert measuring.run.returncode == 1
    assert f"SLURM-job '{measuring.job}' failed, SLURM status is: 'CANCELLED'" in out
    assert measuring.kept_all()


def test_a_requeued_job_goes_on(cluster):
    """After a preemption or a node's failure the same job starts again and makes the missing measurements."""
    simulated(cluster, users=4)
    measuring = Measuring(cluster, "--retries", "0")
    slurm("scontrol", "requeue", measuring.job)
    measuring.ended_within_kill_wait()
    out = stopped(measuring.run)
    assert measuring.run.returncode == 0, out[-3000:]
    assert submitted(out) == [measuring.job]
    assert measuring.kept_all()
    assert [record.identity.users for record in records(cluster)] == [1, 2, 3, 4]


def test_ctrl_c_cancels_running_and_waiting_jobs(cluster):
    simulated(cluster, settings=3, rounds=2)
    measuring = Measuring(cluster, "--jobs", "6")
    until(lambda: len(queue()) == 6, 60, "all six jobs in the queue")
    states = sorted(state for state, _ in queue().values())
    assert states == ["PENDING"] * 2 + ["RUNNING"] * 4
    os.killpg(measuring.run.pid, signal.SIGINT)
    out = stopped(measuring.run)
    assert measuring.run.returncode == 1, out[-3000:]
    until(lambda: not queue(), 120, "an empty queue")
    measuring.ended_within_kill_wait()
    assert measuring.kept_all()


def test_after_sigkill_the_documented_recovery_goes_on(cluster):
    """docs/slurm.md, "When snakemake itself was killed"."""
    simulated(cluster, users=4)
    measuring = Measuring(cluster)
    measuring.run.kill()
    measuring.run.wait()
    assert queue()[measuring.job][0] == "RUNNING", "SLURM's jobs do not depend on snakemake"
    names = slurm("squeue", "--me", "--noheader", "--format", "%A %j").split()
    assert names[0] == measuring.job
    assert names[1].startswith("servebench_")

    slurm("scancel", measuring.job)
    until(lambda: not queue(), 120, "an empty queue")
    measuring.ended_within_kill_wait()
    refused = subprocess.run(cluster.command(TABLES), capture_output=True, text=True, env=cluster.env)
    assert refused.returncode == 1
    assert "--unlock" in refused.stdout + refused.stderr
    cluster.snakemake("--unlock")
    cluster.snakemake(TABLES)
    assert measuring.kept_all()
    assert len(records(cluster)) == 4


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"partition": "nonsense"}, "invalid partition specified: nonsense"),
        ({"gpus": "3"}, "Requested node configuration is not available"),
    ],
)
def test_what_the_cluster_does_not_have_is_said(cluster, change, said):
    simulated(cluster)
    arguments = []
    if "partition" in change:
        arguments = ["--default-resources", f"slurm_partition={change['partition']}", "mem_mb=1000", "cpus_per_task=2"]
    else:
        cluster.config["settings"]["one"]["args"] = ["--tensor-parallel-size", change["gpus"]]
    run = cluster.start(TABLES, "--retries", "0", *arguments)
    out = stopped(run, 120)
    assert run.returncode == 1
    assert said in out


def test_no_free_gpu_is_waited_for_and_the_reason_can_be_seen(cluster):
    simulated(cluster, users=1, window_s=1)
    hold = ["sbatch", "--parsable", "--gpus=1", "--mem=100", "--output=/dev/null", "--wrap=sleep 600"]
    holders = [slurm(*hold).strip() for _ in range(4)]
    try:
        until(lambda: [queue()[job][0] for job in holders] == ["RUNNING"] * 4, 60, "four busy GPUs")
        run = cluster.start(TABLES)
        until(
            lambda: [v for k, v in queue().items() if k not in holders] == [("PENDING", "Resources")],
            90,
            "a waiting job",
        )
    finally:
        slurm("scancel", *holders)
        until(lambda: not set(holders) & set(queue()), 60, "the end of the jobs that held the GPUs")
    out = stopped(run)
    assert run.returncode == 0, out[-3000:]
    hint = re.search(r"wait for: (squeue .*?);", out)[1]
    assert subprocess.run(hint.split(), capture_output=True, text=True).returncode == 0
