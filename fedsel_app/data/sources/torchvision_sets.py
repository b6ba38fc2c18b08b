"""The sets that torchvision reads and downloads: MNIST, Fashion-MNIST, CIFAR-10 and CIFAR-100."""

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


def read(data: str, folder: Path, *, download: bool) -> dict[str, NDArray[Any]]:
    """Read one of `SETS`.

    Returns
    -------
    dict
        x_train, x_test : uint8 (n, H, W) or (n, H, W, 3); y_train, y_test : int64 (n,).

    Raises
    ------
    ConfigError
        If the files are absent or damaged, or cannot be downloaded.
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
