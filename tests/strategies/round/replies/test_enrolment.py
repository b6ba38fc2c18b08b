"""Enrolment: owners of partition ids, pauses of nodes that fail, and what the roster learns."""

import math

import numpy as np
import pytest

from fedsel_app.config import EnrolmentConfig, Settings
from fedsel_app.messages.answers import EnrolAnswer
from fedsel_app.messages.instructions import EnrolInstruction
from fedsel_app.wiring.configuration import resolve
from simulation.engines.inline_engine import Inline
from strategies.roster import Roster
from strategies.round.clients import ConnectedClients
from strategies.round.federation import Message, Reply
from strategies.round.flower_grid import FlowerGrid
from strategies.round.replies.enrolment import Enrolment, assign, take_examples, take_label_counts
from strategies.run_context import Admission
from strategies.testing.fakes import make_context
from tests.support.in_process_grid import grid_of


@pytest.mark.parametrize(
    ("owners", "claimed", "keys", "now", "refused"),
    [
        ({}, {"a": 0, "b": 1}, False, {0: "a", 1: "b"}, set()),
        ({0: "a"}, {"a": 0, "b": 0}, False, {0: "a"}, {"b"}),
        ({0: "a"}, {"b": 0}, False, {0: "b"}, set()),
        ({0: "a"}, {"b": 0}, True, {0: "a"}, {"b"}),
        ({0: "a"}, {"b": 0, "c": 0}, False, {0: "a"}, {"b", "c"}),
        ({}, {"b": 0, "c": 0, "a": 1}, True, {1: "a"}, {"b", "c"}),
    ],
)
def test_partition_ids_are_assigned(owners, claimed, keys, now, refused):
    found, reasons = assign(owners, claimed, keys=keys)
    assert (found, set(reasons)) == (now, refused)


def answered(client, **answer):
    return EnrolAnswer(client, **({"examples": 10} | answer)).to_config()


@pytest.mark.parametrize(("failures", "pause_s"), [(1, 6.0), (2, 12.0), (3, 24.0), (6, 192.0), (7, 192.0), (9, 192.0)])
def test_the_pause_doubles_with_each_failure_up_to_64_timeouts(failures, pause_s):
    enrolment = Enrolment(2, EnrolmentConfig(enrol_timeout_s=3.0))
    for number in range(failures):
        enrolment.fail("a", "silent", 1, now_s=100.0 + number)
    end_s = 100.0 + failures - 1 + pause_s
    for now_s, due in ((end_s - 0.5, False), (end_s, True)):
        assert enrolment.due(now_s) == due
        assert enrolment.unheard(["a", "b"], now_s) == (["a", "b"] if due else ["b"])


def test_a_node_that_answers_or_is_left_out_is_not_asked_again():
    enrolment = Enrolment(2, EnrolmentConfig())
    enrolment.hear("a", Reply(answered(0)), 1)
    enrolment.hear("b", Reply(answered(7)), 1)
    assert enrolment.unheard("abc", math.inf) == ["b", "c"]
    assert enrolment.unheard("abc", 1e300) == ["c"]
    assert [conflict.outcome[:8] for conflict in enrolment.identity_conflicts] == ["left out"]
    enrolment.forget("ac")
    assert enrolment.unheard("abc", 0.0) == ["b", "c"]


def test_clients_of_this_process_enrol_as_through_messages(tmp_path):
    """In the inline engine their answers are no messages. The mark is that of the model's mask."""
    config = resolve({"clients": 7, "cohort": 2, "model": "tests.cases.models:masked", "out": str(tmp_path)})
    [first] = Inline(config).ask([Message("0", EnrolInstruction(constants=True))]).values()
    marks = np.frombuffer(first.enrolment.constants)
    enrolled = []
    for federation in (Inline(config), FlowerGrid(grid_of(config), pool=2)):
        clients = ConnectedClients(7, config.enrolment, admission=Admission(1, ("mask",), marks))
        enrolled.append(clients.enrol(federation, 1, label_counts=True, wait=True))
    assert enrolled[0] == enrolled[1]
    assert [sum(answer.counts(10)) for answer in enrolled[0]] == [answer.examples for answer in enrolled[0]]


@pytest.mark.parametrize(("clip", "examples"), [(0.0, [5, 20, 0, 900]), (2.0, [5, 20, 0, 40])])
def test_the_roster_learns_examples_up_to_a_multiple_of_their_median_and_the_steps(clip, examples):
    """The median of 5, 20 and 900 is 20. An epoch in batches of 10 has ceil(n / 10) steps."""
    roster = Roster(4)
    context = make_context(Settings(), clients=4, example_clip=clip, local_steps=0, local_epochs=1, batch_size=10)
    take_examples([EnrolAnswer(client, examples=n) for client, n in ((0, 5), (1, 20), (3, 900))], roster, 1, context)
    assert roster.examples.tolist() == examples
    assert roster.local_steps.tolist() == [-(-n // 10) for n in examples]
    take_examples([], roster, 2, context)
    assert roster.examples.tolist() == examples


def test_label_counts_are_at_most_the_examples_and_invalid_ones_count_nothing():
    """The 99 examples that client 1 claims count as 10."""
    roster = Roster(3)
    roster.examples[:] = 10
    answers = [
        EnrolAnswer(client, examples=sum(counts), label_counts=np.array(counts, "<i8").tobytes())
        for client, counts in ((0, [3, 7]), (1, [90, 9]), (2, [1, 2, 3]))
    ]
    [error] = take_label_counts(answers, roster, 1, 2)
    assert "Client 2 did not send the examples of each of 2 classes, but of 3." in str(error)
    assert roster.label_counts.tolist() == [[3, 7], [10, 9], [0, 0]]
    [_, _] = take_label_counts(answers[2:] * 2, roster, 2, 2)
    assert roster.label_counts[0].tolist() == [3, 7]
