"""Pooled training: how a cohort is divided into messages, and what becomes of the clients of one that fails."""

from types import SimpleNamespace

import numpy as np
import pytest
from flwr.common import Code, FitIns, FitRes, Parameters, Status, ndarrays_to_parameters
from hypothesis import given
from hypothesis import strategies as st

from fedsel_app.messages import PooledFit, PooledFits, PooledTraining
from strategies.round.pooled_training import MOST_BYTES, PooledTrainer, divided

MODEL = ndarrays_to_parameters([np.zeros(3, np.float32)])
OK = Status(Code.OK, "")


def cohort(*clients, model=MODEL):
    return [(SimpleNamespace(cid=f"node {client}"), FitIns(model, {"client": client})) for client in clients]


def client_of(proxy):
    return int(proxy.cid.split()[1])


@given(st.integers(1, 300), st.integers(2, 32))
def test_every_client_is_in_one_message_and_the_last_ones_are_small(clients, pool):
    everybody = cohort(*range(clients))
    parts = list(divided(everybody, pool))
    assert [one for part in parts for one in part] == everybody
    sizes = [len(part) for part in parts]
    assert sizes == sorted(sizes, reverse=True)
    assert sizes[0] == int(np.ceil(clients / pool))
    assert sizes[-1] == 1
    assert sizes.count(1) >= min(clients, pool // 2)


def test_a_cohort_of_100_for_two_workers():
    sizes = [len(part) for part in divided(cohort(*range(100)), 4)]
    assert sizes == [25, 19, 14, 11, 8, 6, 5, 3, 3, 2, 1, 1, 1, 1]


@pytest.mark.parametrize(("model_bytes", "most"), [(MOST_BYTES // 10, 10), (MOST_BYTES, 1), (3 * MOST_BYTES, 1)])
def test_a_message_has_few_large_models(model_bytes, most):
    model = Parameters([bytes(model_bytes)], "numpy.ndarray")
    assert max(len(part) for part in divided(cohort(*range(100), model=model), 4)) == most


class Clients:
    """Clients that answer with their id as one array; one of `out_of_order` raises, one of `deadly` ends its worker."""

    def __init__(self, out_of_order=(), deadly=()):
        self.out_of_order, self.deadly, self.asked = out_of_order, deadly, []

    def ask(self, instructions):
        return [(proxy, self.answer(proxy, ins)) for proxy, ins in instructions]

    def answer(self, proxy, ins):
        pooled = PooledTraining.from_config(ins.config).configs
        configs = pooled or {client_of(proxy): ins.config}
        assert all(config == {"client": client} for client, config in configs.items())
        self.asked.append(list(configs))
        if set(configs) & set(self.deadly):
            return ValueError("the worker died")
        if not pooled:
            return ValueError("out of order") if client_of(proxy) in self.out_of_order else self.fit(client_of(proxy))
        sound = [client for client in configs if client not in self.out_of_order]
        fits = [PooledFit(1, 7, {"loss": 0.5}) if client in sound else "out of order" for client in configs]
        tensors = [bytes([client]) for client in sound]
        return FitRes(OK, Parameters(tensors, "numpy.ndarray"), len(fits), PooledFits(tuple(fits)).to_metrics())

    @staticmethod
    def fit(client):
        return FitRes(OK, Parameters([bytes([client])], "numpy.ndarray"), 7, {"loss": 0.5})


def trained(trainer, clients):
    answers = [(client_of(proxy), answer) for proxy, answer in trainer.train(cohort(*clients), client_of)]
    assert sorted(client for client, _ in answers) == sorted(clients)
    return dict(answers)


def test_each_client_s_answer_is_its_own():
    clients = Clients()
    answers = trained(PooledTrainer(2, clients.ask), [9, 4, 0, 7])
    assert answers == {client: Clients.fit(client) for client in (9, 4, 0, 7)}
    assert clients.asked == [[9, 4], [0], [7]]


def test_a_client_that_raises_fails_alone():
    clients = Clients(out_of_order=[4, 7])
    answers = trained(PooledTrainer(2, clients.ask), [9, 4, 7])
    assert answers[9] == Clients.fit(9)
    assert [str(answers[client]) for client in (4, 7)] == ["out of order"] * 2
    assert clients.asked == [[9, 4], [7]]


def test_the_clients_of_a_message_that_fails_are_asked_again_one_by_one():
    """From then on the one that ended the worker is alone."""
    clients = Clients(deadly=[4])
    trainer = PooledTrainer(2, clients.ask)
    answers = trained(trainer, [9, 4, 5, 7])
    assert [client for client, answer in answers.items() if isinstance(answer, Exception)] == [4]
    assert clients.asked == [[9, 4], [5], [7], [9], [4]]
    clients.asked.clear()
    answers = trained(trainer, [4, 9, 5])
    assert [client for client, answer in answers.items() if isinstance(answer, Exception)] == [4]
    assert clients.asked == [[9], [5], [4]]
