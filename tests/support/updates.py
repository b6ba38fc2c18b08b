"""Sparse updates by hand; dense ones are in `strategies.testing.fakes`."""

import numpy as np

from fedsel_app.wire.codec import Update


def sparse(size, indices, values=None):
    """Update of `size` entries with `values` (1, 2, 3 ... if there are none) at the `indices`."""
    values = range(1, len(indices) + 1) if values is None else values
    return Update(size, np.array(indices, np.uint32), np.array(values, np.float32))
