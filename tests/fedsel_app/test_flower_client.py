"""Node configuration of a client: the path of its data, its own partition, and whether it shares label counts."""

import numpy as np
import pytest

from fedsel_app.config import ConfigError, DataConfig
from fedsel_app.data.dataset import load
from fedsel_app.messages.answers import EnrolAnswer
from fedsel_app.wiring.client_settings import settings_of_client
from fedsel_app.wiring.configuration import known_defaults
from tests.support.client_messages import node_enrolment
from tests.support.flower_state import task_identity

__all__ = ["task_identity"]
pytestmark = pytest.mark.usefixtures("task_identity")


def write(path, labels, **more):
    x = np.zeros((len(labels), 3), np.float32)
    y = np.array(labels)
    np.savez(path, x_train=x, y_train=y, x_test=x[:1], y_test=y[:1], **more)


def enrolment(node, run=None, *, counts=False):
    """Reply of the client that a SuperNode with `node` builds, for a run that sets `run`."""
    return node_enrolment(node, known_defaults() | {"data": "npz", "clients": 3, "cohort": 1} | run, counts=counts)


def enrolled(*node_and_run, **options):
    return EnrolAnswer.from_properties(enrolment(*node_and_run, **options), 3)


@pytest.fixture
def files(tmp_path):
    """The server's file with nine examples of three classes, and a client's own with five of two of them."""
    write(tmp_path / "server.npz", [0, 1, 2] * 3)
    write(tmp_path / "mine.npz", [0, 0, 1, 0, 0], classes=3)
    return tmp_path


def test_data_at_a_clients_own_path_belong_to_this_client(files):
    """As in Flower's documentation, a node's `data-path` has the data of its client."""
    run = {"data-path": str(files / "server.npz"), "partition": "iid"}
    own = {"partition-id": 1, "num-partitions": 3, "data-path": str(files / "mine.npz")}
    for node in (own, own | {"partition": "own"}):
        answer = enrolled(node, run, counts=True)
        assert (answer.client, answer.examples) == (1, 5)
        assert answer.counts(3).tolist() == [4, 1, 0]


def test_a_partition_in_the_node_configuration_says_that_all_clients_have_the_same_data(files):
    run = {"data-path": str(files / "absent.npz"), "partition": "dirichlet"}
    node = {"partition-id": 1, "num-partitions": 3, "partition": "iid"}
    assert enrolled(node | {"data-path": str(files / "server.npz")}, run).examples == 3
    # Five examples among three clients: 2, 2 and 1.
    assert enrolled(node | {"data-path": str(files / "mine.npz")}, run).examples == 2


def test_arguments_of_the_run_do_not_apply_to_a_clients_own_data(files):
    run = {"data": "hf", "data-arguments": 'label="y"'}
    own = {"partition-id": 0, "num-partitions": 3, "data": "npz", "data-path": str(files / "mine.npz")}
    assert enrolled(own, run).examples == 5
    assert enrolled(own | {"partition": "iid"}, run).examples == 2


def test_a_folder_of_datasets_is_a_clients_own(files):
    """Flower's `flwr-datasets create` leaves a folder like this one for each client."""
    datasets = pytest.importorskip("datasets", reason="the extra 'datasets' is not installed")
    mine = datasets.Dataset.from_dict({"x": [[1.0], [2.0], [3.0], [4.0], [5.0]], "label": [0, 1, 0, 1, 0]})
    mine.save_to_disk(str(files / "partition_2"))
    node = {"partition-id": 2, "num-partitions": 3, "data-path": str(files / "partition_2")}
    assert enrolled(node, {"data": "hf"}).examples == 5
    assert enrolled(node, {"data": "hf", "data-arguments": 'train="", test="test"'}).examples == 5


def test_a_run_may_say_that_every_client_has_its_own_data(files):
    run = {"partition": "own", "data-path": str(files / "absent.npz")}
    answer = enrolled({"partition-id": 2, "data-path": str(files / "mine.npz")}, run)
    assert (answer.client, answer.examples) == (2, 5)


def test_a_client_may_keep_its_label_counts_to_itself(files):
    node = {"partition-id": 0, "data-path": str(files / "mine.npz"), "partition": "own", "share-label-counts": False}
    assert EnrolAnswer.from_properties(enrolment(node, {}), 3).examples == 5
    with pytest.raises(ValueError, match="Client 0 sends no label counts"):
        enrolment(node, {}, counts=True)


def test_a_key_that_a_client_may_not_set_is_named(files):
    with pytest.raises(ConfigError, match=r"The node configuration has lr, path\. It may have partition-id"):
        enrolment({"partition-id": 0, "path": "x", "lr": 0.1}, {})


def test_a_client_without_a_number_is_refused(files):
    with pytest.raises(ConfigError, match="lacks 'partition-id'"):
        enrolment({"data-path": str(files / "mine.npz")}, {})


def test_a_file_that_lacks_classes_says_how_many_there_are(files):
    assert load(DataConfig(data="npz", data_path=str(files / "mine.npz")), 0).classes == 3
    write(files / "few.npz", [0, 1, 2], classes=2)
    write(files / "odd.npz", [0, 1, 2], classes=2.5)
    for name, said in (("few", "has the label 2"), ("odd", "a whole number from 1 to 100,000")):
        with pytest.raises(ConfigError, match=said):
            load(DataConfig(data="npz", data_path=str(files / f"{name}.npz")), 0)


def test_the_node_goes_before_the_run_and_a_server_names_no_path():
    run, node = known_defaults() | {"lr": 0.2}, {"num-partitions": 3, "threads": 2}
    found = settings_of_client(run, node | {"partition-id": 0}, trusted=True)
    assert (found.training.lr, found.execution.threads) == (0.2, 2)
    with pytest.raises(ConfigError, match="The server sets 'data-path'"):
        settings_of_client(run | {"data-path": "/etc"}, node, trusted=False)
