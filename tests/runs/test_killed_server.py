"""The whole server side of a deployment is killed; its SuperNodes live on, and the end is the same."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from fedsel_app.wiring.configuration import resolve
from simulation.operations.deployment.flower_cli import DeploymentError
from simulation.operations.deployment.local_deployment import Deployment
from tests.support.in_process import run_config
from tests.support.processes import (
    FLEET_STARTS,
    SUPERLINK,
    await_text,
    await_that,
    carried_out,
    kill,
    nodes,
    start_again,
    training,
)
from tests.support.rounds import assert_same, written

KILLED_AFTER = 3
"""One round more is on record then than the checkpoint has, at least."""
SETTINGS = {"strategy": "hetero-select", "clients": 3, "cohort": 2, "rounds": 5, "local-steps": 5, "seed": 4}
SETTINGS |= {"links": "simulated", "checkpoint-every": 2}


@pytest.mark.slow
@pytest.mark.e2e
@pytest.mark.timeout(1800)
def test_a_kill_of_the_server_changes_nothing(tmp_path: Path) -> None:
    """SuperLink and ServerApp die while clients train; the SuperNodes find the new SuperLink by themselves."""
    out = tmp_path / "run"
    config = resolve(SETTINGS | {"out": str(out)})
    own = nodes(tmp_path / "state")
    with ThreadPoolExecutor(1) as pool, Deployment(tmp_path / "processes", own) as deployment:
        supernodes = deployment._children[1:]
        run = pool.submit(carried_out, deployment, config)
        await_that(lambda: written(out) >= KILLED_AFTER and any(map(training, supernodes)), run)
        kill(deployment._children[SUPERLINK])
        with pytest.raises(DeploymentError, match="SuperLink is unavailable"):
            run.result()
        await_text(start_again(deployment, SUPERLINK).log, FLEET_STARTS)
        config = replace(config, records=replace(config.records, resume=True))
        assert carried_out(deployment, config).completed
        assert [node.poll() for node in supernodes] == [None] * 3
        assert [node.log.read_text().count("SuperNode ID:") for node in supernodes] == [1] * 3

    torch.set_num_threads(1)
    run_config(tmp_path / "whole", resolve(SETTINGS))
    assert_same(out, tmp_path / "whole")
