"""Partition of the training examples over the clients, and of a client's examples into a training and a test part.

A split that is skewed by class has two steps. First `label_skew` draws a table with each client's number of examples of
each class. Then the clients get these numbers of examples from the shuffled classes. With shards and natural, a client
gets whole runs of examples instead.

References
----------
Shards: McMahan, Moore, Ramage, Hampson, Aguera y Arcas, "Communication-Efficient Learning of Deep Networks from
Decentralized Data", AISTATS 2017, Sec. 3.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedsel_app.config import ConfigError, PartitionConfig
from fedsel_app.data import label_skew
from fedsel_app.seeds import Purpose, stream

Ints = NDArray[np.int64]


def split(
    config: PartitionConfig, labels: NDArray[Any], clients: int, seed: int, owners: Ints | None = None
) -> list[Ints]:
    """Split the examples among the clients. The same arguments give the same split.

    Returns each client's examples as sorted indices, int64. They are disjoint, except in missing-classes, where clients
    share examples. They cover all n examples, with three exceptions: missing-classes; psi-lda, where each client has at
    most `client-examples`; and natural with more owners than clients.

    Raises ConfigError if the partition is own, which does not split data. Raises it if there are too few examples,
    'alphas' gives no equal groups, 'missing-classes' leaves no class, a skewed split gets targets that are not classes,
    or natural has too few owners or none.

    Parameters
    ----------
    config : kind of the split, and its parameters
    labels : targets of the training examples, int64 (n,), or float32 (n, L) or (n,); skewed splits use their `strata`
    clients : number of clients K
    seed : seed of the run
    owners : owner of each training example, int64 (n,), if known; natural makes each owner a client. If there are more
        owners than clients, K of the owners with enough examples are drawn, and the others are not used
    """
    if config.partition == "own":
        raise ConfigError(
            "With 'partition' own, each client trains on all of its own data file, and no file is split. Use it only "
            "if each client runs on a machine of its own, with its own 'data-path'."
        )
    if clients * config.min_examples > len(labels):
        raise ConfigError(
            f"The {len(labels)} training examples are too few for {clients} clients with 'min-examples' "
            f"{config.min_examples}. Lower 'clients' or 'min-examples'."
        )
    rng = stream(seed, Purpose.PARTITION)
    if config.partition == "natural":
        return _natural(owners, clients, config.min_examples, rng)
    if config.partition == "iid":
        return [np.sort(part) for part in np.array_split(rng.permutation(len(labels)), clients)]
    if _without_classes(labels):
        raise ConfigError(
            f"The 'partition' parameter {config.partition} needs classes, but the targets of this data set are real "
            "numbers or tokens. Set 'partition' to natural or iid."
        )
    classes = strata(labels)
    if config.partition == "shards":
        return _shards(classes, clients, config.min_examples, rng)
    if config.partition == "missing-classes":
        parts = _overlapping(classes, clients, config.missing_classes, rng)
        _require_examples(np.array([part.size for part in parts]), config, "Lower 'missing-classes' or 'clients'.")
        return parts
    return _deal(_class_table(config, np.bincount(classes), clients, rng), classes, rng)


def _class_table(config: PartitionConfig, sizes: Ints, clients: int, rng: np.random.Generator) -> Ints:
    """Number of examples of each class for each client, int64 (K, C), from classes of these `sizes`."""
    as_coded = config.partition_form == "code"
    least = config.min_examples
    if config.partition == "dirichlet":
        dirichlet = label_skew.balanced_dirichlet if as_coded else label_skew.dirichlet
        return dirichlet(sizes, clients, config.alpha, least, rng)
    if config.partition == "dirichlet-by-client":
        return label_skew.dirichlet_by_client(sizes, clients, config.alpha, rng)
    if config.partition == "multi-dirichlet":
        return label_skew.multi_dirichlet(sizes, clients, config.group_alphas, least, rng, balanced=as_coded)
    examples = config.client_examples or int(sizes.sum()) // clients
    table = label_skew.psi_lda(sizes, clients, config.psi, examples, rng)
    _require_examples(table.sum(axis=1), config, "Raise 'client-examples', or lower 'clients' or 'min-examples'.")
    return table


class Divided(NamedTuple):
    """Examples of the clients, and of both sets of the server: sorted and disjoint int64 arrays, together all n."""

    clients: Ints
    surrogate: Ints
    validation: Ints


def divide(config: PartitionConfig, labels: NDArray[Any], seed: int) -> Divided:
    """Divide the examples between the clients and the sets of the server, which are stratified by `strata`.

    Raises ConfigError if no example would be left for the clients, or none would be in the validation set.

    Parameters
    ----------
    config : number of examples of the surrogate set, and share of the validation set
    labels : targets of the training examples, int64 (n,), or float32 (n, L) or (n,)
    seed : seed of the run
    """
    total, fraction = len(labels), config.validation_fraction
    wanted = config.surrogate_examples
    if wanted >= total:
        raise ConfigError(
            f"The 'surrogate-examples' parameter must be below the {total} training examples. Got {wanted}."
        )
    # Round 0 of this purpose draws the split, round 1 the clients' test parts.
    left, kept = holdout(np.arange(total), labels, wanted / total, stream(seed, Purpose.PARTITION, 2))
    clients, validation = holdout(left, labels, fraction, stream(seed, Purpose.PARTITION, 3))
    if fraction and not validation.size:
        raise ConfigError(f"Raise 'validation-fraction': {fraction:g} of {left.size} training examples is none.")
    return Divided(clients, kept, validation)


def _require_examples(held: Ints, config: PartitionConfig, advice: str) -> None:
    if held.min() < config.min_examples:
        what = f"'missing-classes' {config.missing_classes}"
        if config.partition == "psi-lda":
            what = f"'psi' {config.psi:g}"
        raise ConfigError(
            f"With {what} and {held.size} clients, client {held.argmin()} would have fewer than {config.min_examples} "
            f"examples. {advice}"
        )


def strata(labels: NDArray[Any]) -> Ints:
    """Strata of a split by class: the class of each example, as an int64 array of shape (n,).

    For class labels it is the label itself. For float32 zeros and ones (n, L) it is the first label that is 1, or L if
    all are 0 (ISP, Sec. 4.1, does not say how a Dirichlet split handles several labels). For other float32 values, and
    for tokens (n, T), all examples have the same stratum.
    """
    if _without_classes(labels):
        return np.zeros(len(labels), np.int64)
    if labels.ndim == 2:
        first: Ints = np.where(labels.any(axis=1), labels.argmax(axis=1), labels.shape[1])
        return first
    return labels


def holdout(
    indices: Ints, labels: NDArray[Any], fraction: float, rng: np.random.Generator, *, class_examples: int = 1
) -> tuple[Ints, Ints]:
    """Hold out a test part of one client's examples, stratified by `strata`.

    The test part has `fraction` of the examples (rounded half up), divided among the strata in proportion to their size
    (Sainte-Lague). The training part keeps at least one example, and all examples of a stratum with fewer than
    `class_examples` (ISP, App. A, with 4). The fraction applies to the other strata.

    Returns the indices of the training part and of the test part, each sorted; together they are `indices`.

    Parameters
    ----------
    indices : the client's examples, int64 (k,), k >= 1
    labels : targets of the whole data set, which `indices` index, int64 (n,), or float32 (n, L) or (n,)
    fraction : share of the examples in the test part, in [0, 1)
    rng : draws the examples of the test part
    class_examples : smallest number of examples of a stratum from which the test part takes some
    """
    shuffled = rng.permutation(indices)
    classes = strata(labels[shuffled])
    by_class = np.argsort(classes, kind="stable")
    _, starts, sizes = np.unique(classes[by_class], return_index=True, return_counts=True)
    rank = np.empty(len(indices))
    rank[by_class] = (np.arange(len(indices)) - np.repeat(starts, sizes) + 0.5) / np.repeat(sizes, sizes)
    kept = np.repeat(sizes < class_examples, sizes)
    rank[by_class[kept]] = np.inf
    tested = min(int(fraction * (len(indices) - kept.sum()) + 0.5), len(indices) - 1)
    order = np.argsort(rank, kind="stable")
    return np.sort(shuffled[order[tested:]]), np.sort(shuffled[order[:tested]])


def label_counts(parts: Sequence[Ints], labels: NDArray[Any], classes: int) -> Ints:
    """Label counts: number of examples of each class, or with each label, in each part, int64 (parts, classes).

    Raises ConfigError if the targets are real numbers or tokens.
    """
    if _without_classes(labels):
        raise ConfigError(
            "The strategy needs the clients' label counts, but the targets of this data set are real numbers "
            "or tokens. Choose another strategy."
        )
    if labels.ndim == 2:
        return np.stack([labels[part].sum(axis=0, dtype=np.int64) for part in parts])
    return np.stack([np.bincount(labels[part], minlength=classes) for part in parts])


def _without_classes(labels: NDArray[Any]) -> bool:
    """True for real numbers (n,) and for tokens (n, T)."""
    return labels.ndim == (1 if np.issubdtype(labels.dtype, np.floating) else 2)


def _natural(owners: Ints | None, clients: int, least: int, rng: np.random.Generator) -> list[Ints]:
    """Natural partition: the examples of each owner, or of K drawn owners, in the order of the owners."""
    if owners is None:
        raise ConfigError(
            "The 'partition' parameter natural needs the owner of each training example, but this data set has no "
            "owners. Choose another partition, or a data set with owners."
        )
    held = np.bincount(owners)
    enough = np.flatnonzero(held >= least)
    if len(enough) < clients:
        raise ConfigError(
            f"With 'partition' natural, only {len(enough)} owners have the {least} training examples that "
            f"'min-examples' asks for, but there are {clients} clients. Lower 'clients' or 'min-examples'."
        )
    drawn = np.sort(rng.choice(enough, clients, replace=False))
    parts = np.split(np.argsort(owners, kind="stable"), np.cumsum(held)[:-1])
    return [parts[owner] for owner in drawn]


def _shards(labels: Ints, clients: int, least: int, rng: np.random.Generator) -> list[Ints]:
    """Shards: the examples, sorted by class, are cut into 2 K equal runs. Every client gets two of them (FedAvg)."""
    each = 2
    if len(labels) // (clients * each) * each < least:
        raise ConfigError(
            f"{clients} clients get shards of {len(labels) // (clients * each)} examples, but 'min-examples' is "
            f"{least}. Lower 'clients' or 'min-examples'."
        )
    order = rng.permutation(len(labels))
    shards = np.array_split(order[np.argsort(labels[order], kind="stable")], clients * each)
    dealt = rng.permutation(len(shards)).reshape(clients, each)
    return [np.sort(np.concatenate([shards[shard] for shard in hand])) for hand in dealt]


def _overlapping(labels: Ints, clients: int, missing: int, rng: np.random.Generator) -> list[Ints]:
    """Missing-classes split, as in the authors' code of "HeteRo-Select: Informativeness as the primary driver of client
    participation" (Sec. V): each client draws class size // K examples of each class that it has.

    Deviation from the text: clients draw independently, so they share some examples.
    """
    classes = len(np.bincount(labels))
    if missing >= classes:
        raise ConfigError(
            f"The 'missing-classes' parameter must be below the number of classes ({classes}). Got {missing}."
        )
    members = [np.flatnonzero(labels == label) for label in range(classes)]
    parts = []
    for _ in range(clients):
        held = np.sort(rng.permutation(classes)[missing:])
        drawn = [rng.choice(members[label], members[label].size // clients, replace=False) for label in held.tolist()]
        parts.append(np.sort(np.concatenate(drawn)))
    return parts


def _deal(table: Ints, labels: Ints, rng: np.random.Generator) -> list[Ints]:
    """Distribute the shuffled examples of each class: client k gets `table[k, c]` examples of class c."""
    dealt: list[list[Ints]] = [[] for _ in table]
    for label, counts in enumerate(table.T):
        members = rng.permutation(np.flatnonzero(labels == label))
        for hand, examples in zip(dealt, np.split(members[: counts.sum()], np.cumsum(counts)[:-1]), strict=True):
            hand.append(examples)
    return [np.sort(np.concatenate(hand)) for hand in dealt]


def by_owner(
    owners: NDArray[Any] | None, fraction: float, rng: np.random.Generator, source: str
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Training rows and test rows, sorted: the test part has all rows of owners that are drawn until it has `fraction`.

    Raises ConfigError without owners, or with one alone.
    """
    names, numbers = np.unique([] if owners is None else owners, return_inverse=True)
    if len(names) < 2:
        raise ConfigError(
            f"{source} has {len(names)} owners, but 'split' in 'data-arguments' needs at least two: name their column "
            'with owner="NAME".'
        )
    drawn = rng.permutation(len(names))
    reached = np.cumsum(np.bincount(numbers)[drawn])
    count = min(int(np.searchsorted(reached, fraction * len(numbers))) + 1, len(names) - 1)
    tested = np.isin(numbers, drawn[:count])
    return np.flatnonzero(~tested), np.flatnonzero(tested)


def by_time(times: NDArray[np.float64], fraction: float, source: str) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Training and test rows, sorted: the test part has the latest, at least a `fraction`, and no training row's time.

    Raises ConfigError if no row is earlier than these.
    """
    first = np.sort(times)[-int(np.ceil(fraction * len(times)))]
    tested = times >= first
    if tested.all():
        raise ConfigError(f"{source} has no earlier date than that of its test part. Lower 'test-fraction'.")
    return np.flatnonzero(~tested), np.flatnonzero(tested)
