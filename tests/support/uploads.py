"""Uploads by hand: a model's layers, and the specification of a client's upload."""

import numpy as np

from clients.compression.error_feedback import UploadSpec
from fedsel_app.models.array_layout import LayerSlice

LAYERS = (LayerSlice("a", 0, 2), LayerSlice("b", 2, 6), LayerSlice("c", 6, 10))
PLAIN = {"curvature_layers": 0}
"""Compression settings without the curvature."""


def spec(fraction=1 / 3, decay=1.0, estimated=False, server_round=1):
    """Upload of client 2, whose seed is 5."""
    return UploadSpec(fraction, decay, estimated, seed=5, server_round=server_round, client=2)


def vector(*values):
    """Float32 vector of these values."""
    return np.array(values, np.float32)
