"""The step from a round's replies to the next model, by hand."""

from dataclasses import replace

import numpy as np
import pytest

from fedsel_app.config import Settings
from strategies.aggregation.server_state import ServerState
from strategies.roster import Selection
from strategies.testing.fakes import dense, make_context
from tests.support.stubs import decoded, update_reply

MODEL = np.array([1, 1], np.float32)
OWN = np.array([9.0, 2.0, 0.5, 9.0])
UPDATES = {1: [4.0, 0.0], 3: [0.0, 8.0]}


def step(selection, examples=(10, 10), replies=UPDATES, lags=(0, 0), starts=(MODEL, MODEL), **settings):
    context = make_context(Settings(), clients=5, size=2, server_optimizer="mean", **settings)
    found = {client: update_reply(dense(values), client, 4) for client, values in replies.items()}
    came = decoded(found, selection.clients, 4, 2)
    came = replace(came, examples=np.array(examples), staleness=np.array(lags), starts=starts)
    return ServerState(context).step(MODEL, selection, came)


@pytest.mark.parametrize(
    ("weighting", "own", "normalise", "weights"),
    [
        ("score", OWN, False, [0.25, 0.75]),
        ("examples", OWN, False, [0.6, 0.4]),
        ("method", OWN, True, [0.8, 0.2]),
        ("method", OWN, False, [2.0, 0.5]),
        ("method", None, True, [0.6, 0.4]),
        ("uniform", OWN, False, [0.5, 0.5]),
    ],
)
def test_updates_have_the_weights_of_their_clients(weighting, own, normalise, weights):
    """Clients 1 and 3 of the selected 0, 1, 3 and 4 sent updates."""
    selection = Selection(
        np.array([0, 1, 3, 4]),
        np.array([9.0, 0.1, 0.3, 9.0]),
        weights=own,
        normalise=normalise,
    )
    found = step(selection, examples=[30, 20], weighting=weighting)
    np.testing.assert_allclose(found.weights, weights)
    np.testing.assert_allclose(found.aggregate, [4 * weights[0], 8 * weights[1]])
    np.testing.assert_allclose(found.parameters, 1 + found.aggregate)
    assert found.taken.tolist() == [1, 1]


def test_without_updates_the_model_stays():
    found = step(Selection(np.array([1, 3])), [], {}, [], ())
    np.testing.assert_array_equal(found.parameters, MODEL)
    assert found.aggregate is None
    assert found.weights.size == found.taken.size == 0
