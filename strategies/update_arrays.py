"""Remembered updates as named arrays, and back."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedsel_app.wire.codec import Update


def pack_updates(updates: Mapping[int, Update]) -> dict[str, NDArray[Any]]:
    """Client -> update as arrays named by client: values, and indices unless the update is dense."""
    arrays: dict[str, NDArray[Any]] = {"clients": np.array(sorted(updates), np.int64)}
    for client, update in updates.items():
        arrays[f"values-{client}"] = update.values
        if update.indices is not None:
            arrays[f"indices-{client}"] = update.indices
    return arrays


def unpack_updates(arrays: Mapping[str, NDArray[Any]], size: int) -> dict[int, Update]:
    """What `pack_updates` was given; `size` is the length of every update."""
    return {
        client: Update(size, arrays.get(f"indices-{client}"), arrays[f"values-{client}"])
        for client in arrays["clients"].tolist()
    }
