"""Nodes of a simulation: what is sent to whom, and nodes and clients that fail."""

from types import SimpleNamespace

import numpy as np
import pytest
from flwr.app import ConfigRecord, Error, RecordDict

from fedsel_app.config import ConfigError
from fedsel_app.messages.instructions import CalibrateInstruction, EnrolInstruction, ProbeInstruction
from fedsel_app.messages.records import clients_named
from strategies.round import flower_grid
from strategies.round.federation import Message, NodeError, Reply, sent_model
from strategies.round.simulated_grid import SimulatedGrid
from tests.support.flower_state import task_identity

__all__ = ["task_identity"]
pytestmark = pytest.mark.usefixtures("task_identity")

MODEL = sent_model(np.zeros(4, np.float32), np.zeros(0, np.float32))
TRAIN, PROBE = CalibrateInstruction(1, 1), ProbeInstruction(1, 0)
PLACE = {900: 1, 50: 0, 300: 2}
"""Flower's node id -> partition id. Flower's ids are in no order."""


class Nodes:
    """Grid of these nodes. Each answers a message at once for every client that it names, unless `error` has one."""

    def __init__(self, error=lambda node, named: ""):
        self._error, self.sent, self._replies = error, [], {}

    def get_node_ids(self):
        return list(PLACE)

    def push_messages(self, messages):
        names = []
        for message in messages:
            node, named = message.metadata.dst_node_id, clients_named(message.content)
            name = f"message {len(self._replies)}"
            message.metadata.__dict__["_message_id"] = name
            self.sent.append((node, named))
            content = RecordDict({f"fedsel.{client}": ConfigRecord({"examples": client}) for client in named})
            if not named:
                content["fedsel"] = ConfigRecord({"partition": PLACE[node]})
            error = self._error(node, named)
            self._replies[name] = SimpleNamespace(
                metadata=SimpleNamespace(reply_to_message_id=name),
                content=content,
                error=Error(2, error),
                has_error=lambda error=error: bool(error),
            )
            names.append(name)
        return names

    def pull_messages(self, names):
        return [self._replies[name] for name in names]


def asked(clients, instruction=TRAIN, model=MODEL):
    return [Message(str(client), instruction, model) for client in clients]


def examples(answers):
    return {node: answer.examples for node, answer in answers.items() if isinstance(answer, Reply)}


PLACES = [(900, ()), (50, ()), (300, ())]


@pytest.mark.parametrize("instruction", [EnrolInstruction(), PROBE, TRAIN], ids=["enrol", "probe", "train"])
def test_one_message_asks_all_clients_of_a_node(instruction):
    grid = Nodes()
    federation = SimulatedGrid(grid, 8)
    assert federation.nodes() == set("01234567")
    assert examples(federation.ask(asked([1, 2, 4, 5, 7], instruction))) == {str(n): n for n in (1, 2, 4, 5, 7)}
    assert sorted(grid.sent[:3]) == sorted(PLACES)
    assert sorted(grid.sent[3:]) == [(300, (2, 5)), (900, (1, 4, 7))]
    assert examples(federation.ask(asked([6], instruction))) == {"6": 6}
    assert grid.sent[5:] == [(50, (6,))]


def test_measured_links_and_large_models_bound_the_clients_of_a_message(monkeypatch):
    grid = Nodes()
    federation = SimulatedGrid(grid, 8, pools_training=False)
    federation.ask(asked([1, 4], TRAIN))
    federation.ask(asked([1, 4], PROBE))
    assert grid.sent[3:] == [(900, (1,)), (900, (4,)), (900, (1, 4))]

    monkeypatch.setattr(flower_grid, "MOST_BYTES", 2 * MODEL.nbytes)
    grid = Nodes()
    federation = SimulatedGrid(grid, 12)
    federation.ask(asked([0, 3, 6, 9, 11], TRAIN))
    federation.ask(asked([0, 3, 6, 9], PROBE))
    assert grid.sent[3:] == [(50, (0, 3)), (50, (6, 9)), (300, (11,)), (50, (0, 3, 6, 9))]


def test_the_clients_of_a_message_that_fails_are_asked_alone_and_one_that_fails_again_stays_alone():
    grid = Nodes(lambda node, named: "its worker died" if 4 in named else "")
    federation = SimulatedGrid(grid, 8)
    answers = federation.ask(asked([1, 4, 7, 2]))
    assert examples(answers) == {"1": 1, "2": 2, "7": 7}
    assert isinstance(answers["4"], NodeError)
    assert str(answers["4"]) == "its worker died"
    del grid.sent[:]
    federation.ask(asked([1, 4, 7]))
    assert grid.sent == [(900, (1, 7)), (900, (4,))]


def test_a_node_that_does_not_start_ends_the_run_with_its_reason():
    federation = SimulatedGrid(Nodes(lambda node, named: "no module torch" if node == 300 else ""), 8)
    with pytest.raises(ConfigError, match="A simulated node does not start: no module torch"):
        federation.ask(asked([1]))
