"""Arguments and environment of Flower's command line; test_local_deployment.py submits real runs."""

import os
import sys
from pathlib import Path

from simulation.deployment.flower_cli import environment


def test_environment_puts_this_python_first_and_installs_nothing(tmp_path):
    variables = environment(tmp_path)
    assert variables["PATH"].split(os.pathsep)[0] == str(Path(sys.executable).parent)
    assert variables["FLWR_HOME"] == str(tmp_path)
    assert variables["FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION"] == "1"
