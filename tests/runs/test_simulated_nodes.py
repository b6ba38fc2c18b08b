"""A simulation's nodes carry a run's clients: with any number of nodes, the run has the bits of one process."""

from pathlib import Path

import pytest

from fedsel_app.messages.records import clients_named
from fedsel_app.wiring.configuration import resolve
from fedsel_app.wiring.server import run_with
from simulation.engines import inline_engine
from strategies.round.simulated_grid import SimulatedGrid
from tests.support.client_messages import NORMED
from tests.support.in_process_grid import InProcessGrid, grid_of
from tests.support.rounds import assert_same

pytestmark = pytest.mark.usefixtures("task_identity")

CLIENTS = 7
BASE = {"clients": CLIENTS, "cohort": 3, "rounds": 3, "local-steps": 2, "batch-size": 16, "probe-batches": 2}
RUNS = {
    "residuals": {"strategy": "hetero-select"},
    "statistics, label counts and own tests": {
        "strategy": "fed-cbs",
        "model": NORMED,
        "calibration-form": "training",
        "holdout-fraction": 0.3,
        "client-eval": True,
    },
}


def inline(folder: Path, name: str) -> Path:
    return inline_engine.simulate(resolve(BASE | RUNS[name] | {"out": str(folder)}), lambda row: None)


def simulated(folder: Path, name: str, nodes: int, *, stop: int = 0, resume: bool = False) -> InProcessGrid:
    """Run through a grid of this many nodes, and end the run after the round `stop`."""
    settings = BASE | RUNS[name] | {"out": str(folder), "state-dir": str(folder.with_suffix(".state"))}
    config = resolve(settings | {"checkpoint-every": 1, "resume": resume})
    grid = grid_of(config, nodes)

    def on_round(row):
        if row["round"] == stop:
            raise KeyboardInterrupt

    run_with(SimulatedGrid(grid, CLIENTS), config, on_round)
    return grid


@pytest.fixture(scope="module", params=RUNS)
def reference(request, tmp_path_factory):
    """The name of a run, and its folder after a run in one process."""
    return request.param, inline(tmp_path_factory.mktemp("inline") / "run", request.param)


@pytest.mark.parametrize("nodes", [2, 9])
def test_any_number_of_nodes_gives_the_bits_of_one_process(reference, nodes, tmp_path):
    name, folder = reference
    simulated(tmp_path / "run", name, nodes)
    assert_same(tmp_path / "run", folder)


def test_a_node_carries_the_clients_that_are_congruent_to_its_partition_id(tmp_path):
    grid = simulated(tmp_path / "run", "residuals", 3)
    places, asked = grid.pushed[:3], grid.pushed[3:]
    assert [clients_named(message.content) for message in places] == [()] * 3
    carried = sorted(sorted(clients_named(message.content)) for message in asked[:3])
    assert carried == [[0, 3, 6], [1, 4], [2, 5]]
    for message in asked:
        # The node with the partition id 0 is Flower's node 3, 1 is 2, and 2 is 1.
        assert {client % 3 for client in clients_named(message.content)} == {3 - message.metadata.dst_node_id}
    # In each of three rounds one message asks a node for the losses of all its clients.
    assert [message.metadata.message_type for message in asked].count("evaluate") == 3 * 3
