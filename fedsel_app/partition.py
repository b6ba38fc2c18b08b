"""Which client holds which training examples.

Every skewed split is a table first, how many examples of each class each client holds, and then one
seeded deal of the shuffled classes.

References
----------
Dirichlet: Hsu, Qi, Brown, "Measuring the Effects of Non-Identical Data Distribution for Federated
Visual Classification", arXiv:1909.06335. psi-LDA and missing classes: the FedCG splits, as used in
"HeteRo-Select: Informativeness as the primary driver of client participation", Sec. V. multi-dirichlet:
Chen and Vikalo, "Heterogeneity-Guided Client Sampling", arXiv:2310.00198, as Terraform describes it (Sec. 7).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedsel_app.config import ConfigError, Settings, require, setting
from fedsel_app.seeds import Purpose, stream

Integers = NDArray[np.int64]

DIRICHLET_DRAWS = 100


@dataclass(frozen=True)
class PartitionConfig(Settings):
    """How the training examples are split among the clients."""

    partition: str = setting(
        "dirichlet",
        "how the training examples are split among the clients",
        choices=("iid", "dirichlet", "multi-dirichlet", "psi-lda", "missing-classes", "natural"),
    )
    alpha: float = setting(0.5, "dirichlet: concentration; small is skewed", above=0.0)
    alphas: str = setting(
        "0.001,0.01,0.1,0.5,1", "multi-dirichlet: concentrations, one for each of as many equal groups of clients"
    )
    psi: float = setting(0.4, "psi-lda: probability of the client's dominant class; 0 is IID", low=0.0, high=1.0)
    missing_classes: int = setting(40, "missing-classes: classes that each client lacks", low=0)
    min_examples: int = setting(1, "fewest training examples a client may hold", low=1)

    def __post_init__(self) -> None:
        super().__post_init__()
        try:
            valid = all(0.0 < alpha < math.inf for alpha in self.group_alphas)
        except ValueError:
            valid = False
        require(valid, "alphas", "numbers above 0 with commas between them", self.alphas)

    @property
    def group_alphas(self) -> list[float]:
        """The concentrations in `alphas`."""
        return [float(alpha) for alpha in self.alphas.split(",")]


def split(
    config: PartitionConfig, labels: Integers, clients: int, seed: int, owners: Integers | None = None
) -> list[Integers]:
    """Split the examples among the clients; the same for the same arguments.

    Parameters
    ----------
    config
        Which split, and its parameters.
    labels : int64 array of shape (n,)
        Class of each training example.
    clients
        Number of clients K.
    seed
        Seed of the run.
    owners : int64 array of shape (n,), optional
        The client of each training example; natural goes by it.

    Returns
    -------
    list of K int64 arrays
        Each client's examples as sorted, disjoint indices. They cover all n examples, except in
        psi-lda, where each client holds exactly n // K.

    Raises
    ------
    ConfigError
        Where the examples do not suffice, 'alphas' makes no equal groups, 'missing-classes' leaves no class, or the
        owners of natural are absent or not K.
    """
    if clients * config.min_examples > len(labels):
        raise ConfigError(
            f"The 'min-examples' parameter asks for {config.min_examples} examples for each of {clients} clients, but "
            f"there are only {len(labels)} training examples. Lower 'min-examples' or 'clients'."
        )
    if config.partition == "natural":
        return _natural(owners, clients, config.min_examples)
    rng = stream(seed, Purpose.PARTITION)
    if config.partition == "iid":
        return [np.sort(part) for part in np.array_split(rng.permutation(len(labels)), clients)]
    sizes = np.bincount(labels)
    if config.partition == "dirichlet":
        table = _dirichlet(sizes, clients, config.alpha, config.min_examples, rng)
    elif config.partition == "multi-dirichlet":
        table = _multi_dirichlet(sizes, clients, config.group_alphas, config.min_examples, rng)
    elif config.partition == "psi-lda":
        table = _psi_lda(sizes, clients, config.psi, rng)
    else:
        table = _missing_classes(sizes, clients, config.missing_classes, rng)
        if table.sum(axis=1).min() < config.min_examples:
            raise ConfigError(
                f"With 'missing-classes' {config.missing_classes} and {clients} clients, client "
                f"{table.sum(axis=1).argmin()} would hold fewer than {config.min_examples} examples. "
                "Lower 'missing-classes', 'clients' or 'min-examples'."
            )
    return _deal(table, labels, rng)


def holdout(
    indices: Integers, labels: Integers, fraction: float, rng: np.random.Generator
) -> tuple[Integers, Integers]:
    """Split one client's examples into a training part and its own test part, stratified by class.

    The test part has `fraction` of the examples (rounded half up), shared among the classes in
    proportion to their size (Sainte-Lague). The training part keeps at least one example.

    Parameters
    ----------
    indices : int64 array of shape (k,), k >= 1
        The client's examples.
    labels : int64 array of shape (n,)
        Labels of the whole data set, which `indices` index.
    fraction
        Share of the examples that is tested on, in [0, 1).
    rng
        Draws which examples they are.

    Returns
    -------
    train, test : int64 arrays
        Sorted and disjoint; together they are `indices`.
    """
    shuffled = rng.permutation(indices)
    by_class = np.argsort(labels[shuffled], kind="stable")
    _, starts, sizes = np.unique(labels[shuffled][by_class], return_index=True, return_counts=True)
    rank = np.empty(len(indices))
    rank[by_class] = (np.arange(len(indices)) - np.repeat(starts, sizes) + 0.5) / np.repeat(sizes, sizes)
    tested = min(int(fraction * len(indices) + 0.5), len(indices) - 1)
    order = np.argsort(rank, kind="stable")
    return np.sort(shuffled[order[tested:]]), np.sort(shuffled[order[:tested]])


def label_counts(parts: Sequence[Integers], labels: Integers, classes: int) -> Integers:
    """How many examples of each class each part holds, as an int64 array of shape (parts, classes)."""
    return np.stack([np.bincount(labels[part], minlength=classes) for part in parts])


def _natural(owners: Integers | None, clients: int, least: int) -> list[Integers]:
    """Each owner's examples."""
    if owners is None:
        raise ConfigError(
            "The 'partition' parameter natural needs a data set that says whose each training example is, and this one "
            "does not. Choose another partition, or a data set with owners."
        )
    held = np.bincount(owners, minlength=clients)
    if len(held) > clients:
        raise ConfigError(
            f"With 'partition' natural the training examples belong to {len(held)} clients. "
            f"Set 'clients' to {len(held)} instead of {clients}."
        )
    if held.min() < least:
        raise ConfigError(
            f"With 'partition' natural, client {held.argmin()} of {clients} has {held.min()} training examples, and "
            f"'min-examples' is {least}. Lower 'clients' or 'min-examples'."
        )
    return np.split(np.argsort(owners, kind="stable"), np.cumsum(held)[:-1])


def _deal(table: Integers, labels: Integers, rng: np.random.Generator) -> list[Integers]:
    """Deal each class's shuffled examples to the clients, `table[k, c]` of class c to client k."""
    dealt: list[list[Integers]] = [[] for _ in table]
    for label, counts in enumerate(table.T):
        members = rng.permutation(np.flatnonzero(labels == label))
        for hand, examples in zip(dealt, np.split(members[: counts.sum()], np.cumsum(counts)[:-1]), strict=True):
            hand.append(examples)
    return [np.sort(np.concatenate(hand)) for hand in dealt]


def _dirichlet(sizes: Integers, clients: int, alpha: float, least: int, rng: np.random.Generator) -> Integers:
    """Each class in Dirichlet(alpha) proportions; after 100 draws too few for someone, the largest clients give."""
    for _ in range(DIRICHLET_DRAWS):
        shares = rng.dirichlet(np.full(clients, alpha), size=len(sizes))
        ends = (np.cumsum(shares, axis=1) * sizes[:, None]).astype(np.int64)
        ends[:, -1] = sizes
        table = np.diff(np.minimum(ends, sizes[:, None]), axis=1, prepend=0).T
        if table.sum(axis=1).min() >= least:
            return table
    held = table.sum(axis=1)
    while held.min() < least:
        giver, taker = held.argmax(), held.argmin()
        label = table[giver].argmax()
        table[[giver, taker], label] += (-1, 1)
        held[[giver, taker]] += (-1, 1)
    return table


def _multi_dirichlet(
    sizes: Integers, clients: int, alphas: Sequence[float], least: int, rng: np.random.Generator
) -> Integers:
    """Equal groups of clients in order; each has the same share of every class, in its own alpha's proportions."""
    groups = len(alphas)
    if clients % groups:
        raise ConfigError(
            f"The {groups} numbers in 'alphas' need 'clients' to be a multiple of {groups}. Got {clients} clients."
        )
    # The examples, class after class, are dealt to the groups in turns.
    dealt = (np.cumsum(sizes) + np.arange(groups)[::-1, None]) // groups
    shares = np.diff(dealt, axis=1, prepend=0)
    tables = [
        _dirichlet(share, clients // groups, alpha, least, rng) for share, alpha in zip(shares, alphas, strict=True)
    ]
    return np.concatenate(tables)


def _psi_lda(sizes: Integers, clients: int, psi: float, rng: np.random.Generator) -> Integers:
    """n // K examples each, of class k mod C with probability psi, else of any other class alike.

    The clients draw in turns, one example at a time, so that a class that runs out (the fullest one
    then stands in for it) runs out for all of them alike.
    """
    classes, turns = len(sizes), int(sizes.sum()) // clients
    dominant = np.arange(clients) % classes
    if psi == 0.0:
        wanted = rng.integers(classes, size=(turns, clients))
    else:
        other = (dominant + 1 + rng.integers(max(classes - 1, 1), size=(turns, clients))) % classes
        wanted = np.where(rng.random((turns, clients)) < psi, dominant, other)
    left, table = sizes.tolist(), np.zeros((clients, classes), dtype=np.int64)
    for turn in wanted.tolist():
        for client, label in enumerate(turn):
            given = label if left[label] else left.index(max(left))
            left[given] -= 1
            table[client, given] += 1
    return table


def _missing_classes(sizes: Integers, clients: int, missing: int, rng: np.random.Generator) -> Integers:
    """Each client lacks `missing` random classes; a class is split evenly among those that have it."""
    classes = len(sizes)
    if missing >= classes:
        raise ConfigError(
            f"The 'missing-classes' parameter must be below the number of classes ({classes}). Got {missing}."
        )
    if clients * (classes - missing) < classes:
        raise ConfigError(
            f"With 'missing-classes' {missing}, {clients} clients hold {classes - missing} classes each, which cannot "
            f"cover all {classes}. Lower 'missing-classes' or raise 'clients'."
        )
    has = np.argsort(rng.random((clients, classes)), axis=1) >= missing
    for orphan in np.flatnonzero(~has.any(axis=0)):
        common = has.sum(axis=0).argmax()
        holder = has[:, common].argmax()
        has[holder, [common, orphan]] = False, True
    table = np.zeros((clients, classes), dtype=np.int64)
    for label, size in enumerate(sizes):
        holders = rng.permutation(np.flatnonzero(has[:, label]))
        table[holders, label] = size // len(holders) + (np.arange(len(holders)) < size % len(holders))
    return table
