"""A run on a folder of `datasets`, dealt by a partitioner of flwr-datasets."""

import pytest
from sklearn.datasets import load_wine

from fedsel_app.wiring.configuration import resolve
from simulation.workbench.comparison.labels import client_label_counts
from tests.support.in_process import run_in_process

datasets = pytest.importorskip("datasets", reason="the extra 'datasets' is not installed")


@pytest.fixture(scope="module")
def wine(tmp_path_factory):
    """Folder of scikit-learn's wines, 133 to train and 45 to test."""
    features, cultivar = load_wine(return_X_y=True, as_frame=True)
    table = datasets.Dataset.from_pandas(features.assign(cultivar=cultivar))
    folder = tmp_path_factory.mktemp("data") / "wine"
    table.train_test_split(0.25, seed=1).save_to_disk(str(folder))
    return folder


def of_wine(folder, **more):
    settings = {
        "data": "hf",
        "data-path": str(folder),
        "data-arguments": 'label="cultivar"',
        "partition": "flwr:PathologicalPartitioner",
        "partition-arguments": 'num_classes_per_partition=2, class_assignment_mode="first-deterministic"',
    }
    return settings | {"strategy": "random", "clients": 6, "cohort": 3} | more


@pytest.mark.slow
def test_wine_is_learnt_to_the_last_bottle(wine, tmp_path):
    """Its features lie between 0.1 and 1,700: with one mean and deviation for all of them a model learns far less."""
    settings = of_wine(wine)
    _, rows = run_in_process(tmp_path / "run", rounds=20, **settings)
    assert rows[-1]["accuracy"] == 1.0
    config = resolve(settings)
    held = client_label_counts(config.data, config.partition, 6, config.run.seed)
    assert ((held > 0).sum(axis=1) == 2).all()
    assert held.sum() == 133
