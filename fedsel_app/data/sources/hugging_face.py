"""Data sets of Hugging Face's `datasets`: those of the Hub, folders that `save_to_disk` wrote, and Parquet.

The split `test` is the test set. Without this split, `test-fraction` of the training split is held out. The splits are
shuffled as `flwr_datasets.FederatedDataset` shuffles them, by default with the run's seed. So a partitioner of
flwr-datasets gets the training examples in the same order as there.
"""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedsel_app.config import ConfigError, DataConfig
from fedsel_app.config.plugins import described
from fedsel_app.data.columns import Columns, known_column, owners, values

SPLITS = ("train", "test", "validation")


def read(config: DataConfig, seed: int) -> tuple[dict[str, Any], int | None, dict[str, NDArray[Any]]]:
    """Read the training split and the test split, if there is one; `seed` shuffles them.

    Returns
    -------
    arrays
        x_train, y_train and task; x_test and y_test if there is a test split; owners if their column is named.
    classes
        Number of classes if the labels have names, else None.
    columns
        Name -> values of the training examples, (n,), of each column of single numbers or texts.

    Raises
    ------
    ConfigError
        If the package or the data set is absent, or if its columns cannot be read as samples and labels.
    """
    arguments = config.arguments
    source = _source(config)
    splits = _hub(config) if config.hub_name else _local(config, source)
    train, test = arguments.get("train", "train"), arguments.get("test", "test" if "test" in splits else "")
    for name in filter(None, (train, test)):
        if name not in splits:
            raise ConfigError(
                f"{source} has no split '{name}'. It has {', '.join(splits)}. Name the splits in 'data-arguments', as "
                f'in {"train" if name == train else "test"}="{next(iter(splits))}".'
            )
    parts = {"train": splits[train]} | ({"test": splits[test]} if test else {})
    if arguments.get("shuffle", True):
        order = arguments.get("seed", seed)
        parts = {name: part.shuffle(seed=order, keep_in_memory=True) for name, part in parts.items()}
    columns = Columns(parts["train"].features, arguments, source)
    targets, classes = columns.targets(parts)
    arrays: dict[str, Any] = {"task": np.array(arguments.get("task", "classification")), **targets}
    for name, part in parts.items():
        arrays[f"x_{name}"] = columns.samples(part, config.image_size)
    single = values(parts["train"], columns.single)
    if owner := arguments.get("owner"):
        arrays["owners"] = owners(single[known_column(owner, columns.single, source)])
    return arrays, classes, single


def _source(config: DataConfig) -> str:
    return f"The data set '{config.data}'" if config.hub_name else f"The path '{Path(config.data_path).resolve()}'"


def _datasets(config: DataConfig) -> Any:
    try:
        import datasets
    except ImportError as error:
        raise ConfigError(
            f"The data set '{config.data}' needs the package datasets: pip install 'fedsel[datasets]'."
        ) from error
    return datasets


def _hub(config: DataConfig) -> dict[str, Any]:
    datasets = _datasets(config)
    name = config.hub_name
    if Path(name).exists():
        raise ConfigError(
            f"The 'data' parameter {config.data} is a data set of the Hub, but '{name}' is a path here. To read this "
            f"path, set 'data' to hf and 'data-path' to {name}."
        )
    try:
        return dict(datasets.load_dataset(name, config.arguments.get("subset")))
    except Exception as error:
        raise ConfigError(
            f"The data set '{config.data}' can be read neither from the Hub nor from its cache: {described(error)}."
        ) from error


def _local(config: DataConfig, source: str) -> dict[str, Any]:
    path = Path(config.data_path)
    train = config.arguments.get("train", "train")
    if not path.exists():
        raise ConfigError(f"{source} does not exist. Set 'data-path' to a folder that `datasets` saved, or to Parquet.")
    datasets = _datasets(config)
    try:
        if (path / "dataset_dict.json").is_file():
            return dict(datasets.load_from_disk(str(path)))
        if (path / "state.json").is_file():
            return {train: datasets.load_from_disk(str(path))}
        splits = _parquet(path, (train, config.arguments.get("test", "test"), *SPLITS))
        return {
            name: datasets.concatenate_datasets(list(map(datasets.Dataset, files))) for name, files in splits.items()
        }
    except Exception as error:
        raise ConfigError(
            f"{source} is neither a folder that `datasets` saved nor Parquet that can be read: {described(error)}."
        ) from error


def _parquet(path: Path, names: Sequence[str]) -> dict[str, list[Any]]:
    """Split -> tables of a Parquet file, or of the Parquet files in a folder.

    The split of a file is the first of `names` that is a word in its path, or else the first of `names`.
    """
    from pyarrow import parquet

    found: dict[str, list[Any]] = {}
    for file in [path] if path.is_file() else sorted(path.rglob("*.parquet")):
        words = re.split(r"[\W_]+", str(file.relative_to(path)))
        split = next((name for name in names if name in words), names[0])
        found.setdefault(split, []).append(parquet.read_table(file))
    if not found:
        raise FileNotFoundError("there is no .parquet file in it")
    return found
