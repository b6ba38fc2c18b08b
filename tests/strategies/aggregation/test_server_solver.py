"""The server's part of the solvers, and ef21's estimates, by hand."""

import copy

import numpy as np
import pytest

from fedsel_app.config import TrainingConfig
from fedsel_app.solvers import Weights, nova_weights
from strategies.aggregation.server_state import Estimates, ServerSolver
from strategies.round.federation import SentModel
from strategies.testing.fakes import dense
from tests.support.updates import sparse


def solver(name, clients=4, **training):
    return ServerSolver(2, clients, TrainingConfig(solver=name, **training))


@pytest.mark.parametrize(
    ("weights", "steps", "expected"),
    [
        ([0.25, 0.75], [2.0, 6.0], [0.625, 0.625]),
        ([0.2, 0.5, 0.3], [13.1441] * 3, [0.2, 0.5, 0.3]),
        ([0.5, 0.5], [0.0, 4.0], [1.25, 0.3125]),
        ([0.5, 0.5], [-3.0, 4.0], [1.25, 0.3125]),
        ([0.5, 0.25], [5.0, 5.0], [0.5, 0.25]),
        ([0.5, 1.5], [2.0, 6.0], [1.25, 1.25]),
        ([0.0, 0.0], [2.0, 6.0], [0.0, 0.0]),
        ([], [], []),
    ],
)
def test_nova_weights_by_hand(weights, steps, expected):
    """With 2 and 6 steps tau_eff = 5: 0.25 5/2 and 0.75 5/6. Equal steps change nothing, whatever the weights sum to.
    No step counts as one: tau_eff = 2.5, so 0.5 2.5 and 0.5 2.5/4. Twice the weights are twice the result."""
    np.testing.assert_allclose(nova(weights, steps), expected, rtol=1e-14)


def nova(weights, steps):
    found = nova_weights(Weights(np.array(weights), 1.0), np.array(steps))
    return found.own / found.divisor


def test_scaffold_sends_c_behind_the_model_and_adds_the_mean_over_all_clients():
    one = solver("scaffold")
    model = SentModel((np.ones(2, np.float32),))
    assert [array.tolist() for array in one.with_control(model).arrays] == [[1, 1], [0, 0]]
    aggregate = np.array([5.0, 6.0])
    # Two of four clients changed theirs by (4, 0) and (2, -4).
    step = one.step(aggregate, [dense([9, 9])] * 2, [dense([4, 0]), dense([2, -4])])
    assert step.tolist() == [5, 6]
    assert [array.tolist() for array in one.with_control(model).arrays] == [[1, 1], [1.5, -1]]
    assert len(model.arrays) == 1


def test_feddyn_by_hand():
    """alpha = 0.5, four clients, updates (4, 0) and (0, 8): H = -(0.5, 1); the step is their mean plus (1, 2)."""
    one = solver("feddyn", feddyn_alpha=0.5)
    updates = [dense([4, 0]), dense([0, 8])]
    assert one.step(np.array([2.0, 4.0]), updates, ()).tolist() == [3, 6]
    assert one.state()["mean"].tolist() == [-0.5, -1]
    assert one.with_control(model := SentModel((np.ones(2, np.float32),))) is model


def ids(*clients):
    return np.array(clients, np.int64)


def test_estimates_by_hand():
    """The changes of top-1 under ef21 of (3, -1, .5), (2, -1, .5), (2, -1, .5); another client is away once."""
    estimates = Estimates(3)
    assert 1 not in estimates
    found = []
    for change in (sparse(3, [0], [3]), sparse(3, [0], [-1]), sparse(3, [1], [-1])):
        [update] = estimates.update(ids(1), [change], ids())
        assert update.indices is None
        found.append(update.values.tolist())
    assert found == [[3, 0, 0], [2, 0, 0], [2, -1, 0]]
    assert 1 in estimates
    assert 2 not in estimates


def test_a_client_whose_reply_was_lost_starts_anew():
    estimates = Estimates(3)
    estimates.update(ids(1, 2), [sparse(3, [0], [3]), sparse(3, [0], [4])], ids())
    estimates.update(ids(2), [sparse(3, [1], [1])], ids(1, 5))
    assert 1 not in estimates
    first, second = estimates.update(ids(1, 2), [sparse(3, [2], [7]), sparse(3, [2], [1])], ids())
    assert first.values.tolist() == [0, 0, 7]
    assert second.values.tolist() == [4, 1, 1]


def test_an_update_that_was_handed_out_and_a_copy_do_not_change_later():
    estimates = Estimates(3)
    [update] = estimates.update(ids(1), [sparse(3, [0], [3])], ids())
    earlier = copy.copy(estimates)
    estimates.update(ids(1), [sparse(3, [0], [1])], ids())
    assert update.values.tolist() == earlier.state()["1"].tolist() == [3, 0, 0]
