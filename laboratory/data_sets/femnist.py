"""FEMNIST by writer, in the form of LEAF's preprocessing: train/*.json and test/*.json.

Caldas et al., "LEAF: A Benchmark for Federated Settings", arXiv:1812.01097. Each file has "users", "num_samples" and
"user_data": {writer: {"x": images of 784 values in [0, 1], "y": their classes}}. The values are grey levels / 255,
so uint8 stores them without loss. `preprocess.sh -s niid --sf 1.0 -k 0 -t sample` makes all 3597 writers, each
with examples in both parts.
"""

import json
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedsel_app.config import ConfigError, DataConfig
from fedsel_app.data.arrays import absent, refuse_pipes
from fedsel_app.data.dataset import Dataset, from_arrays

CLASSES = 62
SIDE = 28


def read(folder: Path) -> dict[str, NDArray[Any]]:
    """Read the writers of `folder`/train and `folder`/test, in the order of their names.

    Returns
    -------
    dict
        x_train, x_test : uint8 (n, 28, 28); y_train, y_test : int64 (n,); owners : int64 (n,), the training writers
        numbered from 0.

    Raises
    ------
    ConfigError
        If there are no files, or if a file does not have LEAF's form.
    """
    train, test = _writers(folder, "train"), _writers(folder, "test")
    owners = np.repeat(np.arange(len(train)), [len(labels) for _, labels in train.values()])
    arrays = {"owners": owners}
    for part, writers in (("train", train), ("test", test)):
        images, labels = zip(*writers.values(), strict=True)
        arrays[f"x_{part}"], arrays[f"y_{part}"] = np.concatenate(images), np.concatenate(labels)
    return arrays


def _writers(folder: Path, part: str) -> dict[str, tuple[NDArray[np.uint8], NDArray[np.int64]]]:
    files = sorted((folder / part).glob("*.json"))
    if not files:
        raise absent("femnist", folder, f"LEAF's folders train and test of .json files ({part}/ has none)")
    refuse_pipes("femnist", files)
    found: dict[str, tuple[NDArray[np.uint8], NDArray[np.int64]]] = {}
    for path in files:
        try:
            users = json.loads(path.read_bytes())["user_data"]
            found |= {str(user): _examples(data) for user, data in users.items()}
        except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
            raise ConfigError(
                f"The file '{path}' is damaged or not in LEAF's form: {type(error).__name__}: {error}. "
                "Make it again with LEAF's preprocess.sh."
            ) from error
    if not found:
        raise ConfigError(f"The folder '{folder / part}' has no writers. Make it again with LEAF's preprocess.sh.")
    return {user: found[user] for user in sorted(found)}


def _examples(data: dict[str, Any]) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """One writer's images and classes."""
    images = np.asarray(data["x"], dtype=np.float32).reshape(len(data["y"]), SIDE, SIDE)
    labels = np.asarray(data["y"], dtype=np.int64)
    if images.size and not 0.0 <= images.min() <= images.max() <= 1.0:
        raise ValueError("the images have values outside [0, 1]")
    return np.rint(images * 255.0).astype(np.uint8), labels


def load(config: DataConfig) -> Dataset:
    """Load FEMNIST from the folder of `config`."""
    folder = Path(config.data_path or "data/femnist").resolve()
    return from_arrays(read(folder), f"The folder '{folder}'", CLASSES)
