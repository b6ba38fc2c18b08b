"""Partitioners of flwr-datasets: each gives the same indices in fedsel as in flwr-datasets."""

import sys

import numpy as np
import pytest

from fedsel_app.config import ConfigError, DataConfig, PartitionConfig
from fedsel_app.data.client_parts import client_parts
from fedsel_app.data.dataset import load

datasets = pytest.importorskip("datasets", reason="the extra 'datasets' is not installed")
upstream = pytest.importorskip("flwr_datasets.partitioner", reason="the extra 'datasets' is not installed")
CLIENTS = 4
SIZES = [30, 40, 60, 70]
WEIGHTS = np.random.default_rng(3).lognormal(size=(4, 2)).tolist()
CASES = {
    "ContinuousPartitioner": 'partition_by="age", strictness=0.7',
    "DirichletPartitioner": "alpha=0.5, self_balancing=true",
    "DistributionPartitioner": f"distribution_array={WEIGHTS}, num_unique_labels_per_partition=2, "
    "preassigned_num_samples_per_label=2",
    "ExponentialPartitioner": "",
    "GroupedNaturalIdPartitioner": 'partition_by="writer", group_size=3, sort_unique_ids=true',
    "IdToSizeFncPartitioner": 'partition_id_to_size_fn="numpy:sqrt"',
    "IidPartitioner": "",
    "InnerDirichletPartitioner": f"partition_sizes={SIZES}, alpha=[0.1, 0.5, 1.0, 2.0]",
    "LinearPartitioner": "",
    "NaturalIdPartitioner": 'partition_by="writer"',
    "PathologicalPartitioner": 'num_classes_per_partition=2, class_assignment_mode="first-deterministic"',
    "ShardPartitioner": "num_shards_per_partition=3, shard_size=10, shuffle=false",
    "SizePartitioner": f"partition_sizes={SIZES}",
    "SquarePartitioner": "",
    "VerticalEvenPartitioner": "",
    "VerticalSizePartitioner": "partition_sizes=[1, 1, 2, 3]",
}
"""Partitioner -> its own arguments, without the seed."""


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """A saved data set of 200 examples with four classes, twelve writers and a number, in no order."""
    rng = np.random.default_rng(1)
    features = datasets.Features(
        {
            "x": datasets.List(datasets.Value("float32"), 3),
            "label": datasets.ClassLabel(names=["a", "b", "c", "d"]),
            "writer": datasets.Value("string"),
            "age": datasets.Value("float64"),
            "position": datasets.Value("int64"),
        }
    )
    splits = {
        name: datasets.Dataset.from_dict(
            {
                "x": rng.normal(size=(rows, 3)).astype("float32"),
                "label": rng.permutation(np.arange(rows) % 4),
                "writer": [f"writer {k}" for k in rng.integers(12, size=rows)],
                "age": rng.normal(40.0, 12.0, rows),
                "position": np.arange(rows),
            },
            features=features,
        )
        for name, rows in (("train", 200), ("test", 20))
    }
    folder = tmp_path_factory.mktemp("saved")
    datasets.DatasetDict(splits).save_to_disk(str(folder))
    return folder


def parts_of(saved, partition, arguments="", *, seed=7, data="shuffle=false", clients=CLIENTS, **more):
    dataset = load(DataConfig(data="hf", data_path=str(saved), data_arguments=data), seed)
    config = PartitionConfig(partition, partition_arguments=arguments, **more)
    return client_parts(config, dataset, clients, seed)


def as_upstream(partition, arguments, seed, dataset, clients=CLIENTS):
    """Positions in each partition, as a user of flwr-datasets gets them."""
    given = PartitionConfig(f"flwr:{partition}", partition_arguments=arguments).arguments
    kind = getattr(upstream, partition)
    takes = kind.__init__.__annotations__
    run = {"num_partitions": clients, "seed": seed, "partition_by": "label"}
    given = {name: value for name, value in run.items() if name in takes} | given
    if "distribution_array" in given:
        given["distribution_array"] = np.array(given["distribution_array"])
    if "partition_id_to_size_fn" in given:
        given["partition_id_to_size_fn"] = np.sqrt
    partitioner = kind(**given)
    partitioner.dataset = dataset
    return [partitioner.load_partition(k)["position"][:] for k in range(clients)]


@pytest.mark.filterwarnings("ignore:Specifying null_placement:FutureWarning")  # of Arrow, for upstream's sorting
@pytest.mark.parametrize("partition", [name for name in upstream.__all__ if name != "Partitioner"])
def test_every_partitioner_gives_the_same_parts_as_upstream(saved, partition):
    """A partitioner that divides the columns is refused, because no client could train the common model."""
    if partition.startswith("Vertical"):
        with pytest.raises(ConfigError, match=f"{partition} divides the columns"):
            parts_of(saved, f"flwr:{partition}", CASES[partition])
        return
    found = parts_of(saved, f"flwr:{partition}", CASES[partition])
    expected = as_upstream(partition, CASES[partition], 7, datasets.load_from_disk(str(saved))["train"])
    assert [part.tolist() for part in found] == expected
    assert all(part.dtype == np.int64 for part in found)


def test_arguments_override_the_runs_seed_and_the_label(saved):
    other = parts_of(saved, "flwr:dirichlet", "alpha=0.5, min_partition_size=1, seed=9")
    assert [part.tolist() for part in other] == as_upstream(
        "DirichletPartitioner", "alpha=0.5, min_partition_size=1", 9, datasets.load_from_disk(str(saved))["train"]
    )
    with pytest.warns(UserWarning, match="'writer 11', .* will NOT be used"):
        parts_of(saved, "flwr:pathological", 'partition_by="writer", num_classes_per_partition=3')


def test_a_data_set_of_no_columns_has_its_labels_and_owners(tmp_path):
    labels, owners = np.arange(60) % 3, np.arange(60) % 5
    x = np.zeros((60, 2), np.float32)
    np.savez(tmp_path / "a.npz", x_train=x, y_train=labels, x_test=x, y_test=labels, owners=owners)
    dataset = load(DataConfig(data="npz", data_path=str(tmp_path / "a.npz")), 0)
    for column, held in (("owner", 12), ("label", 20)):
        config = PartitionConfig("flwr:NaturalIdPartitioner", partition_arguments=f'partition_by="{column}"')
        parts = client_parts(config, dataset, 3, 0)
        values = {"owner": owners, "label": labels}[column]
        # Of five owners the first three are clients, as in upstream's partitions 0, 1 and 2.
        assert [set(values[part].tolist()) for part in parts] == [{0}, {1}, {2}]
        assert {len(part) for part in parts} == {held}


@pytest.mark.parametrize(
    ("partition", "arguments", "said"),
    [
        ("flwr:Dirichlets", "", r"'partition' parameter must be one of flwr:Contin.*Did you mean 'flwr:Dirichlet"),
        ("flwr:Partitioner", "", "must be one of"),
        ("flwr:DirichletPartitioner", "", "needs 'alpha' in 'partition-arguments'"),
        (
            "flwr:DirichletPartitioner",
            "alpha=0.5, beta=1, gamma=2",
            "has no argument beta, gamma, .* It takes num_partitions",
        ),
        ("flwr:DirichletPartitioner", "alpha=-1.0", "DirichletPartitioner failed: ValueError: Alpha values"),
        (
            "flwr:DirichletPartitioner",
            'alpha=1.0, partition_by="age group"',
            "one of label, writer, age, position. Got",
        ),
        ("flwr:SizePartitioner", "partition_sizes=[100, 100]", "makes 2 partitions, but there are 4 clients. Set"),
        ("flwr:IidPartitioner", "num_partitions=3", "makes 3 partitions"),
        (
            "flwr:IdToSizeFncPartitioner",
            'partition_id_to_size_fn="sqrt"',
            "'partition-arguments' .* package.module:name",
        ),
    ],
)
def test_a_partitioner_that_cannot_be_used_is_refused_by_name(saved, partition, arguments, said):
    with pytest.raises(ConfigError, match=said):
        parts_of(saved, partition, arguments)


def test_a_client_without_enough_examples_is_named(saved):
    with pytest.raises(ConfigError, match="client 0 would have 2 examples, but 'min-examples' is 20"):
        parts_of(saved, "flwr:ExponentialPartitioner", min_examples=20, clients=5)


def test_a_package_that_is_absent_is_named_with_its_extra(saved, monkeypatch):
    monkeypatch.setitem(sys.modules, "flwr_datasets", None)
    with pytest.raises(ConfigError, match=r"pip install 'fedsel\[datasets\]'"):
        parts_of(saved, "flwr:IidPartitioner")
