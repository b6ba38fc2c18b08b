import pickle
import struct
from pathlib import Path

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits

from fedsel_app.caches import forget
from fedsel_app.config import ConfigError, DataConfig
from fedsel_app.data.dataset import Dataset, from_arrays, load
from fedsel_app.data.sources.published import read_digits


def arrays(**changed):
    rng = np.random.default_rng(0)
    made = {
        "x_train": rng.integers(256, size=(6, 4, 5), dtype=np.uint8),
        "y_train": np.array([0, 1, 2, 0, 1, 2]),
        "x_test": rng.integers(256, size=(3, 4, 5), dtype=np.uint8),
        "y_test": np.array([0, 1, 3], dtype=np.uint8),
    }
    return made | changed


def as_dict(config):
    return arrays()


def as_dataset(config):
    return from_arrays(arrays(), "mine")


def as_list(config):
    return [1]


def write_npz(folder, made):
    path = folder / "set.npz"
    np.savez(path, **made)
    return DataConfig(data="npz", data_path=str(path))


def write_idx(path, values):
    """The idx format: two zero bytes, 0x08 for unsigned bytes, the number of axes, big-endian lengths, bytes."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(
        struct.pack(f">BBBB{values.ndim}I", 0, 0, 8, values.ndim, *values.shape) + values.astype(np.uint8).tobytes()
    )


def test_a_part_of_the_training_examples_has_the_classes_in_their_proportions():
    whole, part, other = (load(DataConfig(train_examples=count), seed) for count, seed in ((0, 1), (200, 1), (200, 2)))
    assert part.x_train.shape == (200, 1, 8, 8)
    assert not np.array_equal(part.x_train, other.x_train)
    shares = np.bincount(whole.y_train) * 200 / len(whole.y_train)
    assert np.abs(np.bincount(part.y_train) - shares).max() < 1
    assert {x.tobytes() for x in part.x_train} <= {x.tobytes() for x in whole.x_train}
    assert (part.mean, len(part.y_test)) == (whole.mean, len(whole.y_test))
    with pytest.raises(ConfigError, match="'train-examples' parameter must be at most the 1438 training examples"):
        load(DataConfig(train_examples=1439), 1)


@pytest.mark.parametrize("kind", [np.int16, np.uint16, np.uint64])
def test_whole_numbers_of_three_axes_are_pictures_and_those_of_two_are_tokens(kind):
    rng = np.random.default_rng(6)
    x, y = rng.integers(0, 900, (20, 4, 3)).astype(kind), np.arange(20) % 2
    given = {"x_train": x, "y_train": y, "x_test": x, "y_test": y}
    made = from_arrays(given, "It")
    assert (made.x_train.dtype, made.mean.shape) == (np.float32, (4,))
    assert np.array_equal(made.x_train, x)
    if kind != np.uint64:
        assert from_arrays(given | {"x_train": x[:, 0], "x_test": x[:, 0]}, "It").x_train.dtype == np.int64


def test_digits():
    made = load(DataConfig(), seed=1)
    assert made.sample_shape == (1, 8, 8)
    assert made.classes == 10
    assert (len(made.x_train), len(made.x_test)) == (1438, 359)  # 1797 examples, 359.4 of them held out
    assert made.x_train.dtype == np.uint8
    assert made.y_train.dtype == made.y_test.dtype == np.int64
    assert made.x_train.max() == 255
    every = np.bincount(np.concatenate([made.y_train, made.y_test]))
    assert np.abs(np.bincount(made.y_test) - 0.2 * every).max() <= 1
    assert load(DataConfig(), seed=1) is made
    assert not np.array_equal(load(DataConfig(), seed=2).x_test, made.x_test)


def test_digits_are_those_of_scikit_learn():
    bunch = load_digits()
    images, labels = read_digits()
    np.testing.assert_array_equal(images, np.rint(bunch.images * 255 / 16))
    np.testing.assert_array_equal(labels, bunch.target)


def test_npz_images_in_each_layout_become_channels_first(tmp_path):
    images = np.random.default_rng(1).integers(256, size=(6, 3, 4, 5), dtype=np.uint8)
    first = load(write_npz(tmp_path, arrays(x_train=images, x_test=images[:3])), 0)
    (tmp_path / "last").mkdir()
    last_images = images.transpose(0, 2, 3, 1)
    last = load(write_npz(tmp_path / "last", arrays(x_train=last_images, x_test=last_images[:3])), 0)
    for made in (first, last):
        assert np.array_equal(made.x_train, images)
        assert made.sample_shape == (3, 4, 5)
        assert made.classes == 4  # the largest label, 3, is in the test set only
    (tmp_path / "grey").mkdir()
    grey = load(write_npz(tmp_path / "grey", arrays()), 0)
    assert np.array_equal(grey.x_train[:, 0], arrays()["x_train"])
    assert grey.y_test.dtype == np.int64


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"y_train": np.array([0, 1])}, "6 samples in x_train and 2 labels in y_train"),
        ({"x_test": np.zeros((0, 4, 5), np.uint8)}, "0 samples in x_test and 3 labels in y_test.*at least 1"),
        ({"y_test": np.array([0, -1, 2])}, "negative label -1 in y_test"),
        ({"y_test": np.array([0.0, 1.0, 2.0])}, "y_test of type float64.*whole numbers"),
        ({"x_train": np.full((6, 2), 1e300)}, "x_train that are not finite as float32"),
        ({"task": "regression", "y_train": np.full(6, 1j), "y_test": np.ones(3)}, "y_train of type complex128"),
        ({"x_train": np.zeros((6, 20), np.uint8)}, r"x_train of type uint8 and shape \(6, 20\)"),
        ({"x_test": np.zeros((3, 5, 5), np.uint8)}, r"shape \(1, 4, 5\).*\(1, 5, 5\)"),
        ({"x_test": np.array([object()] * 3)}, "cannot be read as an .npz file of plain arrays: it contains Python"),
        ({"owners": np.array([0, 1])}, "6 training samples and 2 owners"),
        ({"owners": np.full(6, 0.5)}, "owners of type float64 .* texts or whole numbers"),
    ],
)
def test_npz_files_that_are_no_data_set_are_refused_by_name(tmp_path, changed, said):
    config = write_npz(tmp_path, arrays(**changed))
    with pytest.raises(ConfigError, match=said) as refusal:
        load(config, 0)
    assert str(tmp_path / "set.npz") in str(refusal.value)


@pytest.mark.parametrize(
    ("samples", "said"),
    [
        ([[1.0], [1.0, 2.0]], "x_train of which NumPy makes no array: ValueError"),
        (torch.ones(2, 1, requires_grad=True), "x_train of which NumPy makes no array: RuntimeError"),
        (np.ma.masked_array([[1.0], [2.0]], [[True], [False]]), "masked values in x_train"),
        ({"a": np.full((2, 1), 2**63, np.uint64)}, r"x_train\['a'\] of type uint64"),
    ],
)
def test_what_a_function_returns_is_refused_by_name(samples, said):
    with pytest.raises(ConfigError, match=said):
        from_arrays({"x_train": samples, "y_train": [0, 1]}, "x")


def test_npz_files_that_are_no_npz_files_are_refused_by_name(tmp_path):
    made = arrays()
    del made["x_test"], made["y_train"]
    with pytest.raises(ConfigError, match=r"set\.npz' lacks y_train, x_test"):
        load(write_npz(tmp_path, made), 0)
    (tmp_path / "folder.npz").mkdir()
    for name, said in (
        ("absent", "does not exist"),
        ("folder", "is a folder. Set .data-path. to an .npz file"),
    ):
        with pytest.raises(ConfigError, match=rf"{name}\.npz' {said}"):
            load(DataConfig(data="npz", data_path=str(tmp_path / f"{name}.npz")), 0)
    np.save(tmp_path / "one.npy", made["x_train"])
    whole = (tmp_path / "set.npz").read_bytes()
    broken = {"empty": b"", "cut": whole[: len(whole) // 2], "one": (tmp_path / "one.npy").read_bytes()}
    for name, content in broken.items():
        (tmp_path / name).write_bytes(content)
        with pytest.raises(ConfigError, match=f"{name}' cannot be read as an .npz file"):
            load(DataConfig(data="npz", data_path=str(tmp_path / name)), 0)


def test_a_users_function():
    made = load(DataConfig(data=f"{__name__}:as_dict"), 0)
    assert isinstance(made, Dataset)
    assert made.sample_shape == (1, 4, 5)
    assert np.array_equal(load(DataConfig(data=f"{__name__}:as_dataset"), 0).x_test, made.x_test)
    with pytest.raises(ConfigError, match=r"as_list' must return a Dataset, or a dict or tuple of.*Got list"):
        load(DataConfig(data=f"{__name__}:as_list"), 0)
    with pytest.raises(ConfigError, match="'data' parameter names 'absent'"):
        load(DataConfig(data=f"{__name__}:absent"), 0)


@pytest.mark.parametrize(("name", "folder"), [("mnist", "MNIST"), ("fashion-mnist", "FashionMNIST")])
def test_mnist_files(tmp_path, name, folder):
    rng = np.random.default_rng(2)
    images, labels = rng.integers(256, size=(7, 28, 28), dtype=np.uint8), np.array([0, 1, 2, 3, 4, 5, 9])
    for part, count in (("train", 7), ("t10k", 2)):
        write_idx(tmp_path / folder / "raw" / f"{part}-images-idx3-ubyte", images[:count])
        write_idx(tmp_path / folder / "raw" / f"{part}-labels-idx1-ubyte", labels[:count])
    made = load(DataConfig(data=name, data_path=str(tmp_path)), 0)
    assert np.array_equal(made.x_train, images[:, None])
    assert np.array_equal(made.y_train, labels)
    assert len(made.x_test) == 2
    assert made.classes == 10
    (tmp_path / folder / "raw" / "train-images-idx3-ubyte").write_bytes(b"\0\0\x08\x03")
    forget()
    with pytest.raises(ConfigError, match="damaged"):
        load(DataConfig(data=name, data_path=str(tmp_path)), 0)


@pytest.mark.parametrize("name", ["cifar10", "cifar100"])
def test_cifar_files(tmp_path, monkeypatch, name):
    """Miniature archives in the python layout: rows of 3072 bytes, red plane first; only the md5 check is left out."""
    from torchvision import datasets

    kind = {"cifar10": datasets.CIFAR10, "cifar100": datasets.CIFAR100}[name]
    monkeypatch.setattr("torchvision.datasets.cifar.check_integrity", lambda path, md5=None: Path(path).is_file())
    folder = tmp_path / kind.base_folder
    folder.mkdir()
    key = "labels" if name == "cifar10" else "fine_labels"
    rng, rows, labels = np.random.default_rng(3), [], []
    for file, _ in kind.train_list + kind.test_list:
        rows.append(rng.integers(256, size=(2, 3072), dtype=np.uint8))
        labels.append([0, len(rows)])
        (folder / file).write_bytes(pickle.dumps({"data": rows[-1], key: labels[-1]}))
    (folder / kind.meta["filename"]).write_bytes(pickle.dumps({kind.meta["key"]: ["a", "b"]}))

    made = load(DataConfig(data=name, data_path=str(tmp_path)), 0)
    assert np.array_equal(made.x_train, np.concatenate(rows[:-1]).reshape(-1, 3, 32, 32))
    assert np.array_equal(made.x_test, rows[-1].reshape(-1, 3, 32, 32))
    assert made.y_train.tolist() == [label for pair in labels[:-1] for label in pair]


def test_an_absent_torchvision_set_names_the_folder_and_the_remedy(tmp_path, monkeypatch):
    with pytest.raises(ConfigError, match=r"'mnist' is absent from '.*nowhere'.*download=true.*MNIST/raw"):
        load(DataConfig(data="mnist", data_path=str(tmp_path / "nowhere")), 0)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError, match=f"absent from '{tmp_path / 'data'}'"):
        load(DataConfig(data="cifar10"), 0)


def test_a_failed_download_gives_the_reason(tmp_path, monkeypatch):
    def offline(*args, **kwargs):
        raise OSError("no route to host")

    monkeypatch.setattr("torchvision.datasets.cifar.download_and_extract_archive", offline)
    with pytest.raises(ConfigError, match=r"'cifar10' could not be downloaded to '.*': no route to host"):
        load(DataConfig(data="cifar10", data_path=str(tmp_path), download=True), 0)
