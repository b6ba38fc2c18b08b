from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedsel_app.config import ConfigError, PartitionConfig
from fedsel_app.data.client_parts import client_parts
from fedsel_app.data.dataset import from_arrays
from fedsel_app.data.partition import divide, holdout, label_counts, split

CONFIGS = {
    "iid": PartitionConfig(partition="iid"),
    "dirichlet": PartitionConfig(partition="dirichlet", alpha=0.3),
    "dirichlet-by-client": PartitionConfig(partition="dirichlet-by-client", alpha=0.3),
    "multi-dirichlet": PartitionConfig(partition="multi-dirichlet", alphas="0.01,0.5,10"),
    "shards": PartitionConfig(partition="shards"),
}
BALANCED = np.arange(50_000) % 10
SKEWED = np.random.default_rng(5).choice(6, size=900, p=[0.4, 0.3, 0.15, 0.1, 0.04, 0.01])


def held(config, labels, clients, seed=1):
    return label_counts(split(config, labels, clients, seed), labels, int(labels.max()) + 1)


@pytest.mark.parametrize("name", CONFIGS)
@pytest.mark.parametrize("clients", [3, 9, 60])
def test_parts_are_sorted_disjoint_non_empty_and_cover(name, clients):
    parts = split(CONFIGS[name], SKEWED, clients, seed=9)
    together = np.concatenate(parts)
    assert len(parts) == clients
    assert all(part.dtype == np.int64 and len(part) >= 1 and (np.diff(part) > 0).all() for part in parts)
    assert len(set(together.tolist())) == len(together)
    assert len(together) == 900


@pytest.mark.parametrize("name", CONFIGS)
def test_the_seed_alone_decides(name):
    first, again, other = (split(CONFIGS[name], SKEWED, 9, seed) for seed in (3, 3, 4))
    assert all(np.array_equal(a, b) for a, b in zip(first, again, strict=True))
    assert not all(np.array_equal(a, b) for a, b in zip(first, other, strict=True))


@pytest.mark.parametrize("name", sorted(CONFIGS.keys() - {"iid"}))
def test_skewed_splits_read_only_the_labels_not_the_examples_order(name):
    """Another order of the same examples does not change any client's label counts."""
    moved = np.random.default_rng(0).permutation(SKEWED)
    assert np.array_equal(held(CONFIGS[name], SKEWED, 9), held(CONFIGS[name], moved, 9))


def test_dirichlet_proportions_have_the_concentration_asked_for():
    """The sum of squared shares of Dirichlet(alpha) over K clients has mean (1 + alpha) / (1 + K alpha)."""
    squares = [np.square(held(PartitionConfig(alpha=0.5), BALANCED, 10, seed) / 5000).sum(axis=0) for seed in range(40)]
    assert np.mean(squares) == pytest.approx(1.5 / 6, rel=0.05)


def by_client(alpha):
    return PartitionConfig(partition="dirichlet-by-client", alpha=alpha)


def test_dirichlet_by_client_gives_all_clients_equally_many_and_hands_out_every_example():
    """ISP's CIFAR-10: 50,000 examples, 100 clients, alpha = 0.1. By class, sizes differ widely."""
    counts = held(by_client(0.1), BALANCED, 100)
    assert counts.sum(axis=1).tolist() == [500] * 100
    assert counts.sum(axis=0).tolist() == [5000] * 10
    assert sorted(held(by_client(0.1), SKEWED, 7).sum(axis=1)) == [128] * 3 + [129] * 4  # 900 = 3 * 128 + 4 * 129
    assert np.ptp(held(PartitionConfig(alpha=0.1), BALANCED, 100).sum(axis=1)) > 1000


def test_dirichlet_by_client_draws_mixes_of_the_concentration_asked_for():
    """Of 10 draws from q ~ Beta(alpha p, alpha (1 - p)), the number of class 1 has the variance
    10 p (1 - p) (1 + 9 / (alpha + 1)): 13.75 for p = 1/2 and alpha = 1, and 10.3125 for p = 1/4."""
    for share, variance in ((0.5, 13.75), (0.25, 10.3125)):
        labels = np.repeat([0, 1], [int(40_000 * (1 - share)), int(40_000 * share)])
        counts = held(by_client(1.0), labels, 4000)[:, 1]
        assert counts.mean() == 10 * share
        assert counts.var() == pytest.approx(variance, rel=0.05)


def test_dirichlet_keeps_every_client_at_min_examples():
    config = PartitionConfig(alpha=0.01, min_examples=8)
    parts = split(config, np.arange(1000) % 10, 100, seed=2)
    assert min(len(part) for part in parts) >= 8
    assert len(set(np.concatenate(parts).tolist())) == 1000
    exact = split(replace(config, min_examples=10), np.arange(1000) % 10, 100, seed=2)
    assert {len(part) for part in exact} == {10}


def test_each_group_has_its_share_of_every_class_and_its_own_concentration():
    """Squared shares of Dirichlet(alpha) over 10 clients have the mean (1 + alpha) / (1 + 10 alpha)."""
    config = PartitionConfig(partition="multi-dirichlet", alphas="0.5,100,2")
    groups = np.stack([held(config, BALANCED, 30, seed).reshape(3, 10, 10) for seed in range(40)])
    shares = groups.sum(axis=2)
    assert (shares.sum(axis=1) == 5000).all()
    assert shares.min() >= 1666
    assert shares.max() <= 1667
    squares = np.square(groups / shares[:, :, None]).sum(axis=2).mean(axis=(0, 2))
    assert squares == pytest.approx([1.5 / 6, 101 / 1001, 3 / 21], rel=0.05)
    assert np.array_equal(held(config, SKEWED, 30).reshape(3, -1).sum(axis=1), [300, 300, 300])


@pytest.mark.parametrize(
    ("config", "clients", "named"),
    [
        (PartitionConfig(partition="multi-dirichlet", alphas="1,2,3"), 8, "'alphas'.*'clients'.*multiple of 3.*Got 8"),
        (PartitionConfig(min_examples=5), 13, "60 training examples.*13 clients.*'min-examples' 5"),
        (PartitionConfig(partition="missing-classes"), 5, r"'missing-classes'.*below.*\(6\). Got 40"),
        (PartitionConfig(partition="missing-classes", missing_classes=5, min_examples=8), 7, "'missing-classes' 5"),
    ],
)
def test_impossible_splits_are_refused(config, clients, named):
    with pytest.raises(ConfigError, match=named):
        split(config, np.arange(60) % 6, clients, seed=0)


@given(
    st.lists(st.integers(0, 4), min_size=1, max_size=80),
    st.floats(0.0, 1.0, exclude_max=True),
    st.integers(0, 99),
)
def test_holdout_partitions_the_clients_examples(labels, fraction, seed):
    everyone = np.array([7] * 5 + labels)
    indices = np.arange(5, len(everyone))
    train, test = holdout(indices, everyone, fraction, np.random.default_rng(seed))
    assert sorted([*train, *test]) == indices.tolist()
    assert len(train) >= 1
    assert abs(len(test) - fraction * len(indices)) <= 0.5 or len(train) == 1


def test_holdout_is_stratified_and_random():
    labels = np.repeat([0, 1, 2], [50, 20, 5])
    tests = [holdout(np.arange(75), labels, 0.2, np.random.default_rng(seed))[1] for seed in (0, 1)]
    assert [np.bincount(labels[test]).tolist() for test in tests] == [[10, 4, 1]] * 2
    assert not np.array_equal(*tests)
    train, test = holdout(np.arange(75), labels, 0.0, np.random.default_rng(0))
    assert (len(train), len(test)) == (75, 0)


def test_a_class_with_fewer_than_four_examples_stays_in_the_training_part():
    """ISP, App. A: 3 of class 1 and 2 of class 3 are kept; of the other 20 + 15 a fifth, 4 and 3, is tested."""
    labels = np.repeat([0, 1, 2, 3], [20, 3, 15, 2])
    for seed in range(20):
        train, test = holdout(np.arange(40), labels, 0.2, np.random.default_rng(seed), class_examples=4)
        assert np.bincount(labels[test], minlength=4).tolist() == [4, 0, 3, 0]
        assert sorted([*train, *test]) == list(range(40))
    train, test = holdout(np.arange(20, 23), labels, 0.2, np.random.default_rng(0), class_examples=4)
    assert (train.tolist(), test.tolist()) == ([20, 21, 22], [])
    exactly_four = holdout(np.arange(4), np.zeros(4, np.int64), 0.25, np.random.default_rng(0), class_examples=4)
    assert [part.size for part in exactly_four] == [3, 1]


SETS = [("surrogate", {"surrogate_examples": 40}), ("validation", {"validation_fraction": 0.1})]


@pytest.mark.parametrize(("name", "setting"), SETS)
@pytest.mark.parametrize("kind", ["iid", "dirichlet", "shards", "natural"])
def test_examples_of_the_server_go_to_no_client(kind, name, setting):
    labels = np.repeat(np.arange(5), [100, 100, 100, 60, 40])
    owners = np.tile(np.arange(4), 100)
    config = PartitionConfig(partition=kind, **setting)
    kept, server = divide(config, labels, 3).clients, getattr(divide(config, labels, 3), name)
    # A tenth of each class.
    assert np.bincount(labels[server]).tolist() == [10, 10, 10, 6, 4]
    assert sorted([*kept, *server]) == list(range(400))
    x = np.zeros((400, 1))
    arrays = {"x_train": x, "y_train": labels, "x_test": x, "y_test": labels, "owners": owners}
    dataset = from_arrays(arrays, "The test's data")
    parts = client_parts(config, dataset, 4, 3)
    dealt = np.concatenate(parts)
    assert np.intersect1d(dealt, server).size == 0
    assert len(set(dealt.tolist())) == dealt.size == 360
    if kind == "natural":
        assert [set(owners[part].tolist()) for part in parts] == [{0}, {1}, {2}, {3}]
    assert all((np.diff(part) > 0).all() for part in parts)
    assert not np.array_equal(server, getattr(divide(config, labels, 4), name))


def test_both_sets_of_the_server_are_disjoint():
    labels = np.repeat(np.arange(2), 200)
    divided = divide(PartitionConfig(surrogate_examples=40, validation_fraction=0.25), labels, 3)
    assert sorted(np.concatenate(divided)) == list(range(400))
    assert [part.size for part in divided] == [270, 40, 90]
    for config, said in (
        (PartitionConfig(surrogate_examples=400), "'surrogate-examples' parameter must be below the 400"),
        (PartitionConfig(validation_fraction=0.001), "Raise 'validation-fraction': 0.001 of 400 training examples"),
    ):
        with pytest.raises(ConfigError, match=said):
            divide(config, labels, 3)


@pytest.mark.parametrize(
    ("owners", "clients", "named"),
    [
        (None, 2, "natural needs the owner of each training example.*Choose another partition"),
        ([0, 0, 1, 1], 3, "only 2 owners have the 1 training examples.*Lower 'clients' or 'min-examples'"),
    ],
)
def test_natural_refuses_what_does_not_fit(owners, clients, named):
    given = None if owners is None else np.array(owners)
    with pytest.raises(ConfigError, match=named):
        split(PartitionConfig(partition="natural"), np.zeros(4, np.int64), clients, 1, given)
