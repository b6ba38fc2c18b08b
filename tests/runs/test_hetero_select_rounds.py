"""HeteRo-Select in whole rounds, beside its Algorithm 1 written anew in NumPy as the authors' code runs it.

What is drawn at random is taken from the run's own rows: cohorts and links. Every mini-batch is a client's whole part,
and the curvature, which draws, is left out (`tests/clients/test_curvature.py` has it).
"""

import math

import numpy as np
import pytest

from fedsel_app.data.client_parts import client_parts
from fedsel_app.data.dataset import load
from fedsel_app.models.building import build
from fedsel_app.wiring.configuration import resolve
from tests.support.in_process import run_config

CLIENTS, COHORT, ROUNDS, STEPS, SEED = 8, 4, 10, 5, 42
MU, CLIP_NORM, LR, KEPT = 0.1, 2.0, 0.05, 0.2
SMALL = {
    "strategy": "hetero-select",
    "clients": CLIENTS,
    "cohort": COHORT,
    "rounds": ROUNDS,
    "seed": SEED,
    "data": "npz",
    "model": "logistic",
    "moments": "computed",
    "augment": "none",
    "client-examples": 60,
    "batch-size": 100,
    "local-steps": STEPS,
    "curvature-layers": 0,
    "device": "cpu",
    "uplink-min-bits-per-s": 100.0,
    "uplink-max-bits-per-s": 500.0,
}


def write_examples(path):
    """Ten classes of 40 numbers around a mean each: no two weights move alike, so that no two are level in top-k."""
    rng = np.random.default_rng(SEED)
    y = np.repeat(np.arange(10), 60)
    x = rng.normal(size=(10, 40))[y] + rng.normal(scale=2.0, size=(600, 40))
    x = x.astype(np.float32)
    np.savez(path, allow_pickle=False, x_train=x[::2], y_train=y[::2], x_test=x[1::2], y_test=y[1::2])


class Logistic:
    """Logistic regression on one client's examples; its weights are one vector, the biases last."""

    def __init__(self, x, y):
        self.x = np.column_stack([x.reshape(len(x), -1), np.ones(len(x))])
        self.hot = np.eye(10)[y]

    @staticmethod
    def matrix(weights):
        return np.column_stack([weights[:-10].reshape(10, -1), weights[-10:]])

    def shares(self, weights):
        scores = self.x @ self.matrix(weights).T
        shares = np.exp(scores - scores.max(axis=1, keepdims=True))
        return shares / shares.sum(axis=1, keepdims=True)

    def loss(self, weights):
        return -np.log((self.shares(weights) * self.hot).sum(axis=1)).mean()

    def gradient(self, weights):
        matrix = (self.shares(weights) - self.hot).T @ self.x / len(self.x)
        return np.concatenate([matrix[:, :-1].ravel(), matrix[:, -1]])


def local_change(client, model, lr):
    """Eqs. 12 and 18: FedProx by SGD with momentum 0.9, the whole gradient clipped."""
    weights, velocity = model.copy(), np.zeros_like(model)
    for _ in range(STEPS):
        gradient = client.gradient(weights) + MU * (weights - model)
        gradient *= min(1.0, CLIP_NORM / np.linalg.norm(gradient))
        velocity = 0.9 * velocity + gradient
        weights = weights - lr * velocity
    return weights - model


def spread(values):
    values = np.asarray(values, float)
    return (values - values.min()) / np.ptp(values) if np.ptp(values) > 1e-8 else np.ones_like(values)


def rounds_of_the_algorithm(clients, model, rows, score_adaptive_lr):
    """Scores and kept fractions of each cohort, and the model after each round."""
    size = model.size
    residuals, momentum = np.zeros((CLIENTS, size)), np.zeros(size)
    last_updates, average = {}, None
    selections, last_selected = np.zeros(CLIENTS), np.zeros(CLIENTS)
    # An average client's upload at the average kept fraction, by a link of 300 bits/s, and its steps of 0.3 s.
    budget_s = KEPT * 32 * size / 300 + STEPS * 0.3
    for number, row in enumerate(rows, 1):
        diversity = np.full(CLIENTS, 0.5)
        for client, update in last_updates.items():
            cosine = update @ average / (np.linalg.norm(update) * np.linalg.norm(average))
            diversity[client] = np.clip(1.0 - cosine, 0.0, 1.0)
        fair = np.clip(1.0 - selections / (selections.mean() or 1.0), -1.0, 1.0)
        stale = spread(0.5 * np.log1p(number - last_selected))
        loss = spread([client.loss(model) for client in clients])
        score = spread(loss + 0.3 * diversity + 0.2 * fair + 0.2 * stale)
        cohort = row["selected"]
        selections[cohort] += 1
        last_selected[cohort] = number

        share = 1.0
        if number > 1:
            share = max(KEPT * (1 + 0.4 * math.cos(math.pi * (number - 2) / (ROUNDS - 2))), 0.08)
        decay = 0.85 + 0.12 * (1.0 - share)
        caps = np.minimum(np.array(row["uplink_bits_per_s"]) * budget_s / (32 * size), 1.0)
        kept = np.clip(np.minimum(score[cohort] / score[cohort].mean() * share, caps), 0.005, 1.0)
        lr = LR * (1.0 - 0.5 * number / ROUNDS)
        sent = []
        for client, fraction in zip(cohort, kept, strict=True):
            own_lr = min(lr * (1.0 + score[client]), 0.15) if score_adaptive_lr else lr
            vector = residuals[client] + local_change(clients[client], model, own_lr)
            chosen = np.argsort(-(vector**2), kind="stable")[: max(1, int(fraction * size))]
            last_updates[client] = np.zeros(size)
            last_updates[client][chosen] = vector[chosen]
            residuals[client] = decay * (vector - last_updates[client])
            sent.append(last_updates[client])
        aggregate = score[cohort] / score[cohort].sum() @ np.array(sent)
        momentum = 0.5 * momentum + aggregate
        model = model + momentum
        average = aggregate if average is None else 0.9 * average + 0.1 * aggregate
        yield score[cohort], kept, model


@pytest.mark.parametrize(("preset", "score_adaptive_lr"), [("paper", False), ("hetero-select-table-1", True)])
def test_each_round_is_that_of_the_authors_algorithm(tmp_path, preset, score_adaptive_lr):
    write_examples(tmp_path / "data.npz")
    config = resolve({"preset": preset, "data-path": str(tmp_path / "data.npz")} | SMALL)
    strategy, rows = run_config(tmp_path / "run", config)
    dataset = load(config.data, SEED)
    x = (dataset.x_train - dataset.mean) / dataset.std
    parts = client_parts(config.partition, dataset, CLIENTS, SEED)
    clients = [Logistic(x[part], dataset.y_train[part]) for part in parts]
    linear = build("logistic", dataset.sample_shape, 10, SEED)
    first = np.concatenate([tensor.detach().numpy().ravel() for tensor in linear.parameters()]).astype(float)
    expected = list(rounds_of_the_algorithm(clients, first, rows, score_adaptive_lr))
    for row, (score, kept, _) in zip(rows, expected, strict=True):
        np.testing.assert_allclose(row["scores"], score, atol=1e-5)
        np.testing.assert_allclose(row["kept_fractions"], kept, atol=1e-5)
    last = expected[-1][2]
    assert np.linalg.norm(strategy.run.model.parameters - last) < 1e-5 * np.linalg.norm(last - first)
