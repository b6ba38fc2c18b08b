"""Pooled server: answers and failures are divided as Flower's own server does it, and failures name their client."""

from flwr.common import Code, FitRes, Parameters, Status

from simulation.wiring.pooled_server import results_and_failures
from strategies.round.connections import parallel
from strategies.round.timeout_proxy import NodeError
from tests.support.proxies import StubProxy


def reply(code):
    return FitRes(Status(code, "no fit"), Parameters([], ""), num_examples=1, metrics={})


def test_a_reply_of_another_status_is_a_failure_and_so_is_an_exception():
    good, bad = reply(Code.OK), reply(Code.FIT_NOT_IMPLEMENTED)
    proxies = [StubProxy(client, None) for client in range(3)]

    def call(proxy):
        if proxy is proxies[1]:
            raise ValueError("out of order")
        return good if proxy is proxies[0] else bad

    results, failures = results_and_failures(parallel(proxies, call, at_once=1))
    assert results == [(proxies[0], good)]
    assert all(isinstance(failure, NodeError) for failure in failures)
    named = [(failure.node, str(failure)) for failure in failures]
    assert named == [(proxies[1].cid, "out of order"), (proxies[2].cid, "no fit")]
