"""Shards, owners drawn as clients, the papers' scenarios, and splits of targets that are not classes."""

import numpy as np
import pytest

from fedsel_app.config import ConfigError, PartitionConfig
from fedsel_app.data.partition import holdout, label_counts, split, strata

NATURAL = PartitionConfig(partition="natural")
# 2 labels: the first, the second, both, none.
MULTI = np.array([[1, 0], [0, 1], [1, 1], [0, 0]], np.float32)


def lists(parts):
    return [part.tolist() for part in parts]


def test_shards_by_hand():
    """Sorted by class, 7 examples make the shards aa, bb, cc, c: two for each client."""
    labels = np.array([2, 0, 1, 2, 0, 1, 2])
    for seed in range(9):
        parts = split(PartitionConfig(partition="shards"), labels, 2, seed)
        held = sorted(sorted(labels[part].tolist()) for part in parts)
        assert held in ([[0, 0, 1, 1], [2, 2, 2]], [[0, 0, 2], [1, 1, 2, 2]], [[0, 0, 2, 2], [1, 1, 2]])


@pytest.mark.parametrize(
    ("config", "clients", "said"),
    [
        (PartitionConfig(partition="shards"), 6, "6 clients get shards of 0 examples"),
        (PartitionConfig(partition="shards", min_examples=3), 3, "get shards of 1 examples, but 'min-examples' is 3"),
    ],
)
def test_shards_that_are_too_small_are_refused(config, clients, said):
    with pytest.raises(ConfigError, match=said):
        split(config, np.arange(10) % 2, clients, seed=0)


def test_of_more_owners_than_clients_the_seed_draws_some_with_enough_examples():
    owners = np.repeat([0, 1, 2, 3, 4], [3, 1, 4, 3, 5])
    labels = np.zeros(len(owners), np.int64)
    config = PartitionConfig(partition="natural", min_examples=2)
    drawn = set()
    for seed in range(40):
        parts = split(config, labels, 2, seed, owners)
        assert lists(parts) == lists(split(config, labels, 2, seed, owners))
        first, second = (int(owners[part[0]]) for part in parts)
        assert lists(parts) == [np.flatnonzero(owners == owner).tolist() for owner in (first, second)]
        drawn.add((first, second))
    # Owner 1 has a single example. All pairs of the others come up in 40 draws of 6 (miss: 6 * (5/6)^40 = 0.4%).
    assert drawn == {(0, 2), (0, 3), (0, 4), (2, 3), (2, 4), (3, 4)}


def test_multi_label_sets_split_by_each_examples_first_label():
    labels = MULTI[np.arange(400) % 4]
    config = PartitionConfig(partition="missing-classes", missing_classes=2)
    for part in split(config, labels, 3, seed=1):
        kinds = {tuple(row) for row in labels[part].tolist()}
        assert kinds in ({(1.0, 0.0), (1.0, 1.0)}, {(0.0, 1.0)}, {(0.0, 0.0)})
    assert label_counts([np.arange(4), np.arange(2)], MULTI, 2).tolist() == [[2, 2], [1, 1]]


def test_real_targets_split_only_by_owner_or_at_random():
    targets = np.linspace(-1.0, 1.0, 12, dtype=np.float32)
    assert [len(part) for part in split(PartitionConfig(partition="iid"), targets, 3, 1)] == [4, 4, 4]
    assert [len(part) for part in split(NATURAL, targets, 2, 1, np.arange(12) % 2)] == [6, 6]
    for name in ("dirichlet", "multi-dirichlet", "psi-lda", "missing-classes", "shards"):
        with pytest.raises(ConfigError, match=f"'partition' parameter {name} needs classes, but.*natural or iid"):
            split(PartitionConfig(partition=name), targets, 3, 1)
    with pytest.raises(ConfigError, match=r"label counts.*real numbers"):
        label_counts([np.arange(3)], targets, 1)


def test_holdout_of_real_targets_and_of_several_labels():
    rng = np.random.default_rng(1)
    train, test = holdout(np.arange(20, 30), rng.normal(size=40).astype(np.float32), 0.3, rng)
    assert len(test) == 3
    assert sorted([*train, *test]) == list(range(20, 30))
    labels = MULTI[np.arange(40) % 4]  # 10 of each row: strata of 20, 10 and 10
    _, test = holdout(np.arange(40), labels, 0.2, rng)
    assert np.bincount(strata(labels[test])).tolist() == [4, 2, 2]
