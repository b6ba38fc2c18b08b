"""Lies that cost: every aggregation rule under every attack of two liars in a cohort of ten, for docs/security.md.

``python -m laboratory.bench.lies digits`` or ``... lies FILE.npz`` (x_train, y_train, x_test, y_test; 6,000 and 2,000
of the images are drawn by the seed) prints the table; names of rules behind it choose lines. The clients train softmax
regression in NumPy, so that all of it takes minutes; clipping, entry bounds and rules are the server's own, and top-k
is the clients' own.

Attacks (the liars know all honest updates): a backdoor, whose liars train on as many images again with bright corners
and label 0, and send 10 times that; negation, x -1 and x -10; flipped labels, 9 - y; ALIE (G. Baruch, M. Baruch,
Y. Goldberg, NeurIPS 2019), mean - z deviations with z = 1; min-max (V. Shejwalkar, A. Houmansadr, NDSS 2021), as far
along the deviations as the honest updates lie apart; inner product (C. Xie, O. Koyejo, I. Gupta, UAI 2019), -3 times
the mean.
"""

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from clients.compression.compressors import top_indices
from fedsel_app.config import AggregationConfig
from fedsel_app.data.sources import digits
from fedsel_app.npz import read_arrays
from fedsel_app.seeds import Purpose, stream
from fedsel_app.wire.codec import Update
from fedsel_app.wire.indices import kept_count
from strategies.aggregation.entry_bounds import EntryBounds
from strategies.aggregation.robust import combine
from strategies.roster import Floats, Ints

ATTACKS = ("honest", "backdoor", "negation", "negation x 10", "label flip", "ALIE", "min-max", "inner product")
LIARS = (4, 9)
CLIENTS, COHORT, ROUNDS, SEEDS = 12, 10, 50, 5
KEPT, ALPHA, LR, STEPS, BATCH, CLASSES = 0.2, 0.5, 0.5, 10, 32, 10
TRAIN, TEST = 6000, 2000
RULES = {
    f"{rule}, entry-malicious={bound}" if bound else rule: AggregationConfig(
        aggregation=rule, krum_malicious=len(LIARS), entry_malicious=bound
    )
    for rule in ("trimmed-mean", "median", "multi-krum", "krum", "mean")
    for bound in ((0,) if rule == "mean" else (0, len(LIARS)))
}


class Images(NamedTuple):
    """Images in [0, 1], float64 (n, side^2), and their classes."""

    x: Floats
    y: Ints


@dataclass(frozen=True)
class Federation:
    """Federation of one seed: the clients' images, and the test set."""

    seed: int
    parts: tuple[Images, ...]
    test: Images

    @property
    def size(self) -> int:
        """Entries of the model."""
        return (int(self.test.x.shape[1]) + 1) * CLASSES


def read(source: str, seed: int) -> Federation:
    """The federation of a seed: Dirichlet over the classes, every client with two images at least."""
    rng = stream(seed, Purpose.PARTITION)
    if source == "digits":
        images, labels = digits.read()
        order = rng.permutation(len(labels))
        train, test = order[: int(0.8 * order.size)], order[int(0.8 * order.size) :]
        both = (images[train], labels[train]), (images[test], labels[test])
    else:
        with Path(source).open("rb") as file:
            arrays = read_arrays(file)
        train, test = (rng.permutation(len(arrays[f"y_{part}"])) for part in ("train", "test"))
        both = (
            (arrays["x_train"][train[:TRAIN]], arrays["y_train"][train[:TRAIN]]),
            (arrays["x_test"][test[:TEST]], arrays["y_test"][test[:TEST]]),
        )
    train_set, test_set = (Images(x.reshape(len(x), -1) / float(both[0][0].max()), y.astype(np.int64)) for x, y in both)
    places: list[list[int]] = [[] for _ in range(CLIENTS)]
    for label in range(CLASSES):
        own = rng.permutation(np.flatnonzero(train_set.y == label))
        ends = (np.cumsum(rng.dirichlet(np.full(CLIENTS, ALPHA))) * own.size).astype(int)
        for place, part in zip(places, np.split(own, ends[:-1]), strict=True):
            place.extend(part.tolist())
    parts = [place if len(place) > 1 else rng.integers(0, len(train_set.y), 10).tolist() for place in places]
    return Federation(seed, tuple(Images(train_set.x[part], train_set.y[part]) for part in parts), test_set)


def triggered(x: Floats) -> Floats:
    """The images with bright corners: the backdoor's trigger."""
    side = round(x.shape[1] ** 0.5)
    width = max(1, side // 9)
    images = x.reshape(-1, side, side).copy()
    for rows in (slice(0, width), slice(side - width, side)):
        for columns in (slice(0, width), slice(side - width, side)):
            images[:, rows, columns] = 1.0
    return images.reshape(len(x), -1)


def probabilities(model: Floats, x: Floats) -> Floats:
    """Softmax of the scores, float64 (n, classes)."""
    matrix = model.reshape(-1, CLASSES)
    scores = x @ matrix[:-1] + matrix[-1]
    powers = np.exp(scores - scores.max(axis=1, keepdims=True))
    return np.asarray(powers / powers.sum(axis=1, keepdims=True))


def trained(model: Floats, images: Images, rng: np.random.Generator) -> Floats:
    """The change of the model by local SGD, float64 (N,)."""
    local = model.reshape(-1, CLASSES).copy()
    inputs = np.concatenate([images.x, np.ones((len(images.y), 1))], axis=1)
    targets = np.eye(CLASSES)[images.y]
    for batch in rng.integers(0, len(images.y), (STEPS, BATCH)):
        x = inputs[batch]
        powers = np.exp(np.clip(x @ local, -50.0, 50.0))
        errors = powers / powers.sum(axis=1, keepdims=True) - targets[batch]
        local -= (LR / BATCH) * (x.T @ errors)
    return local.ravel() - model


def poisoned(images: Images, attack: str) -> Images:
    """Images that a liar trains on."""
    if attack == "label flip":
        return Images(images.x, CLASSES - 1 - images.y)
    if attack == "backdoor":
        return Images(
            np.concatenate([images.x, triggered(images.x)]), np.concatenate([images.y, np.zeros_like(images.y)])
        )
    return images


def min_max(honest: Floats) -> Floats:
    """The mean minus as many deviations as keep it no further from an honest update than they are apart."""
    apart = max(float(np.linalg.norm(honest - one, axis=1).max()) for one in honest)
    low, high = 0.0, 50.0
    for _ in range(25):
        middle = (low + high) / 2
        lie = honest.mean(axis=0) - middle * honest.std(axis=0)
        near = np.linalg.norm(honest - lie, axis=1).max() <= apart
        low, high = (middle, high) if near else (low, middle)
    return np.asarray(honest.mean(axis=0) - low * honest.std(axis=0))


LIES: Mapping[str, Callable[[Floats], Floats]] = {
    "ALIE": lambda honest: honest.mean(axis=0) - honest.std(axis=0),
    "min-max": min_max,
    "inner product": lambda honest: -3.0 * honest.mean(axis=0),
}
"""Attack -> the dense update that all liars send, of the honest ones, float64 (r, N)."""
FACTORS = {"negation": -1.0, "negation x 10": -10.0, "backdoor": 10.0}
"""Attack -> factor of what the liars trained."""


class Round:
    """Rounds of one federation under one rule and one attack."""

    def __init__(self, federation: Federation, rule: AggregationConfig, attack: str) -> None:
        self.model = np.zeros(federation.size)
        self._federation, self._rule, self._attack = federation, rule, attack
        self._residuals = np.zeros((CLIENTS, federation.size))
        self._bounds = EntryBounds(federation.size, rule.entry_malicious) if rule.entry_malicious else None

    def play(self, number: int) -> None:
        """Play round `number`: a cohort trains, some lie, and the server steps."""
        federation, size = self._federation, self._federation.size
        cohort = np.sort(stream(federation.seed, Purpose.SELECT, number).choice(CLIENTS, COHORT, replace=False))
        liars = [] if self._attack == "honest" else [client for client in cohort.tolist() if client in LIARS]
        updates = {client: self._update(client, number, lies=client in liars) for client in cohort.tolist()}
        honest = np.array([update.dense() for client, update in updates.items() if client not in liars], np.float64)
        for client in liars:
            if self._attack in LIES:
                updates[client] = Update(size, None, LIES[self._attack](honest).astype(np.float32))
            factor = np.float32(FACTORS.get(self._attack, 1.0))
            updates[client] = Update(size, updates[client].indices, factor * updates[client].values)
        bound = partial(self._bounds.bound, cohort) if self._bounds is not None else None
        combined = combine(tuple(updates.values()), np.full(COHORT, 1.0 / COHORT), self._rule, bound)
        for (client, update), taken in zip(updates.items(), combined.taken.tolist(), strict=True):
            if client not in liars:
                self._residuals[client] += (1.0 - taken) * update.dense()
        self.model += combined.aggregate

    def _update(self, client: int, number: int, *, lies: bool) -> Update:
        """Update that the client sends of its training and its residual: all in round 1, the largest entries later."""
        federation = self._federation
        images = poisoned(federation.parts[client], self._attack) if lies else federation.parts[client]
        vector = trained(self.model, images, stream(federation.seed, Purpose.TRAIN, number, client))
        vector += self._residuals[client]
        kept = kept_count(KEPT if number > 1 else 1.0, vector.size, "ceil")
        places = top_indices(np.square(vector).astype(np.float32), kept)
        sent = vector[places].astype(np.float32)
        self._residuals[client] = vector
        self._residuals[client][places] -= sent
        return Update(vector.size, places, sent)


def result(federation: Federation, rule: AggregationConfig, attack: str) -> NDArray[np.float64]:
    """Accuracy, and the share of other images with the trigger that are taken for a 0."""
    rounds = Round(federation, rule, attack)
    for number in range(1, ROUNDS + 1):
        rounds.play(number)
    x, y = federation.test
    accuracy = (probabilities(rounds.model, x).argmax(axis=1) == y).mean()
    fooled = (probabilities(rounds.model, triggered(x[y != 0])).argmax(axis=1) == 0).mean()
    return np.array([accuracy, fooled])


def main(source: str, *rules: str) -> None:
    """Print the table: means over the seeds; of the honest run and the backdoor the backdoor's success as well."""
    federations = [read(source, seed) for seed in range(1, SEEDS + 1)]
    print(f"| rule | {' | '.join(ATTACKS)} |\n|{'---|' * (len(ATTACKS) + 1)}", flush=True)
    for name in rules or RULES:
        cells = []
        for attack in ATTACKS:
            accuracy, fooled = np.mean([result(federation, RULES[name], attack) for federation in federations], axis=0)
            shown = f", {100 * fooled:.0f}%" if attack in ("honest", "backdoor") else ""
            cells.append(f"{accuracy:.3f}{shown}")
        print(f"| `{name}` | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
