"""Data sets as plain arrays: the bundled digits, .npz files, torchvision's sets, a generated one, or a user's own."""

import math
import zipfile
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedsel_app import synthetic
from fedsel_app.config import ConfigError, Settings, setting
from fedsel_app.partition import holdout
from fedsel_app.plugins import load_object, unknown_name
from fedsel_app.seeds import Purpose, stream

KEYS = ("x_train", "y_train", "x_test", "y_test")

TORCHVISION = {
    "mnist": ("MNIST", "MNIST/raw/*-ubyte"),
    "fashion-mnist": ("FashionMNIST", "FashionMNIST/raw/*-ubyte"),
    "cifar10": ("CIFAR10", "cifar-10-batches-py/*"),
    "cifar100": ("CIFAR100", "cifar-100-python/*"),
}
"""Setting -> torchvision's class, and the files it reads below the folder."""


@dataclass(frozen=True)
class DataConfig(Settings):
    """Which data set, and what is done to its samples."""

    data: str = setting(
        "digits", "digits, npz, mnist, fashion-mnist, cifar10, cifar100, synthetic, or package.module:function"
    )
    data_path: str = setting("", "the .npz file, or the folder of a torchvision set (empty: data/ where you run)")
    download: bool = setting(False, "let torchvision download a set that is absent")
    normalize: bool = setting(True, "subtract the training set's mean and divide by its standard deviation")
    augment: str = setting(
        "none", "crop-flip: random crop after 4-pixel zero padding, and mirroring", choices=("none", "crop-flip")
    )
    test_fraction: float = setting(
        0.2,
        "digits: share of the examples in the test set; synthetic: test examples a training one",
        above=0.0,
        below=1.0,
    )
    synthetic_alpha: float = setting(1.0, "synthetic: how much the clients' true models differ", low=0.0)
    synthetic_beta: float = setting(1.0, "synthetic: how much the clients' inputs differ", low=0.0)
    synthetic_clients: int = setting(0, "synthetic: clients that it is generated for (0: `clients`)", low=0)
    holdout_fraction: float = setting(
        0.0, "share of each client's own examples kept as its own test part", low=0.0, below=1.0
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        known = ("digits", "npz", *TORCHVISION, "synthetic")
        if self.data not in known and ":" not in self.data:
            raise unknown_name("data", self.data, known)
        if self.data == "npz" and not self.data_path:
            raise ConfigError("The 'data' parameter npz needs the file's path in 'data-path'.")


@dataclass(frozen=True)
class Dataset:
    """A classification data set.

    Attributes
    ----------
    x_train, x_test : uint8 images of shape (n, C, H, W), or float32 features of shape (n, ...)
    y_train, y_test : int64 of shape (n,), in [0, classes)
    classes
        Number of classes.
    mean, std : float32 of shape (C,), or (1,) for flat features
        Of the training samples, images scaled to [0, 1]; a standard deviation of 0 is given as 1.
    owners : int64 of shape (n,), or None
        The client that each training example belongs to by nature, where there is one.
    """

    x_train: NDArray[Any]
    y_train: NDArray[np.int64]
    x_test: NDArray[Any]
    y_test: NDArray[np.int64]
    classes: int
    mean: NDArray[np.float32]
    std: NDArray[np.float32]
    owners: NDArray[np.int64] | None = None

    @property
    def sample_shape(self) -> tuple[int, ...]:
        """Shape of one sample."""
        return tuple(self.x_train.shape[1:])


@lru_cache(maxsize=2)
def load(config: DataConfig, seed: int) -> Dataset:
    """Load a data set, once per process. `seed` draws the test part of digits, and all of synthetic.

    Raises
    ------
    ConfigError
        Where the files are absent or unreadable, or the arrays are no classification data set.
    """
    if config.data == "digits":
        return _digits(config.test_fraction, seed)
    if config.data == "npz":
        return _npz(Path(config.data_path))
    if config.data in TORCHVISION:
        return _torchvision(config)
    if config.data == "synthetic":
        return _synthetic(config, seed)
    made = load_object(config.data, "data")(config)
    if isinstance(made, Dataset):
        return made
    if not isinstance(made, Mapping):
        raise ConfigError(
            f"The function '{config.data}' must return a Dataset or a dict of {', '.join(KEYS)}. "
            f"Got {type(made).__name__}."
        )
    return from_arrays(made, f"The function '{config.data}'")


def from_arrays(arrays: Mapping[str, Any], source: str) -> Dataset:
    """Check the arrays x_train, y_train, x_test and y_test and make a data set of them.

    Images are uint8 of shape (n, H, W), (n, H, W, C) or (n, C, H, W) (the channel axis is the shorter
    of the two), features are floats of shape (n, ...). Labels are integers from 0, one a sample; so are
    "owners", the client of each training sample, which may be there too.

    Raises
    ------
    ConfigError
        Whose message begins with `source`.
    """
    missing = [key for key in KEYS if key not in arrays]
    if missing:
        raise ConfigError(f"{source} lacks {', '.join(missing)}. It must have the keys {', '.join(KEYS)}.")
    x_train, x_test = (_samples(np.asarray(arrays[key]), key, source) for key in ("x_train", "x_test"))
    y_train, y_test = (_labels(np.asarray(arrays[key]), key, source) for key in ("y_train", "y_test"))
    for part, x, y in (("train", x_train, y_train), ("test", x_test, y_test)):
        if len(x) != len(y) or len(x) == 0:
            raise ConfigError(
                f"{source} has {len(x)} samples in x_{part} and {len(y)} labels in y_{part}. "
                "They must be equally many, and at least one."
            )
    if x_train.shape[1:] != x_test.shape[1:] or x_train.dtype != x_test.dtype:
        raise ConfigError(
            f"{source} has training samples of shape {x_train.shape[1:]} ({x_train.dtype}) and test samples of shape "
            f"{x_test.shape[1:]} ({x_test.dtype}). They must be the same."
        )
    owners = _labels(np.asarray(arrays["owners"]), "owners", source) if "owners" in arrays else None
    if owners is not None and len(owners) != len(y_train):
        raise ConfigError(
            f"{source} has {len(y_train)} training samples and {len(owners)} owners. They must be equally many."
        )
    mean, std = _moments(x_train)
    return Dataset(x_train, y_train, x_test, y_test, int(max(y_train.max(), y_test.max())) + 1, mean, std, owners)


def load_surrogate(path: Path, dataset: Dataset) -> Dataset:
    """The arrays x and y of an .npz file in place of all examples of `dataset`, normalised as that is.

    Raises
    ------
    ConfigError
        Where the file is absent or unreadable, or its samples or labels are not of the data set's kind.
    """
    source = f"The surrogate set '{path.resolve()}'"
    arrays = _read_npz(path, source, ("x", "y"), "surrogate-path")
    if len(arrays) < 2:
        raise ConfigError(f"{source} must have the keys x and y.")
    made = from_arrays({f"{key}_{part}": arrays[key] for key in arrays for part in ("train", "test")}, source)
    x, y = made.x_test, made.y_test
    if x.shape[1:] != dataset.sample_shape or x.dtype != dataset.x_train.dtype or made.classes > dataset.classes:
        raise ConfigError(
            f"{source} has samples of shape {x.shape[1:]} ({x.dtype}) and {made.classes} classes, the data set "
            f"{dataset.sample_shape} ({dataset.x_train.dtype}) and {dataset.classes}. They must be of one kind."
        )
    return replace(dataset, x_train=x, y_train=y, x_test=x, y_test=y, owners=None)


def _samples(x: NDArray[Any], key: str, source: str) -> NDArray[Any]:
    if x.dtype == np.uint8 and x.ndim == 3:
        return x[:, None]
    if x.dtype == np.uint8 and x.ndim == 4:
        return np.ascontiguousarray(np.moveaxis(x, -1, 1)) if x.shape[-1] < x.shape[1] else x
    if np.issubdtype(x.dtype, np.floating) and x.ndim >= 2:
        if not np.isfinite(x).all():
            raise ConfigError(f"{source} has values in {key} that are not finite. Remove or replace them.")
        return x.astype(np.float32, copy=False)
    raise ConfigError(
        f"{source} has {key} of type {x.dtype} and shape {x.shape}. "
        "It must be uint8 images (n, H, W), (n, H, W, C) or (n, C, H, W), or float features (n, d)."
    )


def _labels(y: NDArray[Any], key: str, source: str) -> NDArray[np.int64]:
    if not np.issubdtype(y.dtype, np.integer) or y.ndim != 1:
        raise ConfigError(
            f"{source} has {key} of type {y.dtype} and shape {y.shape}. It must be whole numbers of shape (n,)."
        )
    if (y < 0).any():
        raise ConfigError(f"{source} has the negative label {y.min()} in {key}. Labels must count from 0.")
    return y.astype(np.int64, copy=False)


def _moments(x: NDArray[Any]) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Mean and standard deviation of each channel (of everything, for flat features), exact for uint8."""
    channels = [x] if x.ndim == 2 else [x[:, channel] for channel in range(x.shape[1])]
    mean, std = np.empty(len(channels)), np.empty(len(channels))
    for channel, values in enumerate(channels):
        if x.dtype == np.uint8:
            total = int(values.sum(dtype=np.uint64))
            squares = int(np.square(values, dtype=np.uint16).sum(dtype=np.uint64))
            mean[channel] = total / values.size / 255.0
            std[channel] = math.sqrt(values.size * squares - total**2) / values.size / 255.0
        else:
            mean[channel], std[channel] = values.mean(dtype=np.float64), values.std(dtype=np.float64)
    return mean.astype(np.float32), np.where(std > 0.0, std, 1.0).astype(np.float32)


def _digits(test_fraction: float, seed: int) -> Dataset:
    from sklearn.datasets import load_digits

    bunch = load_digits()
    images, labels = np.rint(bunch.images * (255.0 / 16.0)).astype(np.uint8), bunch.target.astype(np.int64)
    train, test = holdout(np.arange(len(labels)), labels, test_fraction, stream(seed, Purpose.DATA))
    arrays = {"x_train": images[train], "y_train": labels[train], "x_test": images[test], "y_test": labels[test]}
    return from_arrays(arrays, f"The data set 'digits' with 'test-fraction' {test_fraction}")


def _npz(path: Path) -> Dataset:
    source = f"The file '{path.resolve()}'"
    return from_arrays(_read_npz(path, source, (*KEYS, "owners"), "data-path"), source)


def _synthetic(config: DataConfig, seed: int) -> Dataset:
    clients, alpha, beta = config.synthetic_clients, config.synthetic_alpha, config.synthetic_beta
    arrays = synthetic.generate(clients, alpha, beta, config.test_fraction, seed)
    # Few clients may together lack a class that others would have.
    return replace(from_arrays(arrays, "The data set 'synthetic'"), classes=synthetic.CLASSES)


def _read_npz(path: Path, source: str, keys: tuple[str, ...], setting_key: str) -> dict[str, NDArray[Any]]:
    """Those of `keys` that the file has."""
    if not path.is_file():
        raise ConfigError(f"{source} does not exist. Set '{setting_key}' to an .npz file with {', '.join(keys)}.")
    try:
        with np.load(path, allow_pickle=False) as file:
            return {key: file[key] for key in keys if key in file}
    except (OSError, ValueError, EOFError, TypeError, zipfile.BadZipFile, zlib.error) as error:
        raise ConfigError(f"{source} cannot be read as an .npz file of plain arrays: {error}.") from error


def _torchvision(config: DataConfig) -> Dataset:
    from torchvision import datasets

    folder = Path(config.data_path or "data").resolve()
    class_name, files = TORCHVISION[config.data]
    arrays = {}
    try:
        for part in ("train", "test"):
            loaded = getattr(datasets, class_name)(folder, train=part == "train", download=config.download)
            arrays[f"x_{part}"], arrays[f"y_{part}"] = np.asarray(loaded.data), np.asarray(loaded.targets)
    except (RuntimeError, OSError, ValueError, AssertionError) as error:
        if config.download:
            raise ConfigError(
                f"The data set '{config.data}' could not be downloaded to '{folder}': {error}."
            ) from error
        raise ConfigError(
            f"The data set '{config.data}' is absent from '{folder}', or damaged. "
            f"Set download=true, or put torchvision's files there ({files})."
        ) from error
    return from_arrays(arrays, f"The folder '{folder}'")
