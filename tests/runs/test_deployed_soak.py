"""Forty deployed rounds in which SuperNodes are killed and started again: nothing is lost, and memory does not grow."""

import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from fedsel_app.wiring.configuration import resolve
from simulation.operations.deployment.app_folder import app_folder
from simulation.operations.deployment.deployed_run import app_values
from simulation.operations.deployment.flower_cli import submit_to_flower
from simulation.operations.deployment.local_deployment import Deployment
from simulation.operations.guard.command_lines import CONNECTION
from tests.support.processes import SUPERLINK, kill, nodes, resident_mb, start_again, training
from tests.support.rounds import rounds, written

ROUNDS, SETTLED = 40, 6
KILLED = {8: 1, 17: 2, 26: 1}
"""Round -> the client whose SuperNode is killed when it next trains after that round."""
SETTINGS = {"strategy": "random", "clients": 3, "cohort": 2, "rounds": ROUNDS, "local-steps": 200, "model": "mlp"}
SETTINGS |= {"links": "measured", "round-deadline-s": 60.0, "seed": 3}
MOST_MB_A_ROUND = 0.25
PROCESSES = ("SuperLink", "ServerApp", "SuperNode", "app process")


def watched(deployment: Deployment) -> dict[str, float]:
    """MiB of the processes that live as long as the run does."""
    link, undisturbed = deployment._children[SUPERLINK], deployment._children[1]
    return {
        "SuperLink": resident_mb(link, "simulation.operations.guard.superlink_process"),
        "ServerApp": resident_mb(link, "flwr-serverapp"),
        "SuperNode": resident_mb(undisturbed, "simulation.operations.guard.supernode_process"),
        "app process": resident_mb(undisturbed, "app_process.py"),
    }


@pytest.mark.slow
@pytest.mark.e2e
@pytest.mark.timeout(3600)
def test_supernodes_come_and_go_for_forty_rounds(tmp_path: Path) -> None:
    out, state = tmp_path / "run", tmp_path / "state"
    config = resolve(SETTINGS | {"out": str(out)})
    seen: dict[str, list[tuple[int, float]]] = {name: [] for name in PROCESSES}
    due = dict(KILLED)
    with ThreadPoolExecutor(1) as pool, Deployment(tmp_path / "processes", nodes(state)) as deployment:
        lines: list[str] = []
        run = pool.submit(
            submit_to_flower, app_folder(), CONNECTION, app_values(config), deployment.flwr_home, None, lines.append
        )
        last = 0
        while not run.done():
            if (done := written(out)) > last:
                last = done
                for name, mb in watched(deployment).items():
                    seen[name] += [(done, mb)] if mb and done >= SETTLED else []
            for after, client in list(due.items()):
                if done >= after and training(node := deployment._children[1 + client]):
                    kill(node)
                    start_again(deployment, 1 + client)
                    del due[after]
            time.sleep(0.01)
        assert run.result().completed, "\n".join(lines)

    rows = rounds(out)
    assert not due
    assert [row["round"] for row in rows] == list(range(1, ROUNDS + 1))
    for row in rows:
        failed = {failure["client"] for failure in row["failures"]}
        assert failed <= set(KILLED.values())
        assert set(row["selected"]) == failed | set(row["aggregated"])
        assert failed.isdisjoint(row["aggregated"])
    ends = [*list(KILLED)[1:], ROUNDS]
    for (after, client), before in zip(KILLED.items(), ends, strict=True):
        missed = [row["round"] for row in rows[after:before] if row["failures"]]
        print(f"\nclient {client} failed in {missed}")
        assert missed
        assert any(client in row["aggregated"] for row in rows[missed[-1] :])
    for name, samples in seen.items():
        slope = np.polyfit(*np.array(samples).T, 1)[0]
        print(f"{name}: {samples[0][1]:.0f} MiB, then {samples[-1][1]:.0f}: {slope:+.3f} a round")
        assert slope < MOST_MB_A_ROUND
