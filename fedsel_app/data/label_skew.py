"""Label skew: tables of each client's number of examples of each class, for splits that are skewed by class.

Each function takes the number of examples of each class, `sizes`, int64 (C,), and returns int64 (clients, C).

References
----------
dirichlet: Yurochkin, Agarwal, Ghosh, Greenewald, Hoang and Khazaeni, "Bayesian Nonparametric Federated Learning of
Neural Networks", ICML 2019, arXiv:1905.12022. dirichlet-by-client: Hsu, Qi and Brown, "Measuring the Effects of
Non-Identical Data Distribution for Federated Visual Classification", 2019, arXiv:1909.06335. psi-LDA: the
FedCG split, as used in "HeteRo-Select: Informativeness as the primary driver of client participation", Sec. V.
multi-dirichlet: Chen and Vikalo, "Heterogeneity-Guided Client Sampling", arXiv:2310.00198, as Terraform describes it
(Sec. 7).
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from fedsel_app.config import ConfigError

Ints = NDArray[np.int64]

DIRICHLET_DRAWS = 100


def dirichlet(sizes: Ints, clients: int, alpha: float, least: int, rng: np.random.Generator) -> Ints:
    """Dirichlet split: each class is shared in Dirichlet(alpha) proportions.

    If a client has fewer than `least` examples, the table is drawn again, up to 100 times. After that the clients with
    the most examples give some to those with the fewest.
    """
    for _ in range(DIRICHLET_DRAWS):
        shares = rng.dirichlet(np.full(clients, alpha), size=len(sizes))
        ends = (np.cumsum(shares, axis=1) * sizes[:, None]).astype(np.int64)
        ends[:, -1] = sizes
        table = np.diff(np.minimum(ends, sizes[:, None]), axis=1, prepend=0).T
        if table.sum(axis=1).min() >= least:
            return table
    held = table.sum(axis=1)
    while held.min() < least:
        giver = held.argmax()
        taker = held.argmin()
        label = table[giver].argmax()
        table[[giver, taker], label] += (-1, 1)
        held[[giver, taker]] += (-1, 1)
    return table


def dirichlet_by_client(sizes: Ints, clients: int, alpha: float, rng: np.random.Generator) -> Ints:
    """Dirichlet split by client: all have equally many examples, and each draws its own class mix q ~ Dir(alpha p).

    p are the shares of the classes in all examples. A client draws each example's class from its q, without
    replacement. If the clients want more of a class than there is, chance decides which of them get it; the others, and
    all later draws, take the remaining classes by q. The paper does not say what happens then. Sizes differ by one at
    most.
    """
    present = np.flatnonzero(sizes)
    mixes = np.zeros((clients, len(sizes)))
    mixes[:, present] = rng.dirichlet(alpha * sizes[present] / sizes.sum(), size=clients)
    left, table = sizes.copy(), np.zeros((clients, len(sizes)), np.int64)
    missing = sizes.sum() // clients + (np.arange(clients) < sizes.sum() % clients)
    while missing.any():
        shares = mixes * (left > 0)
        shares[shares.sum(axis=1) == 0] = left
        given = rng.multinomial(missing, shares / shares.sum(axis=1, keepdims=True))
        for label in np.flatnonzero(given.sum(axis=0) > left):
            given[:, label] = rng.multivariate_hypergeometric(given[:, label], left[label])
        table, left, missing = table + given, left - given.sum(axis=0), missing - given.sum(axis=1)
    return table


def balanced_dirichlet(sizes: Ints, clients: int, alpha: float, least: int, rng: np.random.Generator) -> Ints:
    """Balanced Dirichlet split: clients with fewer than n / K examples share a class in Dirichlet(alpha) proportions.

    This is the balance rule in the code of HiCS-FL (and of NIID-Bench): the proportions of the other clients become 0,
    and the rest are divided by their sum. If all proportions are then 0, which can happen with a small alpha, they are
    drawn again. The whole table is drawn again while a client has fewer than `least` examples, at most 100 times.
    """
    for _ in range(DIRICHLET_DRAWS):
        held, table = np.zeros(clients, np.int64), np.zeros((clients, len(sizes)), np.int64)
        for label, size in enumerate(sizes.tolist()):
            shares = np.zeros(clients)
            while not shares.sum():
                shares = rng.dirichlet(np.full(clients, alpha)) * (held < sizes.sum() / clients)
            ends = (np.cumsum(shares / shares.sum()) * size).astype(np.int64)
            ends[-1] = size
            table[:, label] = np.diff(np.minimum(ends, size), prepend=0)
            held += table[:, label]
        if held.min() >= least:
            return table
    raise ConfigError(
        f"In each of {DIRICHLET_DRAWS} balanced Dirichlet draws, a client had fewer than 'min-examples' ({least}). "
        "Lower 'min-examples', or raise 'alpha'."
    )


def multi_dirichlet(
    sizes: Ints, clients: int, alphas: Sequence[float], least: int, rng: np.random.Generator, *, balanced: bool = False
) -> Ints:
    """Multi-Dirichlet split: equal groups of clients get equal shares of every class.

    Each group splits its share in Dirichlet proportions with its own alpha.
    """
    groups = len(alphas)
    if clients % groups:
        raise ConfigError(
            f"The {groups} numbers in 'alphas' need 'clients' to be a multiple of {groups}. Got {clients} clients."
        )
    # The groups take the examples in turns, class after class.
    dealt = (np.cumsum(sizes) + np.arange(groups)[::-1, None]) // groups
    shares = np.diff(dealt, axis=1, prepend=0)
    split = balanced_dirichlet if balanced else dirichlet
    tables = [split(share, clients // groups, alpha, least, rng) for share, alpha in zip(shares, alphas, strict=True)]
    return np.concatenate(tables)


def psi_lda(sizes: Ints, clients: int, psi: float, examples: int, rng: np.random.Generator) -> Ints:
    """psi-LDA split, as in the authors' code: int(psi E) of E `examples` are of a random dominant class.

    The clients draw in order from shrinking pools, so later clients get fewer examples of a class that runs out. With
    psi = 0 each client lacks one class. Deviation from the text: there psi is a probability for each example, and 0
    means IID.
    """
    classes = len(sizes)
    left = sizes.copy()
    dominant = rng.integers(classes, size=clients)
    of_dominant = int(psi * examples)
    wanted = np.full((clients, classes), (examples - of_dominant) // max(classes - 1, 1))
    wanted[np.arange(clients), dominant] = of_dominant
    table = np.zeros((clients, classes), dtype=np.int64)
    for client in range(clients):
        table[client] = np.minimum(wanted[client], left)
        left -= table[client]
    return table
