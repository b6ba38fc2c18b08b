"""Random streams: a function of seed, purpose, round and client, never of the order of calls."""

import random
from collections.abc import Iterator
from contextlib import contextmanager
from enum import IntEnum

import numpy as np


class Purpose(IntEnum):
    """Purpose of a random stream. The values are part of every run's identity: never renumber."""

    INIT = 0
    DATA = 1
    PARTITION = 2
    SELECT = 3
    TRAIN = 4
    PROBE = 5
    COMPRESS = 6
    NETWORK = 7
    CALIBRATE = 8
    PARTICIPATION = 9
    CANDIDATES = 10
    ROUNDING = 11
    DROPOUT = 12
    MARKS = 14
    AVAILABILITY = 15
    EVALUATION = 16
    CALIBRATORS = 17
    ENTRIES = 18
    SURROGATE = 19
    ATTACK = 19
    EXAMPLES = 20


def stream(seed: int, purpose: Purpose, server_round: int = 0, client: int = 0) -> np.random.Generator:
    """Generator of one purpose, round and client: the same for the same arguments, in any order of calls."""
    key = (int(purpose), server_round, client)
    return np.random.default_rng(np.random.SeedSequence(seed, spawn_key=key))


def torch_seed(seed: int, purpose: Purpose) -> int:
    """Seed for torch's generators, drawn from `stream`."""
    return int(stream(seed, purpose).integers(2**63 - 1))


@contextmanager
def global_generators(seed: int) -> Iterator[None]:
    """Seed the global generators of Python and of NumPy, from which users' code may draw, and restore them after the
    block.
    """
    before, of_numpy = random.getstate(), np.random.get_state(legacy=False)  # noqa: NPY002
    random.seed(seed)
    np.random.seed(seed % 2**32)  # noqa: NPY002
    try:
        yield
    finally:
        random.setstate(before)
        np.random.set_state(of_numpy)  # noqa: NPY002
