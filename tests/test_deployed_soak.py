"""Forty deployed rounds in which SuperNodes are killed and started again: nothing is lost, and memory does not grow."""

import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from fedsel_app.app_config import resolve
from simulation.commands import CONNECTION
from simulation.deploy import Deployment, app_folder
from simulation.deployed_run import app_values
from simulation.submit import submit
from tests.deployed import SUPERLINK, kill, resident_mb, start_again
from tests.test_killed import rounds, written

ROUNDS, SETTLED = 40, 6
KILLED = {8: 1, 17: 2, 26: 1}
"""Which client's SuperNode is killed after which round."""
SETTINGS = {"strategy": "random", "clients": 3, "cohort": 2, "rounds": ROUNDS, "local-steps": 5, "model": "mlp"}
SETTINGS |= {"links": "measured", "round-deadline-s": 90.0, "seed": 3}
NODES = [f"partition-id={client} num-partitions=3" for client in range(3)]
MOST_MB_A_ROUND = 0.5


def watched(deployment: Deployment) -> dict[str, float | None]:
    """MiB of the processes that live as long as the run does."""
    link, undisturbed = deployment._children[SUPERLINK], deployment._children[1]
    return {
        "SuperLink": resident_mb(link, "flower-superlink"),
        "ServerApp": resident_mb(link, "flwr-serverapp"),
        "SuperNode": resident_mb(undisturbed, "simulation.supernode"),
    }


@pytest.mark.slow
@pytest.mark.e2e
@pytest.mark.timeout(3600)
def test_supernodes_come_and_go_for_forty_rounds(tmp_path: Path) -> None:
    out, state = tmp_path / "run", tmp_path / "state"
    config = resolve(SETTINGS | {"out": str(out), "state-dir": str(state)})
    seen: dict[str, list[tuple[int, float]]] = {"SuperLink": [], "ServerApp": [], "SuperNode": []}
    due = dict(KILLED)
    with ThreadPoolExecutor(1) as pool, Deployment(tmp_path / "processes", 3, NODES) as deployment:
        lines: list[str] = []
        run = pool.submit(
            submit, app_folder(), CONNECTION, app_values(config), deployment.flwr_home, None, lines.append
        )
        last = 0
        while not run.done():
            if (done := written(out)) > last:
                last = done
                for name, mb in watched(deployment).items():
                    seen[name] += [(done, mb)] if mb is not None and done >= SETTLED else []
                if (client := due.pop(done, None)) is not None:
                    kill(deployment._children[1 + client])
                    start_again(deployment, 1 + client)
            time.sleep(0.1)
        assert run.result().completed, "\n".join(lines)

    rows = rounds(out)
    assert not due
    assert [row["round"] for row in rows] == list(range(1, ROUNDS + 1))
    for row in rows:
        failed = {failure["client"] for failure in row["failures"]}
        assert failed <= set(KILLED.values())
        assert set(row["selected"]) == failed | set(row["aggregated"])
        assert failed.isdisjoint(row["aggregated"])
    failures = [(row["round"], failure["client"]) for row in rows for failure in row["failures"]]
    print(f"\nfailures {failures}")
    for after, client in KILLED.items():
        assert any(client in row["aggregated"] for row in rows[after:])
    kept = {client: len(list(state.rglob(f"client-{client}-round-*.npz"))) for client in range(3)}
    print(f"states kept {kept}")
    for name, samples in seen.items():
        slope = np.polyfit(*np.array(samples).T, 1)[0]
        first, last_mb = samples[0][1], samples[-1][1]
        print(f"{name}: {first:.0f} MiB after {SETTLED} rounds, {last_mb:.0f} at the end: {slope:+.3f} a round")
        assert len(samples) > ROUNDS / 2
        assert slope < MOST_MB_A_ROUND
