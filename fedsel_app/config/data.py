"""Settings of the data: the data set, its preprocessing and its partition among the clients."""

import math
import re
import unicodedata
from collections.abc import Iterable
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Self

from fedsel_app.config.plugins import unknown_name
from fedsel_app.config.settings import ConfigError, ReadBy, Settings, parse_named, require, setting, unless

DATA_FOLDERS = {
    "mnist": "data",
    "fashion-mnist": "data",
    "cifar10": "data",
    "cifar100": "data",
    "image-folder": "data/images",
}
"""Data set -> folder of its files, unless `data-path` names another."""
DATA_SETS = {
    "digits": "scikit-learn's 1,797 digits of 8 x 8 pixels, installed with it",
    "npz": "an .npz file of arrays (data-path)",
    "csv": "a table in a .csv file (data-path), the labels in the column label of data-arguments",
    "mnist": "torchvision's files, in data-path",
    "fashion-mnist": "torchvision's files, in data-path",
    "cifar10": "torchvision's files, in data-path",
    "cifar100": "torchvision's files, in data-path",
    "image-folder": "train/CLASS/NAME.png and test/CLASS/NAME.png, or CLASS/NAME.png, in data-path",
    "hf": "a folder that `datasets` saved, or Parquet, in data-path",
    "hf:NAME": "the data set NAME of the Hugging Face Hub, or of its cache on this machine",
    "package.module:function": "a function of yours that returns the arrays",
}
"""Data set, or the form of its name -> its meaning."""
OF_FILES = ("npz", "csv", "hf", "image-folder")
"""Data sets that are identified by their `data-path`."""
READERS = {".npz": "npz", ".csv": "csv", ".parquet": "hf"}
"""File extension -> value of `data` that reads it."""
HUB = "hf:"
"""Prefix of a data set of the Hugging Face Hub."""
HUB_NAME = re.compile(r"\w[\w.-]*(/\w[\w.-]*)?")
WITHOUT_ARGUMENTS = ("digits", "npz", "mnist", "fashion-mnist", "cifar10", "cifar100")
"""Data sets that take no `data-arguments`."""
TASKS = ("classification", "multi-label", "regression", "next-token")
"""Tasks of data sets."""
MOST_CLASSES = 10**5
"""Upper bound on labels; a model has one output for each class."""
KINDS = ("number", "category", "date")
"""Kinds of columns of a table; each is also the name in `data-arguments` of a list of such columns."""
COLUMN_ARGUMENTS: dict[str, type] = {
    "subset": str,
    "train": str,
    "test": str,
    "input": list,
    "label": str,
    "owner": str,
    "split": str,
    "task": str,
    **dict.fromkeys(KINDS, list),
    "classes": list,
    "categories": dict,
    "scaling": dict,
    "missing": str,
    "fill": dict,
}
"""Name in the `data-arguments` of tables -> type of its value."""
ARGUMENT_CHOICES = {
    "split": ("row", "owner", "date"),
    "task": ("classification", "multi-label", "regression"),
    "missing": ("median", "indicator"),
}
"""Name in the `data-arguments` of tables -> its values."""
PUBLISHED_MOMENTS = {
    "mnist": ((0.1307,), (0.3081,)),
    "cifar10": ((0.4914, 0.4822, 0.4465), (0.2023, 0.1994, 0.2010)),
    "cifar100": ((0.5071, 0.4867, 0.4408), (0.2675, 0.2565, 0.2761)),
    "tiny-imagenet": ((0.4802, 0.4481, 0.3975), (0.2770, 0.2691, 0.2821)),
}
"""Mean and standard deviation of each channel for images in [0, 1], as used by HeteRo-Select's authors and many others.
"""
PARTITIONS = {
    "iid": "at random, equally many for each",
    "dirichlet": "each class in shares drawn by Dirichlet(alpha)",
    "dirichlet-by-client": "equally many for each, whose class mix is drawn by Dirichlet(alpha p); p is the mix of all",
    "multi-dirichlet": "equal groups of clients, each with a concentration of its own (alphas)",
    "psi-lda": "the share psi of a client's examples from its dominant class, until classes run out",
    "missing-classes": "clients that lack missing-classes classes each, and draw independently, so they overlap",
    "shards": "two runs of the examples in class order",
    "natural": "by the owners that the data set names",
    "own": "each client has its own data set, in a deployment",
}
"""Partition -> its meaning."""


def composed(text: str) -> str:
    """The text in Unicode's form NFC: letters look alike in another form, but differ."""
    return unicodedata.normalize("NFC", text)


def with_arguments(keys: Iterable[str]) -> set[str]:
    """These settings, and the arguments of the data, which change with it."""
    keys = set(keys)
    return keys | {"data-arguments"} if "data" in keys else keys


def read_by_data(*names: str) -> ReadBy:
    """Condition: one of the data sets `names`, or a function of a user, which may read every setting of the data."""
    data_sets = {name for name in DATA_SETS if ":" not in name} | {HUB}
    return {"data": unless(*sorted(data_sets.difference(names)))}


@dataclass(frozen=True)
class DataConfig(Settings, scope="task", private=True):
    """Data set: its name and its files."""

    data: str = setting(
        "digits", "where the examples come from", choices=DATA_SETS, closed=False, first=True, owner="may", code=True
    )
    data_path: str = setting(
        "",
        "path of the data: the file of npz and csv, a folder that `datasets` saved or Parquet for hf, or the folder of"
        " a data set of files; empty: data/ in the working directory, or data/images of image-folder",
        first=True,
        owner="alone",
    )
    data_arguments: str = setting(
        "",
        "arguments of a function of yours, such as examples=600, noise=0.5;"
        f" csv, hf, hf:NAME: {', '.join(COLUMN_ARGUMENTS)}; image-folder: classes",
        owner="may",
    )
    download: bool = setting(False, "lets torchvision download a data set that is not in data-path", scope="engine")
    image_size: int = setting(
        0,
        "image-folder, hf: side in pixels to which images are scaled; 0 keeps their size",
        low=0,
        read_by=read_by_data("image-folder", "hf", HUB),
    )
    train_examples: int = setting(
        0,
        "number of training examples that are used, for a quick run: drawn from the seed, with the classes in their"
        " proportions; 0 uses all",
        low=0,
    )
    test_fraction: float = setting(
        0.2,
        "digits, csv, and hf and image-folder without a test split: share of the examples in the test set",
        above=0.0,
        below=1.0,
        read_by=read_by_data("digits", "csv", "hf", HUB, "image-folder"),
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        names = [name for name in DATA_SETS if ":" not in name]
        if self.data not in names and ":" not in self.data:
            if reader := READERS.get(Path(self.data).suffix.lower()):
                raise ConfigError(
                    f"The 'data' parameter names the kind of data: set data={reader} and data-path={self.data}."
                )
            raise unknown_name("data", self.data, names, "hf:NAME or package.module:function")
        reader = READERS.get(Path(self.data_path).suffix.lower())
        if reader and self.data != reader and ":" not in self.data:
            raise ConfigError(
                f"The 'data' parameter {self.data} does not read {Path(self.data_path).name}: set data={reader}."
            )
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

    def _check_arguments(self) -> None:
        if self.data_arguments and self.data in WITHOUT_ARGUMENTS:
            raise ConfigError(f"Leave out the 'data-arguments': the 'data' {self.data} has none.")
        arguments = self.arguments
        folders = self.data == "image-folder"
        allowed = ("classes",) if folders else tuple(COLUMN_ARGUMENTS)
        for name, value in arguments.items() if self.takes_columns or folders else ():
            if name not in allowed:
                raise ConfigError(f"The 'data-arguments' have no {name!r}. They may be {', '.join(allowed)}.")
            if type(value) is not COLUMN_ARGUMENTS[name]:
                kinds: dict[type, str] = {
                    str: "text in quotes",
                    list: 'a list of names, such as ["age", "income"]',
                    dict: "values by column, such as {age=[45, 12]}",
                }
                kind = kinds[COLUMN_ARGUMENTS[name]]
                raise ConfigError(f"The argument '{name}' of 'data-arguments' must be {kind}. Got {value!r}.")
            if value not in (choices := ARGUMENT_CHOICES.get(name, (value,))):
                raise ConfigError(
                    f"The argument '{name}' of 'data-arguments' must be one of {', '.join(map(repr, choices))}. "
                    f"Got {value!r}."
                )

    @property
    def from_datasets(self) -> bool:
        """True for a data set that the package `datasets` reads."""
        return self.data == "hf" or self.data.startswith(HUB)

    @property
    def takes_columns(self) -> bool:
        """True for data whose arguments are those of `COLUMN_ARGUMENTS`."""
        return self.from_datasets or self.data == "csv"

    @property
    def hub_name(self) -> str:
        """Name of the data set on the Hugging Face Hub; empty for all other data."""
        return self.data.removeprefix(HUB) if self.data.startswith(HUB) else ""

    @property
    def arguments(self) -> dict[str, Any]:
        """Name -> value in `data-arguments`; of the types of `COLUMN_ARGUMENTS` for a table."""
        return parse_named(composed(self.data_arguments), "data-arguments", 'label="fine_label", test=""')

    @property
    def folder(self) -> Path:
        """Folder of the files of a set of `DATA_FOLDERS`."""
        return Path(self.data_path or DATA_FOLDERS[self.data]).resolve()


@dataclass(frozen=True)
class OwnDataConfig(DataConfig):
    """Data of a single client of a deployment: all of them are its training examples."""

    schema: str = setting("", "what the server states of the data (`fedsel_app.messages.schema`); empty: nothing")
    own_arguments: bool = setting(True, "the client's owner has set its data-arguments, and not the server")

    @classmethod
    def of(cls, data: DataConfig, schema: str = "") -> Self:
        """The same data, of one client, in a schema."""
        return cls(**{item.name: getattr(data, item.name) for item in fields(data)} | {"schema": schema})


@dataclass(frozen=True)
class PreprocessingConfig(Settings, scope="training", private=True):
    """Preprocessing: the normalisation and the augmentation of examples."""

    normalize: bool = setting(
        True,
        "subtracts the mean of the training set and divides by its standard deviation: for each channel of images and"
        " signals, and for each feature of a table",
    )
    moments: str = setting(
        "computed",
        "mean and standard deviation for normalize",
        choices={
            "computed": "those of the training set",
            **{name: f"the constants published for {name}" for name in PUBLISHED_MOMENTS},
        },
        read_by={"normalize": (True,)},
    )
    augment: str = setting(
        "none",
        "random changes of training images",
        choices={
            "none": "none",
            "flip": "mirrors half of the images",
            "crop-flip": "also crops at random, after padding by 4 pixels of zeros",
        },
    )


@dataclass(frozen=True)
class PartitionConfig(Settings, scope="task", private=True):
    """Partition: the split of the training examples among the clients, and of each client's into its two parts."""

    partition: str = setting(
        "dirichlet",
        "how the training examples are split among the clients",
        choices=PARTITIONS,
        first=True,
        owner="may",
    )
    alpha: float = setting(
        0.5,
        "dirichlet, dirichlet-by-client: concentration; the smaller, the more skewed",
        above=0.0,
        first=True,
        read_by={"partition": ("dirichlet", "dirichlet-by-client")},
    )
    alphas: str = setting(
        "0.001,0.01,0.1,0.5,1",
        "multi-dirichlet: concentrations, separated by commas, one for each group of clients",
        read_by={"partition": ("multi-dirichlet",)},
    )
    psi: float = setting(
        0.4,
        "psi-lda: share of a client's examples that are of its dominant class; with 0 each client lacks one class",
        low=0.0,
        high=1.0,
        read_by={"partition": ("psi-lda",)},
    )
    client_examples: int = setting(
        0, "psi-lda: number of examples that a client draws; 0 takes n // K", low=0, read_by={"partition": ("psi-lda",)}
    )
    missing_classes: int = setting(
        40,
        "missing-classes: number of classes that each client lacks",
        low=0,
        read_by={"partition": ("missing-classes",)},
    )
    partition_form: str = setting(
        "text",
        "form of dirichlet and multi-dirichlet",
        choices={
            "text": "as the paper describes it",
            "code": "as the authors' code does it: a client gets no more examples once it has n / K",
        },
        read_by={"partition": ("dirichlet", "multi-dirichlet")},
    )
    min_examples: int = setting(1, "smallest number of training examples of a client", low=1)
    holdout_fraction: float = setting(
        0.0, "share of each client's examples that becomes its own test part", low=0.0, below=1.0
    )
    holdout_class_examples: int = setting(
        1,
        "smallest number of examples of a class that a client splits; smaller classes stay in its training part",
        low=1,
        read_by={"holdout-fraction": unless(0.0)},
    )
    surrogate_examples: int = setting(
        0,
        "number of training examples that the server keeps as its surrogate set (isp-loss); no client gets them",
        low=0,
    )
    validation_fraction: float = setting(
        0.0,
        "share of the training examples that the server keeps as its validation set, to tune and to stop early by"
        " (patience); no client gets them",
        low=0.0,
        below=1.0,
        private=(0.0,),
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        try:
            valid = all(0.0 < alpha < math.inf for alpha in self.group_alphas)
        except ValueError:
            valid = False
        require(valid, "alphas", "numbers above 0, separated by commas", self.alphas)

    @property
    def group_alphas(self) -> list[float]:
        """Concentrations in `alphas`."""
        return [float(alpha) for alpha in self.alphas.split(",")]
