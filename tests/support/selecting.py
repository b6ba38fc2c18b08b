"""Selections of a method, and the odds of sequential draws."""

from collections.abc import Iterator, Sequence
from itertools import permutations

import numpy as np
from numpy.typing import NDArray

from strategies.base import SelectionStrategy
from strategies.roster import Roster, RoundInfo, Selection


def select(method: SelectionStrategy, roster: Roster, number: int, count: int, seed: int = 0) -> Selection:
    """A selection in round `number` of 10, with finite components. The contract keeps the rest that is asked of it."""
    selection = method.select(roster, RoundInfo(number, 10), count, np.random.default_rng(seed))
    assert all(np.isfinite(values).all() for values in selection.components.values())
    return selection


def selections(method: SelectionStrategy, roster: Roster, number: int, count: int, times: int) -> list[Selection]:
    """Selections of the seeds 0 ... `times` - 1."""
    return [select(method, roster, number, count, seed) for seed in range(times)]


def frequencies(method: SelectionStrategy, roster: Roster, number: int, count: int, times: int) -> NDArray[np.float64]:
    """Share of the `selections` with each client, float64 (K,)."""
    drawn = [selection.clients for selection in selections(method, roster, number, count, times)]
    return np.bincount(np.concatenate(drawn), minlength=roster.available.size) / times


def sequences(weights: Sequence[float], count: int) -> Iterator[tuple[tuple[int, ...], float]]:
    """Each sequence of `count` positions with the probability of its draws, each renormalised over what is left."""
    for sequence in permutations(range(len(weights)), count):
        left, probability = sum(weights), 1.0
        for position in sequence:
            probability *= weights[position] / left
            left -= weights[position]
        yield sequence, probability
