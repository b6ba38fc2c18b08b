"""Clustered linear regression: clients of a few clusters, each with its own inputs and its own linear law.

Licciardi et al., "FedCVR-Bolt" (opinion dynamics and client selection), Sec. 4.1 and App. B.3. Client k belongs to a
cluster j, drawn uniformly from J. Each of its examples i has

- an input x_i ~ N(m_j, s_j^2);
- weights theta_i ~ N(theta_j, sigma_j^2 I) of its own, so the target has noise that grows with the input;
- the target y_i = theta_i . x_i. With an intercept, x_i gets a second entry, 1 (D = 2, else D = 1).

J = 1 is the paper's IID case.

Deviations
----------
- The text gives neither a client's number of examples nor the draw of the clusters ("uniform sampling routines").
  Here a client has 100 training examples: one batch, so that the 10 local steps of Sec. 4.1 are the 10 local epochs of
  App. B.1. The entries of m_j and theta_j are uniform in [-R, R], s_j and sigma_j in [R/12, R/6], with R = 6, and
  R = 2 with an intercept: the error of the best linear model is then of the size of Table 3's, for J = 1 and J = 2.
- The test set is drawn separately from each client's own distribution; `holdout-fraction` takes each client's own test
  part from its training examples.
- Each client draws from its own stream, so its data do not depend on the number of clients.
"""

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedsel_app.config import DataConfig, require
from fedsel_app.data.dataset import Dataset, from_arrays
from fedsel_app.seeds import Purpose, stream

EXAMPLES = 100
RANGE, RANGE_WITH_INTERCEPT = 6.0, 2.0


def generate(clients: int, clusters: int, intercept: bool, test_fraction: float, seed: int) -> dict[str, NDArray[Any]]:
    """Draw the examples of all clients, one client after the other.

    Parameters
    ----------
    clients
        Number of clients K, at least 1.
    clusters
        Number of clusters J, at least 1.
    intercept
        Whether each input gets a second entry, 1.
    test_fraction
        Number of test examples of a client as a share of its 100 training examples; at least one test example.
    seed
        Seed of the run.

    Returns
    -------
    dict
        x_train, float32 (n, D), with y_train, float32 (n,), and owners (the client that drew it), int64 (n,); x_test
        and y_test; task.
    """
    bound = RANGE_WITH_INTERCEPT if intercept else RANGE
    tested = max(1, round(test_fraction * EXAMPLES))
    parts: dict[str, list[NDArray[np.float32]]] = {key: [] for key in ("x_train", "y_train", "x_test", "y_test")}
    for client in range(clients):
        rng = stream(seed, Purpose.DATA, 0, client)
        x, y = _examples(rng, int(rng.integers(clusters)), EXAMPLES + tested, intercept, bound, seed)
        for key, values in (("x", x), ("y", y)):
            parts[f"{key}_train"].append(values[:EXAMPLES])
            parts[f"{key}_test"].append(values[EXAMPLES:])
    arrays: dict[str, NDArray[Any]] = {key: np.concatenate(values) for key, values in parts.items()}
    owners = np.repeat(np.arange(clients), EXAMPLES)
    return arrays | {"owners": owners, "task": np.array("regression")}


def _examples(
    rng: np.random.Generator, cluster: int, count: int, intercept: bool, bound: float, seed: int
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """`count` examples of a client of `cluster`."""
    # Round 0 of this purpose drew the clients.
    law = stream(seed, Purpose.DATA, 1, cluster)
    input_mean, *weight_means = law.uniform(-bound, bound, 3 if intercept else 2)
    input_std, weight_std = law.uniform(bound / 12, bound / 6, 2)
    x = rng.normal(input_mean, input_std, (count, 1))
    if intercept:
        x = np.hstack([x, np.ones((count, 1))])
    weights = rng.normal(weight_means, weight_std, x.shape)
    return x.astype(np.float32), (weights * x).sum(axis=1).astype(np.float32)


def load(config: DataConfig, *, seed: int, clients: int, clusters: int = 2, intercept: bool = False) -> Dataset:
    """Generate the data of `clients` clients. Raises ConfigError for an argument out of range."""
    for name, value in (("clients", clients), ("clusters", clusters)):
        require(type(value) is int and value >= 1, name, "a whole number of at least 1", value)
    require(type(intercept) is bool, "intercept", "true or false", intercept)
    made = from_arrays(generate(clients, clusters, intercept, config.test_fraction, seed), "The data set 'regression'")
    # The inputs are not shifted: after a shift, a linear law through the origin would need an intercept.
    return replace(made, mean=np.zeros_like(made.mean), std=np.ones_like(made.std))
