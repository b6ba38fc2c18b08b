"""A federation on a ring, for which the result of a search for the cohort size is known."""

from dataclasses import replace

import numpy as np

from fedsel_app.wire.codec import Update
from strategies.methods.random_selection import RandomSelection
from tests.support.contexts import context_of
from tests.support.rounds import run_rounds
from tests.support.stubs import StubClient, round_of, update_reply

CLIENTS = 8
MODEL_BYTES = 4 * CLIENTS
REPLY_BYTES = 28 + 1 + 4
"""Payload with one entry of eight: header and checksum, a byte of indices, a value."""


def own_direction(length):
    """Client k moves only entry k, so the mean of m clients is at distance length / sqrt(m) from the start."""

    def fit(client, message):
        update = Update(CLIENTS, np.array([client], np.uint32), np.array([length], np.float32))
        return update_reply(update, client, round_of(message))

    return fit


def ring(radius=1.0):
    """A loss that is 1 at the origin, below 1 within `radius`, and above 1 outside."""

    def loss(parameters, _):
        norm = float(np.linalg.norm(parameters))
        return 1.0 if norm == 0 else (0.5 if norm < radius else 1.5)

    return loss


def setup_for(surrogate=None, *, rounds=1, cohort=2, method=None, **changed):
    settings = {"participation": "isp", "isp_momentum": 1.0, "isp_loss": "clients"}
    if surrogate is not None:
        settings |= {"isp_loss": "surrogate", "surrogate_path": "x.npz"}
    settings |= {"clients": CLIENTS, "cohort": cohort, "rounds": rounds} | changed
    return replace(context_of(method, size=CLIENTS, **settings), surrogate=surrogate)


def run_isp(context, length=1.9, kind=RandomSelection, **options):
    """The rows of a run over clients that move their own direction, and the clients."""
    stubs = [StubClient(client, own_direction(length), **options) for client in range(CLIENTS)]
    rows, arrays = run_rounds(kind(context), stubs, context.run.rounds)
    return rows, stubs, arrays
