"""Nodes of a simulation: what is sent to whom, and a node that does not start."""

import pytest
from flwr.app import ConfigRecord, RecordDict

from fedsel_app.config import ConfigError
from fedsel_app.messages.instructions import EnrolInstruction, ProbeInstruction
from fedsel_app.messages.records import clients_named
from strategies.round import flower_grid
from strategies.round.federation import Message
from strategies.round.simulated_grid import SimulatedGrid
from tests.support.flower_state import task_identity
from tests.support.scripted_grid import MODEL, TRAIN, ScriptedGrid, examples, reply

__all__ = ["task_identity"]
pytestmark = pytest.mark.usefixtures("task_identity")

PROBE = ProbeInstruction(1, 0)
PLACE = {900: 1, 50: 0, 300: 2}
"""Flower's node id -> partition id. Flower's ids are in no order."""


class Nodes(ScriptedGrid):
    """Grid of these nodes. Each answers at once for every client that a message names, unless it is `broken`."""

    def __init__(self, broken=None):
        super().__init__(self._answer_of)
        self._broken = broken

    def get_node_ids(self):
        return list(PLACE)

    def _answer_of(self, message):
        node = message.metadata.dst_node_id
        whole = reply(message, "no module torch" if node == self._broken else "")
        if not clients_named(message.content):
            whole.content = RecordDict({"fedsel": ConfigRecord({"partition": PLACE[node]})})
        return 0.0, [whole]

    @property
    def received(self):
        """Node and clients of each message."""
        return [(message.metadata.dst_node_id, clients_named(message.content)) for message in self.sent]


def asked(clients, instruction=TRAIN):
    return [Message(str(client), instruction, MODEL) for client in clients]


PLACES = [(900, ()), (50, ()), (300, ())]


@pytest.mark.parametrize("instruction", [EnrolInstruction(), PROBE, TRAIN], ids=["enrol", "probe", "train"])
def test_one_message_asks_all_clients_of_a_node(instruction):
    grid = Nodes()
    federation = SimulatedGrid(grid, 8)
    assert federation.nodes() == set("01234567")
    assert examples(federation.ask(asked([1, 2, 4, 5, 7], instruction))) == {str(n): n for n in (1, 2, 4, 5, 7)}
    assert sorted(grid.received[:3]) == sorted(PLACES)
    assert sorted(grid.received[3:]) == [(300, (2, 5)), (900, (1, 4, 7))]
    assert examples(federation.ask(asked([6], instruction))) == {"6": 6}
    assert grid.received[5:] == [(50, (6,))]


def test_measured_links_and_large_models_bound_the_clients_of_a_message(monkeypatch):
    grid = Nodes()
    federation = SimulatedGrid(grid, 8, pools_training=False)
    federation.ask(asked([1, 4], TRAIN))
    federation.ask(asked([1, 4], PROBE))
    assert grid.received[3:] == [(900, (1,)), (900, (4,)), (900, (1, 4))]

    monkeypatch.setattr(flower_grid, "MOST_BYTES", 2 * MODEL.nbytes)
    grid = Nodes()
    federation = SimulatedGrid(grid, 12)
    federation.ask(asked([0, 3, 6, 9, 11], TRAIN))
    federation.ask(asked([0, 3, 6, 9], PROBE))
    assert grid.received[3:] == [(50, (0, 3)), (50, (6, 9)), (300, (11,)), (50, (0, 3, 6, 9))]


def test_a_node_that_does_not_start_ends_the_run_with_its_reason():
    federation = SimulatedGrid(Nodes(broken=300), 8)
    with pytest.raises(ConfigError, match="A simulated node does not start: no module torch"):
        federation.ask(asked([1]))
