"""A SuperNode that is killed in the middle of its training, and started again."""

import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch

from clients.client import SelectionClient
from fedsel_app.messages.instructions import TrainInstruction
from fedsel_app.wiring.configuration import resolve
from simulation.operations.deployment.local_deployment import Deployment
from tests.support.in_process import run_config
from tests.support.processes import await_that, carried_out, kill, nodes, start_again, training
from tests.support.rounds import read_rows, written

ROUNDS, DEADLINE_S, SLACK_S = 12, 30.0, 10.0
LOST = 1
SETTINGS = {"strategy": "random", "clients": 3, "cohort": 3, "rounds": ROUNDS, "local-steps": 300, "seed": 5}
SETTINGS |= {"model": "logistic", "allocation": "uniform", "link-cap": "none", "kept-cosine": 0.0}


def failures(folder: Path) -> list[int]:
    """In which rounds the lost client failed."""
    return [row["round"] for row in read_rows(folder) if any(failure["client"] == LOST for failure in row["failures"])]


def rounds_trained(states: Path) -> set[int]:
    """Rounds of which the lost client keeps a state, so that it trained in them."""
    return {int(path.stem.rpartition("-")[2]) for path in states.rglob(f"client-{LOST}-round-*.npz")}


@pytest.mark.slow
@pytest.mark.e2e
@pytest.mark.timeout(900)
def test_the_run_goes_on_without_it_and_it_returns_with_its_residual(tmp_path: Path, monkeypatch: Any) -> None:
    out = tmp_path / "run"
    config = resolve(SETTINGS | {"out": str(out)} | {"links": "measured", "round-deadline-s": DEADLINE_S})
    own = nodes(tmp_path / "state")
    with ThreadPoolExecutor(1) as pool, Deployment(tmp_path / "processes", own) as deployment:
        lines: list[str] = []
        trained: set[int] = set()
        run = pool.submit(carried_out, deployment, config, lines)
        node = deployment._children[1 + LOST]
        await_that(lambda: written(out) >= 2 and training(node), run)
        kill(node)
        await_that(lambda: bool(written(out) >= 3 and failures(out)), run)
        start_again(deployment, 1 + LOST)
        while not run.done():
            trained |= rounds_trained(tmp_path / "state")
            time.sleep(0.02)
        assert run.result().completed, "\n".join(lines)

    told, missed = read_rows(out), failures(out)
    print(f"selected {[row['selected'] for row in told]}, failed {missed}, {[round(row['wall_s']) for row in told]} s")
    assert missed
    assert [row["round"] for row in told] == list(range(1, ROUNDS + 1))
    for row in told:
        assert row["wall_s"] < DEADLINE_S + SLACK_S
        assert [failure["client"] for failure in row["failures"]] == [LOST] * (row["round"] in missed)
        returned = set(row["selected"]) - ({LOST} if row["round"] in missed else set())
        assert set(row["aggregated"]) == returned
    assert LOST in told[-1]["aggregated"]

    # The same rounds without its replies, in one process: had the residual been lost, the bits would differ. Where it
    # came back so late in a round that it trained in vain, its twin does too.
    absent = {row["round"] for row in told if LOST not in row["aggregated"]}
    present = SelectionClient.answer

    def answer(self: SelectionClient, instruction: Any, *model: Any) -> Any:
        trains = isinstance(instruction, TrainInstruction)
        if trains and self._context.client == LOST and instruction.server_round in absent:
            if instruction.server_round in trained:
                present(self, instruction, *model)
            raise RuntimeError("away")
        return present(self, instruction, *model)

    monkeypatch.setattr(SelectionClient, "answer", answer)
    torch.set_num_threads(1)
    run_config(tmp_path / "same", resolve(SETTINGS))
    assert (tmp_path / "same/model.npz").read_bytes() == (out / "model.npz").read_bytes()
    losses = [row["fit_losses"] for row in told if row["round"] not in absent]
    assert losses == [row["fit_losses"] for row in read_rows(tmp_path / "same") if row["round"] not in absent]
