"""Flower's grid as a federation: pooled messages, one wait, and replies that fail, come twice or cannot be read."""

import threading
import time
from types import SimpleNamespace

import pytest
from flwr.app import ConfigRecord, RecordDict

from fedsel_app.exact_sums import CohortSum
from fedsel_app.messages.instructions import CalibrateInstruction, EnrolInstruction, ProbeInstruction, TrainInstruction
from fedsel_app.messages.records import clients_named, put_sums
from fedsel_app.network.reply_timeout import ReplyTimeout
from strategies.round import flower_grid
from strategies.round.federation import Message as Asked
from strategies.round.federation import NodeError, Reply, Until
from strategies.round.flower_grid import Arrivals, FlowerGrid, divided
from strategies.testing.fakes import dense
from tests.support.flower_state import task_identity
from tests.support.scripted_grid import MODEL, ScriptedGrid, asked, at_once, examples, reply

__all__ = ["task_identity"]
pytestmark = pytest.mark.usefixtures("task_identity")


def test_each_client_gets_a_message_of_its_own_where_nothing_is_pooled():
    grid = ScriptedGrid(at_once)
    assert FlowerGrid(grid).nodes() == {"100", "101"}
    assert examples(FlowerGrid(grid).ask(asked([1, 3]))) == {"101": 1, "103": 3}
    assert [message.metadata.dst_node_id for message in grid.sent] == [101, 103]
    assert [message.metadata.message_type for message in grid.sent] == ["train", "train"]
    assert FlowerGrid(grid).ask([]) == {}


def test_parts_are_a_share_of_what_is_left_and_bounded_in_bytes(monkeypatch):
    sizes = [len(part) for part in divided(asked(range(10)), 3)]
    # The ceilings of 0.8/3 of 10, 7, 5 and 3, then one each.
    assert sizes == [3, 2, 2, 1, 1, 1]
    monkeypatch.setattr(flower_grid, "MOST_BYTES", 2 * MODEL.nbytes)
    assert [len(part) for part in divided(asked(range(5)), 1)] == [2, 2, 1]
    monkeypatch.setattr(flower_grid, "MOST_BYTES", MODEL.nbytes - 1)
    assert [len(part) for part in divided(asked(range(3)), 1)] == [1, 1, 1]


@pytest.mark.parametrize(
    ("instruction", "options", "messages"),
    [
        (CalibrateInstruction(1, 1), {}, 4),
        (ProbeInstruction(1, 0), {}, 2),
        (EnrolInstruction(), {}, 7),
        (CalibrateInstruction(1, 1), {"pools_training": False}, 7),
    ],
    ids=["train", "evaluate", "enrol", "train with measured links"],
)
def test_a_few_messages_ask_everybody_in_a_simulation(instruction, options, messages):
    grid = ScriptedGrid(at_once)
    answers = FlowerGrid(grid, pool=2, **options).ask(asked(range(7), instruction))
    assert examples(answers) == {str(100 + client): client for client in range(7)}
    assert len(grid.sent) == messages


def test_the_clients_of_a_message_that_fails_are_asked_alone_and_one_that_fails_again_stays_alone():
    def answer(message):
        named = clients_named(message.content)
        ends = 2 in named or message.metadata.dst_node_id == 102
        return 0.0, [reply(message, "its worker died" if ends else "")]

    grid = ScriptedGrid(answer)
    federation = FlowerGrid(grid, pool=1)
    answers = federation.ask(asked([1, 2, 3]))
    assert examples(answers) == {"101": 1, "103": 3}
    assert str(answers["102"]) == "its worker died"
    assert [len(clients_named(message.content)) for message in grid.sent] == [3, 0, 0, 0]
    grid.sent.clear()
    assert examples(federation.ask(asked([1, 2, 3]))) == {"101": 1, "103": 3}
    assert [clients_named(message.content) for message in grid.sent] == [(1, 3), ()]


def test_a_node_that_is_gone_has_failed():
    answers = FlowerGrid(ScriptedGrid(at_once, gone=[103])).ask(asked([1, 3]))
    assert examples(answers) == {"101": 1}
    assert "Node Unavailable" in str(answers["103"])
    assert answers["103"].node == "103"


def test_the_wait_ends_with_as_many_replies_as_are_wanted_or_at_the_deadline():
    now_s = time.monotonic()

    def answer(message):
        return (now_s + 30.0 if message.metadata.dst_node_id == 103 else 0.0), [reply(message)]

    answers = FlowerGrid(ScriptedGrid(answer)).ask(asked([1, 2, 3]), Until(replies=2))
    assert examples(answers) == {"101": 1, "102": 2}
    assert "it did not reply, and enough other clients did" in str(answers["103"])
    answers = FlowerGrid(ScriptedGrid(answer)).ask(asked([1, 2, 3]), Until(deadline_s=0.2))
    assert "it did not reply within 0.2 s" in str(answers["103"])
    assert time.monotonic() - now_s < 20.0


def test_a_second_reply_to_a_message_answers_nobody():
    def answer(message):
        return 0.0, [reply(message), reply(message)]

    assert examples(FlowerGrid(ScriptedGrid(answer)).ask(asked([1, 3]))) == {"101": 1, "103": 3}


def test_a_reply_that_cannot_be_read_is_a_failure_of_its_client_alone():
    def answer(message):
        bad = message.metadata.dst_node_id == 103
        return 0.0, ValueError("not a record") if bad else [reply(message)]

    answers = FlowerGrid(ScriptedGrid(answer)).ask(asked([1, 3, 5]))
    assert examples(answers) == {"101": 1, "105": 5}
    assert isinstance(answers["103"], NodeError)
    assert "its reply cannot be read: not a record" in str(answers["103"])


def test_a_reply_without_fedsels_record_is_a_failure():
    def answer(message):
        empty = reply(message)
        empty.content = RecordDict()
        return 0.0, [empty]

    [failure] = FlowerGrid(ScriptedGrid(answer)).ask(asked([1])).values()
    assert "not from fedsel" in str(failure)


@pytest.mark.parametrize(("pool", "added"), [(1, 2), (0, 0)])
def test_only_a_simulated_client_answers_with_a_sum_over_others(pool, added):
    """Two of three simulated clients are in the sum, once although the reply comes twice.

    A deployed client that sends the same has sent no sum.
    """
    sums = CohortSum()
    for value in (1.0, 2.0):
        sums.add([(dense([value, -value]), 3.0)])

    def answer(message):
        whole = reply(message)
        put_sums(whole.content, sums.arrays())
        for record in whole.content.config_records.values():
            record["payload_bytes"] = 28
        if pool:
            whole.content["fedsel.3"] = ConfigRecord({"error": "out of order"})
        return 0.0, [whole, whole]

    found = [
        answer.sums
        for answer in FlowerGrid(ScriptedGrid(answer), pool=pool).ask(asked([1, 2, 3])).values()
        if isinstance(answer, Reply) and answer.sums is not None
    ]
    assert len(found) == added
    if found:
        assert found[0] is found[1]
        assert (found[0].count, found[0].sums[0].total().tolist()) == (2, [9.0, -9.0])


def test_a_worker_gets_weights_if_its_sum_takes_less_time_than_the_updates():
    def weights(fractions):
        messages = [
            Asked(str(client), TrainInstruction(1, "run", 0.1, fraction, 1.0, False, weight=5.0), MODEL, client)
            for client, fraction in enumerate(fractions)
        ]
        content = FlowerGrid(ScriptedGrid(at_once), pool=2).content(messages)
        return [record["weight"] for record in content.config_records.values()]

    assert weights([1.0]) == [5.0]
    assert weights([0.2] * 2) == [5.0] * 2
    assert weights([0.125] * 3) == [0.0] * 3
    assert weights([0.01] * 39) == [0.0] * 39


def test_parts_whose_worker_sends_a_sum_may_have_any_number_of_clients(monkeypatch):
    monkeypatch.setattr(flower_grid, "MOST_BYTES", 2 * MODEL.nbytes)
    summed = TrainInstruction(1, "run", 0.1, 1.0, 1.0, False, weight=1.0)
    assert [len(part) for part in divided(asked(range(5), summed), 1)] == [4, 1]


def test_only_answered_messages_are_pulled_and_all_after_a_pause(monkeypatch):
    """Flower compares each message of a pull with all that it has stored."""
    monkeypatch.setattr(flower_grid, "LONGEST_PAUSE_S", 0.01)
    grid, arrived, pulled = ScriptedGrid(at_once), Arrivals(), []
    pull = grid.pull_messages
    grid.pull_messages = lambda names: pulled.append(sorted(names)) or pull(names)
    for name in ("message 2", "message 0", "of an earlier question"):
        arrived.put(name)
    answers = FlowerGrid(grid, arrived=arrived).ask(asked([1, 2, 3]))
    assert examples(answers) == {"101": 1, "102": 2, "103": 3}
    assert pulled == [["message 0", "message 2"], ["message 1"]]


@pytest.mark.parametrize("arrived", [None, threading.Event()])
def test_answers_to_messages_that_were_sent_without_waiting_come_one_after_the_other(arrived):
    """Client 3 answers at once, client 1 a tenth of a second later, and client 5 is gone."""

    def answer(message):
        return time.monotonic() + (0.1 if message.metadata.dst_node_id == 101 else 0.0), [reply(message)]

    if arrived is not None:
        arrived.set()
    federation = FlowerGrid(ScriptedGrid(answer, gone=[105]), ReplyTimeout(30.0), arrived=arrived)
    assert federation.receive() == {}
    federation.send(asked([1, 3, 5]))
    first = federation.receive()
    assert examples(first) == {"103": 3}
    assert [node for node, each in first.items() if isinstance(each, NodeError)] == ["105"]
    second = federation.receive()
    assert examples(second) == {"101": 1}
    assert second["101"].arrived_s >= 0.1
    assert federation.receive() == {}


def test_a_message_that_is_not_answered_in_time_has_failed():
    federation = FlowerGrid(ScriptedGrid(lambda message: (float("inf"), [])), ReplyTimeout(0.1))
    federation.send(asked([1]))
    [(node, error)] = federation.receive().items()
    assert node == "101"
    assert "did not answer within 0 s" in str(error)


@pytest.mark.parametrize(("node", "failed"), [(101, ["101"]), (103, [])])
def test_a_mods_error_that_answers_its_own_apps_reply_is_that_of_its_node(node, failed):
    """It names no message. One of a node that was sent none is ignored."""

    def answer(message):
        error = reply(message, "a mod")
        error.metadata = SimpleNamespace(reply_to_message_id="", src_node_id=node, dst_node_id=node)
        return 0.0, [error]

    federation = FlowerGrid(ScriptedGrid(answer), ReplyTimeout(0.1))
    federation.send(asked([1]))
    assert [name for name, error in federation.receive().items() if "a mod" in str(error)] == failed
