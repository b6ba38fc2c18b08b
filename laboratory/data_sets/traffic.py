"""Generated table of network traffic at several sites: is a connection an attack?

Half of a site's examples are attacks of one kind, which lie in a direction of its own. The sites differ in their usual
traffic, in size, and in how far the attack is from the usual. A tenth of the examples is the test set of the server.
"""

import numpy as np

from fedsel_app.config import DataConfig
from fedsel_app.data.dataset import Dataset
from fedsel_app.seeds import Purpose, stream

FEATURES = 20


def traffic(config: DataConfig, seed: int, sites: int = 12, kinds: int = 0) -> Dataset:
    """The table of one seed, whatever the seed of the run is.

    With `kinds`, sites share that many kinds of attack, and the kind number k is k times rarer than the first.
    """
    rng = stream(seed, Purpose.DATA)
    sizes = np.round(rng.lognormal(6.0, 0.6, sites)).astype(int).clip(80)
    owners = np.repeat(np.arange(sites), sizes)
    y = rng.integers(0, 2, owners.size)
    usual, directions = rng.normal(0.0, 0.7, (sites, FEATURES)), rng.standard_normal((sites, FEATURES))
    if kinds:
        shares = 1.0 / np.arange(1, kinds + 1)
        directions = directions[rng.choice(kinds, sites, p=shares / shares.sum())]
    directions *= rng.uniform(2.5, 5.0, (sites, 1)) / np.linalg.norm(directions, axis=1, keepdims=True)
    x = rng.standard_normal((owners.size, FEATURES)) + usual[owners] + y[:, None] * directions[owners]
    test = rng.random(owners.size) < 0.1
    x = x.astype(np.float32)
    mean, std = x[~test].mean(axis=0), x[~test].std(axis=0)
    return Dataset(x[~test], y[~test], x[test], y[test], 2, mean, std, owners=owners[~test])
