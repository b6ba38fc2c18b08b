"""Published sets: scikit-learn's digits, which come with its package, and those that torchvision downloads."""

import gzip
from importlib.metadata import distribution
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedsel_app.config import ConfigError
from fedsel_app.data.arrays import refuse_pipes

SETS = {
    "mnist": ("MNIST", "MNIST/raw/*-ubyte"),
    "fashion-mnist": ("FashionMNIST", "FashionMNIST/raw/*-ubyte"),
    "cifar10": ("CIFAR10", "cifar-10-batches-py/*"),
    "cifar100": ("CIFAR100", "cifar-100-python/*"),
}
"""Setting -> torchvision's class, and the files it reads below the folder."""
DIGITS_FILE = "sklearn/datasets/data/digits.csv.gz"
LEVELS = 16
SIDE = 8


def read_torchvision(data: str, folder: Path, *, download: bool) -> dict[str, NDArray[Any]]:
    """Read one of `SETS`.

    Returns x_train and x_test, uint8 (n, H, W) or (n, H, W, 3), and y_train and y_test, int64 (n,). Raises ConfigError
    if the files are absent or damaged, or cannot be downloaded.
    """
    class_name, files = SETS[data]
    refuse_pipes(data, folder.glob(files))
    arrays = {}
    try:
        # This check needs no torchvision, whose import takes seconds.
        if not download and not (folder / Path(files).parts[0]).is_dir():
            raise FileNotFoundError(folder)
        from torchvision import datasets

        for part in ("train", "test"):
            loaded = getattr(datasets, class_name)(folder, train=part == "train", download=download)
            arrays[f"x_{part}"], arrays[f"y_{part}"] = np.asarray(loaded.data), np.asarray(loaded.targets)
    except (RuntimeError, OSError, ValueError, AssertionError) as error:
        if download:
            raise ConfigError(f"The data set '{data}' could not be downloaded to '{folder}': {error}.") from error
        raise ConfigError(
            f"The data set '{data}' is absent from '{folder}', or damaged. "
            f"Set download=true, or put torchvision's files there ({files})."
        ) from error
    return arrays


def read_digits() -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """1,797 handwritten digits: images (n, 8, 8), with grey levels 0 to 16 scaled to 0 to 255, and labels (n,).

    E. Alpaydin, C. Kaynak: "Optical Recognition of Handwritten Digits", UCI Machine Learning Repository, 1998 (its test
    part), https://doi.org/10.24432/C50P49, in the order of scikit-learn's `load_digits`. The file is read without
    importing scikit-learn: the import would take longer than the rest of a small run's start.
    """
    with gzip.open(str(distribution("scikit-learn").locate_file(DIGITS_FILE)), "rt") as file:
        table = np.loadtxt(file, delimiter=",")
    images = np.rint(table[:, :-1] * (255.0 / LEVELS)).astype(np.uint8)
    return images.reshape(-1, SIDE, SIDE), table[:, -1].astype(np.int64)
