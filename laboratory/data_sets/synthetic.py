"""Synthetic(alpha, beta): every client has its own inputs and its own model that labels them.

Li, Sahu, Zaheer, Sanjabi, Talwalkar and Smith, "Federated Optimization in Heterogeneous Networks", MLSys 2020,
Sec. 5.1 and the authors' generator. For client k

- n_k = 50 + floor(lognormal(4, 2)) examples;
- u_k ~ N(0, alpha^2); the entries of W_k, 60 x 10, and of b_k are N(u_k, 1);
- B_k ~ N(0, beta^2); v_k has entries N(B_k, 1); x ~ N(v_k, diag(j^-1.2)), j = 1 ... 60;
- y = argmax(x W_k + b_k).

As in the authors' code, alpha and beta are standard deviations; at 0 and 1 they equal the variances. u_k adds the same
number to all ten outputs, so alpha changes no label. W_k and b_k differ between clients for any alpha.

Deviations
----------
- The test set is drawn separately from each client's own distribution, so the n_k examples are all training examples;
  `holdout-fraction` takes each client's own test part from them.
- Each client draws from its own stream, so its data do not depend on the number of clients.
"""

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedsel_app.config import DataConfig, require
from fedsel_app.data.arrays import moments
from fedsel_app.data.dataset import Dataset, from_arrays
from fedsel_app.seeds import Purpose, stream

DIMENSION = 60
CLASSES = 10
LEAST_EXAMPLES = 50
LOG_MEAN, LOG_STD = 4.0, 2.0
INPUT_STD = np.arange(1, DIMENSION + 1) ** -0.6


def generate(clients: int, alpha: float, beta: float, test_fraction: float, seed: int) -> dict[str, NDArray[Any]]:
    """Draw the examples of all clients, one client after the other.

    Parameters
    ----------
    clients
        Number of clients K, at least 1.
    alpha, beta
        How much the clients' models (alpha) and inputs (beta) differ.
    test_fraction
        Number of test examples of a client as a share of n_k, in addition to the n_k; at least one.
    seed
        Seed of the run.

    Returns
    -------
    dict
        x_train, float32 (n, 60), with y_train and owners (the client that drew it), int64 (n,); x_test and y_test.
    """
    # The sizes are drawn first, so that each example is drawn into its final place, without a copy.
    sizes = np.array([_size(stream(seed, Purpose.DATA, 0, client)) for client in range(clients)])
    tested = np.maximum(np.rint(test_fraction * sizes).astype(np.int64), 1)
    made = {
        "x_train": np.empty((sizes.sum(), DIMENSION), np.float32),
        "y_train": np.empty(sizes.sum(), np.int64),
        "x_test": np.empty((tested.sum(), DIMENSION), np.float32),
        "y_test": np.empty(tested.sum(), np.int64),
    }
    ends = {"train": np.cumsum(sizes), "test": np.cumsum(tested)}
    places = [np.split(array, ends[key[2:]][:-1]) for key, array in made.items()]
    for client, (x_train, y_train, x_test, y_test) in enumerate(zip(*places, strict=True)):
        x, y = _client(stream(seed, Purpose.DATA, 0, client), alpha, beta, len(y_test))
        x_train[:], x_test[:] = np.split(x, [len(y_train)])
        y_train[:], y_test[:] = np.split(y, [len(y_train)])
    return made | {"owners": np.repeat(np.arange(clients), sizes)}


def _size(rng: np.random.Generator) -> int:
    """Number of a client's training examples, n_k: the first draw of its stream."""
    return LEAST_EXAMPLES + int(rng.lognormal(LOG_MEAN, LOG_STD))


def _client(
    rng: np.random.Generator, alpha: float, beta: float, tested: int
) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Inputs (n_k + tested, 60) and labels of one client."""
    total = _size(rng) + tested
    model_mean, input_mean = alpha * rng.standard_normal(), beta * rng.standard_normal()
    weights = rng.normal(model_mean, 1.0, (DIMENSION, CLASSES))
    bias = rng.normal(model_mean, 1.0, CLASSES)
    centre = rng.normal(input_mean, 1.0, DIMENSION)
    x = rng.normal(centre, INPUT_STD, (total, DIMENSION))
    return x, (x @ weights + bias).argmax(axis=1)


def load(config: DataConfig, *, seed: int, clients: int, alpha: float = 1.0, beta: float = 1.0) -> Dataset:
    """Generate the data of `clients` clients. Raises ConfigError for an argument out of range."""
    require(type(clients) is int and clients >= 1, "clients", "a whole number of at least 1", clients)
    for name, value in (("alpha", alpha), ("beta", beta)):
        require(type(value) in (int, float) and 0 <= value < np.inf, name, "a number of at least 0", value)
    made = from_arrays(generate(clients, alpha, beta, config.test_fraction, seed), "The data set 'synthetic'", CLASSES)
    # One scale for all features, because the data set defines inputs with decreasing variances.
    mean, std = moments(made.x_train[:, None])
    return replace(made, mean=mean, std=std)
