"""Preset fedavg against a plain loop of FedAvg: McMahan et al. 2017 (arXiv:1602.05629), Algorithm 1."""

import numpy as np

from fedsel_app.data.client_parts import client_parts
from fedsel_app.data.dataset import load
from fedsel_app.models import building
from fedsel_app.seeds import Purpose, stream
from fedsel_app.wiring.configuration import resolve
from simulation.workbench.cli import main
from tests.support.rounds import read_rows

SEED, ROUNDS, CLIENTS, COHORT, EPOCHS, BATCH, RATE = 3, 8, 20, 5, 5, 10, 0.05


def softmax_gradient(weights, x, y):
    """Gradient of the mean cross-entropy of multinomial logistic regression, float64 (classes, features + 1)."""
    scores = x @ weights.T
    shares = np.exp(scores - scores.max(axis=1, keepdims=True))
    shares /= shares.sum(axis=1, keepdims=True)
    shares[np.arange(y.size), y] -= 1.0
    return shares.T @ x / y.size


def fedavg(config):
    """Cohorts, and the weights after the rounds, float64 (classes, features + 1); the streams are fedsel's."""
    data = load(config.data, SEED)
    unit = 255.0 if data.x_train.dtype == np.uint8 else 1.0
    x = (data.x_train.astype(np.float64).reshape(len(data.x_train), -1) / unit - data.mean.item()) / data.std.item()
    x, y = np.concatenate([x, np.ones((len(x), 1))], axis=1), data.y_train
    parts = client_parts(config.partition, data, CLIENTS, SEED)
    linear = building.build("logistic", data.sample_shape, data.classes, SEED)[-1]
    weights = np.column_stack([one.detach().numpy() for one in (linear.weight, linear.bias)]).astype(np.float64)
    cohorts = []
    for number in range(1, ROUNDS + 1):
        cohort = sorted(stream(SEED, Purpose.SELECT, number).choice(CLIENTS, COHORT, replace=False).tolist())
        examples = sum(parts[client].size for client in cohort)
        mean = np.zeros_like(weights)
        for client in cohort:
            own, local = parts[client], weights.copy()
            rng = stream(SEED, Purpose.TRAIN, number, client)
            for _ in range(EPOCHS):
                order = rng.permutation(own.size)
                for start in range(0, own.size, BATCH):
                    batch = own[order[start : start + BATCH]]
                    local -= RATE * softmax_gradient(local, x[batch], y[batch])
            mean += own.size / examples * local
        weights = mean
        cohorts.append(cohort)
    return cohorts, weights


def test_the_preset_fedavg_is_the_algorithm_as_printed(tmp_path):
    out = tmp_path / "run"
    assert main(["run", "--preset", "fedavg", "--rounds", str(ROUNDS), "--seed", str(SEED), "--out", str(out)]) == 0
    rows = read_rows(out)
    cohorts, weights = fedavg(resolve({"preset": "fedavg", "seed": SEED}))
    assert [row["selected"] for row in rows] == cohorts
    saved = np.load(out / "model.npz")["parameters"]
    expected = np.concatenate([weights[:, :-1].ravel(), weights[:, -1]])
    np.testing.assert_allclose(saved, expected, rtol=1e-4, atol=2e-6)
    start = building.build("logistic", (1, 8, 8), 10, SEED)[-1].weight.detach().numpy().ravel()
    assert np.abs(saved[: start.size] - start).max() > 0.1
