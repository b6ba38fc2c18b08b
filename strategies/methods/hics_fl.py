"""HiCS-FL: hierarchical clustered sampling. The biases of the output layer show how balanced the labels of a client
are.

Chen and Vikalo, "Heterogeneity-Guided Client Sampling: Towards Fast and Efficient Non-IID Federated Learning", NeurIPS
2024 (arXiv:2310.00198). The update Delta b_k of the output layer's bias grows with a client's label shares. So the
entropy H_k of softmax(Delta b_k / T) estimates how balanced its labels are. Clients are clustered by arccos(cos(Delta
b_u, Delta b_k)) + lambda |H_u - H_k|. Then, until m clients are found, a cluster is drawn with probability proportional
to exp(gamma_t x its mean entropy), gamma_t = gamma_0 (1 - t/T). From this cluster a client is drawn in proportion to
its examples. The first rounds select every client once, m at a time. Aggregation is the plain mean.

Deviations
----------
- The paper discards a draw that repeats a client. This is the same as drawing without replacement, as here.
- Clustering is by average linkage: Ward's linkage needs Euclidean features, which these distances lack.
- The last round of the first pass is filled up with clients that were already selected. A client that joins later is
  drawn before all others. The first pass is in random order.
- If the server does not wait for its cohort, a cluster may have clients under way; a draw that repeats one of these is
  discarded, too.
- Delta b is what the server received: under compression, an entry that was not sent is 0. If one of two vectors is
  zero, their angle is 0. A client that was selected but never sent a usable update counts with the mean entropy.
- The authors' code is not reproduced. It takes the entropy from the row means of the output layer's weight update and
  the angles from weight and bias, clusters by Ward's linkage, and draws uniformly within a cluster.
"""

from dataclasses import dataclass
from typing import final

import numpy as np
import scipy

from fedsel_app.config import RunConfig, Settings, setting
from strategies.base import SelectionStrategy
from strategies.method import MethodContext
from strategies.roster import Floats, Ints, Needs, Outcome, Roster, RoundInfo, Selection
from strategies.selection_math.sampling import gumbel_top, unseen_first
from strategies.selection_math.sampling_rows import merge_tree
from strategies.selection_math.similarity import angles, blocks, layer_part

ENTROPY_DISTANCE = 10.0
"""Weight lambda of |H_u - H_k| in the distance between two clients."""
BALANCE = 4.0
"""Preference gamma_0 for balanced clusters at the start of the run."""


@dataclass(frozen=True)
class HiCSFLConfig(Settings):
    """Settings of HiCS-FL: the temperature."""

    temperature: float = setting(
        0.0025, "temperature T in softmax(Delta b / T); Delta b / T should be of order 1 to 10", above=0.0
    )


def entropies(vectors: Floats, temperature: float) -> Floats:
    """H of softmax(vector / T) in nats, (n, C) -> float64 (n,)."""
    scaled = vectors / temperature
    scaled = scaled - scaled.max(axis=1, keepdims=True)
    weights = np.exp(scaled)
    total = weights.sum(axis=1)
    return np.asarray(np.log(total) - (weights * scaled).sum(axis=1) / total)


def client_distances(vectors: Floats, entropy: Floats, weight: float) -> Floats:
    """arccos(cos) + lambda |H_u - H_k| between the rows of (n, F), float64 (n, n)."""
    products = vectors @ vectors.T
    distances = angles(products, out=products)
    for rows in blocks(*distances.shape):
        distances[rows] += weight * np.abs(entropy[rows, None] - entropy)
    return distances


def group_logits(labels: Ints, entropy: Floats, gamma: float) -> Floats:
    """log pi_g up to a constant: gamma times the mean entropy of group g, from 0; float64 (groups,)."""
    sizes = np.bincount(labels)
    return np.asarray(gamma * np.bincount(labels, weights=entropy) / sizes)


def draw_by_examples(
    labels: Ints, logits: Floats, examples: Ints, count: int, rng: np.random.Generator, free: Ints
) -> Ints:
    """Draw a group by pi and a client of it by examples, until `count` different ones that are `free` are found.

    Returns positions, ascending.
    """
    within = examples / np.bincount(labels, weights=examples)[labels]
    return free[gumbel_top((logits[labels] + np.log(within))[free], count, rng)]


@final
class HiCSFL(SelectionStrategy[HiCSFLConfig]):
    """Clusters of clients with similar label balance; balanced clusters are preferred."""

    name = "hics-fl"
    paper = "Chen & Vikalo 2024, arXiv:2310.00198"
    exact_cohort = False
    state_fields = ("_vectors", "_known")

    def __init__(self, context: MethodContext) -> None:
        super().__init__(context)
        stop = context.layers[-1].stop
        self._biases = stop - context.classes, stop
        self._vectors = np.zeros((context.run.clients, context.classes), np.float32)
        """The output layer's biases in each client's last update."""
        self._known = np.zeros(context.run.clients, bool)
        """Clients that have sent an update."""

    @classmethod
    def needs(cls, config: HiCSFLConfig) -> Needs:
        """The output layer of the updates."""
        return Needs(class_biases=True)

    @classmethod
    def uniform_rounds(cls, config: HiCSFLConfig, run: RunConfig) -> int:
        """The first pass over all clients."""
        return -(-run.clients // run.cohort)

    def entropy(self, ids: Ints) -> Floats:
        """H of the clients `ids`, float64 (n,); a client without an update has the mean of the others."""
        vectors = self._vectors[ids].astype(np.float64)
        values, has_update = entropies(vectors, self.config.temperature), self._known[ids]
        return np.where(has_update, values, values[has_update].mean()) if has_update.any() else values

    def select(self, roster: Roster, round_info: RoundInfo, count: int, rng: np.random.Generator) -> Selection:
        """Clients that were never selected first; later, clusters by entropy and clients within them."""
        ids = roster.ids
        seen = roster.selections[ids] > 0
        if count >= ids.size or not seen.all():
            picked = unseen_first(seen, count, rng)
            return Selection(ids[picked], weights=np.ones(picked.size))
        ids, free = roster.compared, np.flatnonzero(roster.available[roster.compared])
        entropy = self.entropy(ids)
        distances = client_distances(self._vectors[ids].astype(np.float64), entropy, ENTROPY_DISTANCE)
        tree = merge_tree(distances)
        flat = scipy.cluster.hierarchy.fcluster(tree, count + ids.size - free.size, "maxclust")
        labels = np.asarray(flat, np.int64) - 1
        logits = group_logits(labels, entropy, BALANCE * (1.0 - round_info.number / round_info.total))
        picked = draw_by_examples(labels, logits, roster.examples[ids], count, rng, free)
        return Selection(
            ids[picked],
            components={"entropy": entropy[picked], "cluster": labels[picked].astype(np.float64)},
            weights=np.ones(picked.size),
        )

    def update(self, outcome: Outcome) -> None:
        """Store the output layer's biases of each update."""
        for client, update in zip(outcome.clients.tolist(), outcome.updates, strict=True):
            self._vectors[client] = layer_part(update, *self._biases).dense()
            self._known[client] = True
