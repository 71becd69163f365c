"""Several devices in one machine, without a batch system: sessions run side by side, each on a device of its own."""

import pytest

from servebench.store import measurements
from workspace import Workspace


@pytest.mark.parametrize("devices", [1, 2])
def test_sessions_spread_over_the_devices_of_one_machine(tmp_path, devices):
    """Each takes the first that is free: the second one only if the first is held at that time."""
    workspace = Workspace(tmp_path)
    workspace.config["rounds"] = 1
    workspace.config["workload"]["window_s"] = 3
    workspace.env["CUDA_VISIBLE_DEVICES"] = "left,right"
    workspace.snakemake("only_main_one", "only_main_two", "--cores", "8", "--resources", f"gpu={devices}", "download=1")
    records = [measurements.read(path) for path in workspace.results.glob("measurements/**/*.parquet")]
    assert len(records) == 4
    used = {record.session.session_id: record.session.devices for record in records}
    assert sorted(used.values()) == [["left"], ["right"]][:devices] + [["left"]] * (2 - devices)
