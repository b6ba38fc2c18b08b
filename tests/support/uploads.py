"""Uploads by hand: a model's layers, and the uploads of a client."""

from functools import partial

import numpy as np

from clients import error_feedback
from fedsel_app.messages.instructions import TrainInstruction
from fedsel_app.models.layer_slice import LayerSlice

LAYERS = (LayerSlice("a", 0, 2), LayerSlice("b", 2, 6), LayerSlice("c", 6, 10))
PLAIN = {"curvature_layers": 0}
"""Compression settings without the curvature."""

upload = partial(error_feedback.upload, seed=5, client=2, examples=10)


def spec(fraction=1 / 3, decay=1.0, estimated=False, server_round=1):
    """Instruction for an upload."""
    return TrainInstruction(server_round, "run", 0.1, fraction, decay, curvature=True, estimated=estimated)


def sent_by(choice, delta, state=None, now=None):
    """Upload of a model of one layer: the update and the state to keep. A fifth is kept unless `now` differs."""
    return upload(delta, state or {}, (LayerSlice("all", 0, delta.size),), choice, now or spec(0.2), None)


def vector(*values):
    """Float32 vector of these values."""
    return np.array(values, np.float32)
