"""A client that is asked not to keep its state: it trains the same, and what it remembers stays, bit for bit."""

import numpy as np
import pytest

from clients.client import SelectionClient
from tests.support.client_messages import SIZE, changed, instruction

KINDS = {
    "error feedback and shares": ({}, {}),
    "ef21": ({"error_feedback_scheme": "ef21"}, {}),
    "rand-k": ({"compressor": "rand-k"}, {}),
    "qsgd": ({"compressor": "qsgd"}, {}),
    "scaffold": ({"compressor": "none"}, {"solver": "scaffold"}),
    "feddyn and error feedback": ({}, {"solver": "feddyn"}),
}


@pytest.fixture(params=KINDS)
def context(request, context):
    compression, training = KINDS[request.param]
    return changed(context, compression={"curvature_layers": 2} | compression, training=training)


def train(context, server_round, **fields):
    arrays = [np.zeros(SIZE, np.float32)] * (2 if context.training.solver == "scaffold" else 1)
    asked = instruction(server_round, curvature=True, estimated=server_round > 1, **fields)
    answer, payloads = SelectionClient(context).answer(asked, arrays)
    return [payload.tobytes() for payload in payloads], answer.loss


def remembered(context):
    return {path.name: path.read_bytes() for path in context.store.folder.rglob("*.npz")}


def test_what_it_remembers_stays_and_what_it_sends_is_what_it_would_send(context):
    for server_round in (1, 2):
        before = remembered(context)
        assert bool(before) == (server_round > 1)
        tried = train(context, server_round, keep_state=False)
        assert remembered(context) == before
        assert train(context, server_round, keep_state=False) == tried
        assert train(context, server_round) == tried
        assert remembered(context) != before
