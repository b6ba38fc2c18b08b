"""Ray's ports: the whole network can reach them during a simulation."""

import json
import subprocess
import sys

import pytest

CALLER = """
import sys
import ray
ray.init(address=sys.argv[1], log_to_driver=False)
print("The cluster ran it:", ray.get(ray.remote(num_cpus=0)(lambda: 42).remote(), timeout=60))
"""

RUN = """
import json, os, subprocess, sys
from simulation.engines import ray_engine
from fedsel_app.wiring.configuration import resolve

def call(row):
    import ray

    for kept in (False, True):
        variables = {{name: value for name, value in os.environ.items() if kept or not name.startswith("RAY_AUTH")}}
        command = [sys.executable, "-c", {caller!r}, ray.get_runtime_context().gcs_address]
        done = subprocess.run(command, env=variables, capture_output=True, text=True)
        print(json.dumps([kept, done.returncode, done.stdout, done.stderr]), flush=True)

ray_engine.simulate(resolve({{"out": {out!r}, "rounds": 1, "clients": 2, "cohort": 1, "workers": 1}}), call)
"""


@pytest.mark.slow
def test_ray_refuses_a_caller_without_the_token_of_the_run(tmp_path):
    """Without a token Ray runs the code of every caller, as the user who started it."""
    script = RUN.format(caller=CALLER, out=str(tmp_path / "run"))
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    without, with_token = (json.loads(line) for line in done.stdout.splitlines() if line.startswith("["))
    assert without[1] != 0
    assert "The cluster ran it" not in without[2]
    assert "token" in without[3].lower()
    assert with_token[1:3] == [0, "The cluster ran it: 42\n"]
