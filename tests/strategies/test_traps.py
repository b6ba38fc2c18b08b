"""Traps seen in public re-implementations of these methods, which no test of a single method keeps out."""

from dataclasses import replace

import numpy as np
import pytest

from strategies import STRATEGIES
from strategies.methods.power_of_choice import PowerOfChoice, PowerOfChoiceConfig
from strategies.run_context import Evaluation
from strategies.run_round import run_round
from strategies.selection_math.sampling_rows import merge_tree
from strategies.testing.checks import MethodUnderTest, copied, demand_same
from tests.support.contexts import context_of
from tests.support.fake_clients import FakeClients
from tests.support.rounds import run_rounds
from tests.support.stubs import StubClient, round_of, update_of, update_reply

AT_ONCE = {"fedcor": {"warmup": 1, "first_steps": 5, "steps": 2}, "fedcvr-bolt": {"warmup_rounds": 1}}
"""So that these decide by their own rule within a few rounds."""


def test_power_of_choice_goes_by_the_loss_before_training():
    """After training, the losses are in the opposite order."""
    before, after = [1.0, 2.0, 3.0, 4.0], [4.0, 3.0, 2.0, 1.0]

    def fit(client, message):
        return update_reply(update_of(client), client, round_of(message), loss=after[client])

    stubs = [StubClient(client, fit, loss=loss) for client, loss in enumerate(before)]
    method = PowerOfChoice(context_of(PowerOfChoiceConfig(candidates=4), clients=4, cohort=2, rounds=3))
    rows, _ = run_rounds(method, stubs, 3)
    assert [row["selected"] for row in rows] == [[2, 3]] * 3
    assert method.roster.fit_losses[[2, 3]].tolist() == [2.0, 1.0]


@pytest.mark.parametrize("name", STRATEGIES)
def test_no_method_reads_the_servers_test_results(name):
    """Whatever the test set says, selections, models and states stay the same."""
    ends = []
    for said in (Evaluation(0.1, 0.9), Evaluation(1e9, 0.0)):
        federation = MethodUnderTest(STRATEGIES[name], AT_ONCE.get(name, {})).federation()
        method = federation.method
        context = replace(method.context, evaluate=lambda parameters, buffers, said=said: said)
        method.context = method.run.context = context
        clients, selected = FakeClients(federation, range(method.context.run.clients)), []
        for number in range(1, 6):
            record = run_round(method, clients, number)
            selected.append(record.selected)
            assert (record.loss, record.accuracy) == (said.loss, said.score)
        ends.append((selected, {"model": method.run.model.parameters} | copied(method.state())))
    assert ends[0][0] == ends[1][0]
    demand_same(ends[0][1], ends[1][1], "The server's test results must make no difference.")


@pytest.mark.parametrize("name", STRATEGIES)
def test_the_order_of_replies_makes_no_difference(name):
    """Nor do Flower's own ids: the model, the roster and the method's state have the same bits."""
    ends = []
    for backwards in (False, True):
        federation = MethodUnderTest(STRATEGIES[name], AT_ONCE.get(name, {})).federation(updates="mixed")
        clients = federation.roster.available.size
        federation_of_messages = FakeClients(federation, sorted(range(clients), reverse=backwards))
        for number in (1, 2, 3):
            run_round(federation.method, federation_of_messages, number)
        roster = {f"roster {column}": array for column, array in vars(federation.roster).items()}
        ends.append({"model": federation.method.run.model.parameters} | roster | federation.method.state())
    demand_same(ends[0], ends[1], "The order of replies must make no difference.")


def test_average_linkage_reads_distances():
    """0 and 1 are nearest to one another, but 2 and 3 stand alike to the others."""
    distances = np.array([[0, 1, 5, 5], [1, 0, 9, 9], [5, 9, 0, 1.1], [5, 9, 1.1, 0]])
    expected = [[0, 1, 1.0, 2], [2, 3, 1.1, 2], [4, 5, 7.0, 4]]
    np.testing.assert_allclose(merge_tree(distances), expected)
