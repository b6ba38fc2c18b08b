"""Flower's legacy server: a round in its two halves, and the clients of its client manager."""

from dataclasses import replace

import numpy as np
import pytest
from flwr.common import Code, EvaluateRes, FitRes, GetPropertiesRes, Parameters, Status, parameters_to_ndarrays
from flwr.server import Server, SimpleClientManager
from flwr.server.client_proxy import ClientProxy

from fedsel_app.config import NetworkConfig
from fedsel_app.messages.instructions import read_instruction
from fedsel_app.network.links import MeasuredLinks
from strategies.methods.hetero_select import HeteroSelect, HeteroSelectConfig
from strategies.methods.random_selection import RandomSelection
from strategies.round.federation import Message, SentModel
from tests.support.contexts import context_of
from tests.support.logs import logged
from tests.support.rounds import run_rounds as run_stubs
from tests.support.stubs import StubClient, train_reply, trio

OK, REFUSED = Status(Code.OK, ""), Status(Code.FIT_NOT_IMPLEMENTED, "not here" * 400_000)


class StubProxy(ClientProxy):
    """A stub client as Flower's server sees it; it refuses messages of the kind `refusal`."""

    def __init__(self, client, refusal=None):
        super().__init__(client.node)
        self.client, self.refusal, self.timeouts = client, refusal, []

    def _status(self, kind):
        return REFUSED if kind == self.refusal else OK

    def _answer(self, kind, ins, timeout):
        self.timeouts.append(timeout)
        model = SentModel(tuple(parameters_to_ndarrays(ins.parameters)) if kind != "query" else ())
        return self.client.answer(Message(self.cid, read_instruction(ins.config, kind), model))

    def get_properties(self, ins, timeout, group_id):
        return GetPropertiesRes(self._status("query"), self._answer("query", ins, timeout).metrics)

    def fit(self, ins, timeout, group_id):
        reply = self._answer("train", ins, timeout)
        return FitRes(self._status("train"), Parameters(reply.tensors, "numpy.ndarray"), reply.examples, reply.metrics)

    def evaluate(self, ins, timeout, group_id):
        reply = self._answer("evaluate", ins, timeout)
        return EvaluateRes(self._status("evaluate"), reply.loss, reply.examples, reply.metrics)

    def get_parameters(self, ins, timeout, group_id):
        raise NotImplementedError

    reconnect = get_parameters


def manager_of(proxies):
    manager = SimpleClientManager()
    for proxy in proxies:
        manager.register(proxy if isinstance(proxy, ClientProxy) else StubProxy(proxy))
    return manager


def run_by_flower(strategy, clients, rounds):
    """The rows and the final arrays of a run under the loop of Flower's server."""
    server = Server(client_manager=manager_of(clients), strategy=strategy)
    server.fit(rounds, timeout=None)
    return strategy.context.recorder.rows, parameters_to_ndarrays(server.parameters)


# The two halves of a round


@pytest.mark.parametrize("buffers", [0, 2])
def test_a_run_is_that_of_run_round(buffers):
    """`test_base.py` has its first round by hand."""
    ends = []
    for run in (run_stubs, run_by_flower):
        strategy = RandomSelection(context_of(rounds=3, cohort=2, buffers=np.ones(buffers, np.float32)))
        rows, arrays = run(strategy, trio(), 3)
        np.testing.assert_array_equal(strategy.context.recorder.parameters, arrays[0])
        assert strategy.context.recorder.finished == 1
        assert strategy.roster.selections.sum() == 6
        ends.append(([row | {"wall_s": 0.0} for row in rows], [array.tobytes() for array in arrays if array.size]))
    assert ends[0] == ends[1]


# The clients of its manager


class Failing(StubProxy):
    """A client that fails to train, as a proxy says it."""

    def fit(self, ins, timeout, group_id):
        super().fit(ins, timeout, group_id)
        raise RuntimeError("it fell silent")


def test_a_client_that_falls_silent_is_a_recorded_failure_and_proxies_have_the_deadline():
    failing, context = Failing(StubClient(1)), context_of(round_deadline_s=9.0)
    strategy = RandomSelection(replace(context, links=MeasuredLinks(NetworkConfig(), 3)))
    [row], _ = run_by_flower(strategy, [StubClient(0), failing, StubClient(2)], 1)
    assert row["aggregated"] == [0, 2]
    assert row["failures"] == [{"client": 1, "reason": "it fell silent"}]
    assert all(0.0 < arrived_s < 9.0 for arrived_s in row["arrived_s"])
    assert failing.timeouts[-1] == 9.0


@pytest.mark.parametrize("kind", ["query", "evaluate", "train"])
def test_a_bad_status_is_an_answer_that_failed(kind, no_waiting):
    """Its text of any length is cut, and what came with it is not read."""
    refusing = StubProxy(StubClient(1, lambda client, message: train_reply([b"z" * 5_000_000])), refusal=kind)
    strategy = HeteroSelect(context_of(HeteroSelectConfig(), connect_timeout_s=1))
    with logged() as log:
        [row], _ = run_by_flower(strategy, [StubClient(0), refusing, StubClient(2)], 1)
    assert row["selected"] == ([0, 1, 2] if kind == "train" else [0, 2])
    assert row["aggregated"] == [0, 2]
    claims = [(line["node"], line["outcome"]) for line in strategy.context.recorder.client_rows if "outcome" in line]
    failures = [(str(failure["client"]), failure["reason"]) for failure in row["failures"]]
    [(node, reason)] = claims or failures
    assert (node, "not here" in reason, len(reason) < 500) == ("1", True, True)
    assert len(log()) < 3000
