"""Settings of the data set: its name and its files."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedsel_app.config.named_arguments import parse_named
from fedsel_app.config.plugins import unknown_name
from fedsel_app.config.settings import ConfigError, Settings, Value, require, setting

DATA_FOLDERS = {
    "mnist": "data",
    "fashion-mnist": "data",
    "cifar10": "data",
    "cifar100": "data",
    "femnist": "data/femnist",
    "tiny-imagenet": "data/tiny-imagenet-200",
    "image-folder": "data/images",
    "ptb-xl": "data/ptb-xl",
}
"""Data set -> folder of its files, unless `data-path` names another."""
DATA_SETS = {
    "digits": "scikit-learn's 1,797 digits of 8 x 8 pixels, at hand",
    "npz": "an .npz file of arrays (data-path)",
    "csv": "a table in a .csv file (data-path), the labels in the column label of data-arguments",
    "mnist": "torchvision's files, in data-path",
    "fashion-mnist": "torchvision's files, in data-path",
    "cifar10": "torchvision's files, in data-path",
    "cifar100": "torchvision's files, in data-path",
    "femnist": "LEAF's files by writer, in data-path",
    "tiny-imagenet": "the published folder, in data-path",
    "image-folder": "train/CLASS/NAME.png and test/CLASS/NAME.png, or CLASS/NAME.png, in data-path",
    "ptb-xl": "PhysioNet's electrocardiograms, in data-path",
    "ecg": "generated electrocardiograms of PTB-XL's kind",
    "synthetic": "generated: every client has its own inputs and its own model",
    "regression": "generated: clusters of clients, each with its own linear law",
    "hf": "a folder that `datasets` saved, or Parquet, in data-path",
    "hf:NAME": "the data set NAME of the Hugging Face Hub, or of its cache on this machine",
    "package.module:function": "a function of yours that returns the arrays",
}
"""Data set, or the form of its name -> its meaning."""
OF_FILES = ("npz", "csv", "hf", "image-folder")
"""Sets whose `data-path` says which one it is."""
READERS = {".npz": "npz", ".csv": "csv", ".parquet": "hf"}
"""Ending of a file -> the data that reads it."""
HUB = "hf:"
"""Beginning of a data set of the Hugging Face Hub."""
HUB_NAME = re.compile(r"\w[\w.-]*(/\w[\w.-]*)?")
DATA_ARGUMENTS: dict[str, type] = {
    "subset": str,
    "train": str,
    "test": str,
    "input": list,
    "label": str,
    "owner": str,
    "task": str,
    "shuffle": bool,
    "seed": int,
}
"""Name in `data-arguments` -> type of its value."""


def data_name(values: Mapping[str, Value]) -> str:
    """Name of the data set of the settings `values`: of a user's own files the last part of their path."""
    data, path = str(values["data"]), str(values.get("data-path") or "")
    return Path(path).name if path and data in OF_FILES else data


@dataclass(frozen=True)
class DataConfig(Settings):
    """Data set: its name and its files."""

    data: str = setting("digits", "where the examples come from", choices=DATA_SETS, closed=False)
    data_path: str = setting(
        "",
        "the .npz file, the `datasets` folder or Parquet, or the folder of a set of files (empty: data/ where you run, "
        "or data/femnist and so on)",
    )
    data_arguments: str = setting(
        "",
        'csv, hf, hf:NAME: columns, splits and order, such as label="fine_label", shuffle=false; one of '
        + ", ".join(DATA_ARGUMENTS),
    )
    download: bool = setting(False, "let torchvision download a set that is absent")
    image_size: int = setting(
        0, "tiny-imagenet, image-folder, hf: scale images to this many pixels square (0: not)", low=0
    )
    test_fraction: float = setting(
        0.2,
        "digits, csv, and hf and image-folder without a test split: share of the examples in the test set; synthetic, "
        "regression, ecg: test examples a training one",
        above=0.0,
        below=1.0,
    )
    synthetic_alpha: float = setting(1.0, "synthetic: how much the clients' true models differ", low=0.0)
    synthetic_beta: float = setting(1.0, "synthetic: how much the clients' inputs differ", low=0.0)
    synthetic_clients: int = setting(0, "synthetic, regression: clients that it is generated for (0: `clients`)", low=0)
    regression_clusters: int = setting(2, "regression: clusters J that the clients belong to; 1 is IID", low=1)
    regression_intercept: bool = setting(False, "regression: put a 1 behind each input")
    ptb_xl_hz: int = setting(100, "ptb-xl: samples a second of the records, 100 or 500", low=100, high=500)
    ecg_examples: int = setting(2000, "ecg: training records that are generated", low=1)

    def __post_init__(self) -> None:
        super().__post_init__()
        known = [name for name in DATA_SETS if ":" not in name]
        if self.data not in known and ":" not in self.data:
            raise unknown_name("data", self.data, known, "hf:NAME or package.module:function")
        self._check_path()
        require(self.ptb_xl_hz in (100, 500), "ptb-xl-hz", "100 or 500", self.ptb_xl_hz)
        if self.data in ("npz", "csv", "hf") and not self.data_path:
            kind = (
                "the path of a folder that `datasets` saved, or of Parquet" if self.data == "hf" else "the file's path"
            )
            raise ConfigError(f"The 'data' parameter {self.data} needs {kind} in 'data-path'.")
        if self.hub_name and not HUB_NAME.fullmatch(self.hub_name):
            raise ConfigError(
                f"The 'data' parameter must name a data set of the Hub as hf:NAME or hf:OWNER/NAME. Got {self.data!r}. "
                "A folder is read with 'data' hf and its path in 'data-path'."
            )
        self._check_arguments()

    def _check_path(self) -> None:
        """Raise ConfigError for a path of a file that another kind of data would read."""
        reader = READERS.get(Path(self.data_path).suffix.lower(), "")
        if reader and self.data != reader and ":" not in self.data:
            raise ConfigError(
                f"The 'data' parameter {self.data} does not read {Path(self.data_path).name}: set data={reader}."
            )

    def _check_arguments(self) -> None:
        if self.data_arguments and not self.from_datasets and self.data != "csv":
            raise ConfigError(
                f"The 'data-arguments' are those of the 'data' csv, hf and hf:NAME. Leave them out with {self.data}."
            )
        for name, value in self.arguments.items():
            if name not in DATA_ARGUMENTS:
                raise ConfigError(f"The 'data-arguments' have no {name!r}. They may be {', '.join(DATA_ARGUMENTS)}.")
            if type(value) is not DATA_ARGUMENTS[name]:
                kind = {str: "text in quotes", bool: "true or false", int: "a whole number"}.get(
                    DATA_ARGUMENTS[name], 'a list of names, such as ["age", "income"]'
                )
                raise ConfigError(f"The argument '{name}' of 'data-arguments' must be {kind}. Got {value!r}.")

    @property
    def from_datasets(self) -> bool:
        """True for a data set that the package `datasets` reads."""
        return self.data == "hf" or self.data.startswith(HUB)

    @property
    def hub_name(self) -> str:
        """Name of the data set of the Hugging Face Hub; empty for all others."""
        return self.data.removeprefix(HUB) if self.data.startswith(HUB) else ""

    @property
    def arguments(self) -> dict[str, Any]:
        """Name -> value in `data-arguments`, of the types of `DATA_ARGUMENTS`."""
        return parse_named(self.data_arguments, "data-arguments", 'label="fine_label", shuffle=false')

    @property
    def folder(self) -> Path:
        """Folder of the files of a set of `DATA_FOLDERS`."""
        return Path(self.data_path or DATA_FOLDERS[self.data]).resolve()
