"""Splits in the form of the authors' code: pools that run out, overlapping draws, and the balance rule."""

import numpy as np
import pytest

from fedsel_app.config import ConfigError, PartitionConfig
from fedsel_app.data.label_skew import balanced_dirichlet, psi_lda
from fedsel_app.data.partition import label_counts, split


def balanced_labels(classes, each, seed=0):
    return np.random.default_rng(seed).permutation(np.repeat(np.arange(classes), each))


def as_coded(partition, **settings):
    return PartitionConfig(partition=partition, partition_form="code", **settings)


def test_psi_lda_on_cifar10_is_the_papers_federation():
    """psi = 0.4 of 500: 200 of the dominant class and 33 of each other, 497 in all, while no class has run out."""
    labels = balanced_labels(10, 5000)
    config = as_coded("psi-lda", psi=0.4, client_examples=500)
    for seed in range(5):
        parts = split(config, labels, 100, seed)
        counts = label_counts(parts, labels, 10)
        assert len(np.unique(np.concatenate(parts))) == sum(map(len, parts)), "a psi-lda example has one owner"
        assert (counts.sum(axis=1) <= 497).all()
        whole = counts[counts.sum(axis=1) == 497]
        assert len(whole) > 40
        assert (np.sort(whole, axis=1) == [*[33] * 9, 200]).all()
        # The clients want more than the 5,000 examples of a class that is dominant for many of them.
        assert (counts.sum(axis=0) <= 5000).all()


def test_psi_lda_uses_pools_up_in_the_order_of_the_clients():
    """Two classes of 10 and E = 8, psi = 0.5: each client wants 4 and 4, so the third client gets 2 and 2."""
    table = psi_lda(np.array([10, 10]), 4, 0.5, 8, np.random.default_rng(0))
    assert table.tolist() == [[4, 4], [4, 4], [2, 2], [0, 0]]


def test_psi_0_leaves_out_one_class_a_client():
    table = psi_lda(np.full(10, 10_000), 30, 0.0, 90, np.random.default_rng(0))
    assert (np.sort(table, axis=1) == [0, *[10] * 9]).all()
    assert len({int(row.argmin()) for row in table}) > 5, "the class is drawn at random"


def test_psi_lda_that_leaves_a_client_without_examples_is_refused():
    labels = balanced_labels(2, 10)
    with pytest.raises(ConfigError, match=r"With 'psi' 0\.5 and 4 clients, client 3 would have fewer than 1 examples"):
        split(as_coded("psi-lda", psi=0.5, client_examples=8), labels, 4, seed=0)


def test_missing_classes_draws_class_size_over_k_of_each_class_and_clients_overlap():
    """CIFAR-100, 40 of 100 classes missing, K = 100: 5 examples of each of 60 classes, 300 in all."""
    labels = balanced_labels(100, 500)
    parts = split(as_coded("missing-classes", missing_classes=40), labels, 100, seed=3)
    counts = label_counts(parts, labels, 100)
    assert set(np.unique(counts)) == {0, 5}
    assert ((counts > 0).sum(axis=1) == 60).all()
    assert all(len(np.unique(part)) == 300 for part in parts), "no client has an example twice"
    # 30,000 independent draws of 50,000 examples leave about exp(-0.6) of them without an owner.
    owned = len(np.unique(np.concatenate(parts))) / 50_000
    assert abs(owned - (1 - np.exp(-0.6))) < 0.02


def test_the_balance_rule_gives_the_groups_of_alpha_0001_one_class_each():
    """HiCS-FL's scenario on CIFAR-10: K = 50 in five groups; with alpha 0.001, 1,000 examples of exactly one class."""
    labels = balanced_labels(10, 5000)
    config = as_coded("multi-dirichlet", alphas="0.001,0.01,0.1,0.5,1", min_examples=1)
    parts = split(config, labels, 50, seed=1)
    counts = label_counts(parts, labels, 10)
    first = counts[:10]
    assert (first.sum(axis=1) == 1000).all()
    assert ((first > 0).sum(axis=1) == 1).all()
    assert counts.sum() == 50_000


def test_the_balance_rule_gives_no_more_to_a_client_with_its_share():
    """Replayed class by class: a client that already has n / K examples gets no example of the next class."""
    sizes = np.array([40, 30, 50, 20, 60])
    for seed in range(20):
        table = balanced_dirichlet(sizes, 4, 0.3, 0, np.random.default_rng(seed))
        assert (table.sum(axis=0) == sizes).all()
        held = np.zeros(4)
        for label in range(5):
            assert (table[held >= 50, label] <= 1).all(), "except for the rounding of the last cut"
            held += table[:, label]
