"""Start of a machine in its folder."""

import pytest

from fedsel_app.records.own_folder import make_own_folder, working_in
from simulation.deployment.flower_cli import DeploymentError
from simulation.deployment.start import HOME, start
from simulation.federation.folders import provision


def test_a_folder_that_is_at_work_is_not_started_twice(tmp_path):
    federation = provision(tmp_path / "federation", ["localhost"], 1, 9092)
    home = federation.server / HOME
    make_own_folder(home)
    with working_in(home), pytest.raises(DeploymentError, match="Another `fedsel start` is running in"):
        start(federation.server, {})
