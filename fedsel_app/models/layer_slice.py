"""Layers of a flat vector of parameters."""

from typing import NamedTuple


class LayerSlice(NamedTuple):
    """The entries [start, stop) of the flat vector that one module owns, weight and bias together."""

    name: str
    start: int
    stop: int
