"""Data sets of Hugging Face's `datasets`: those of the Hub, folders that `save_to_disk` wrote, and Parquet files.

The split `test` is the test set. Without this split, `test-fraction` of the training split is held out.
"""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from fedsel_app.config import ConfigError, DataConfig
from fedsel_app.config.plugins import described
from fedsel_app.data.columns import Roles, index_columns, labels
from fedsel_app.data.sources.image_folders import pixels
from fedsel_app.data.tables import NUMERIC, known_columns, read_columns, refuse_duplicates

LEVEL = re.compile(r"__index_level_\d+__")
"""Name that pandas gives a column with the index of a table in Parquet."""


def read(config: DataConfig, arguments: Mapping[str, Any]) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Read the training split and the test split, as far as there are both.

    Raises ConfigError if the package or the data set is absent, or its columns cannot be read as samples and labels.

    Returns
    -------
    arrays : x_train, y_train, x_test and y_test, as far as there are the splits; task; owners if their column is named.
        Samples are arrays, or plain values of the inputs, whose `columns` are those of a table.
    names : names of the classes, if they have names
    """
    source = title(config)
    splits, index = _splits(config, arguments, source)
    test = arguments.get("test", "test" if "test" in splits else "")
    train = arguments.get("train", "train" if "train" in splits or not test else "")
    for name in filter(None, (train, test)):
        if name not in splits:
            raise ConfigError(
                f"{source} has no split '{name}'. It has {', '.join(splits)}. Name the splits in 'data-arguments', as "
                f'in {"train" if name == train else "test"}="{next(iter(splits))}".'
            )
        if not len(splits[name]):
            raise ConfigError(
                f"{source} has no examples in its split '{name}'. Fill it, or name another in 'data-arguments', or "
                f'none: {"train" if name == train else "test"}="".'
            )
    columns = Columns(splits[train or test], arguments, source, index)
    named = {part: name for part, name in (("train", train), ("test", test)) if name}
    parts = {part: columns.part(splits[name]) for part, name in named.items()}
    targets, names = columns.targets(parts)
    arrays: dict[str, Any] = {"task": arguments.get("task", "classification"), **targets}
    for name, part in parts.items():
        arrays[f"x_{name}"] = columns.samples(part, config.image_size)
    given = {key: samples for key, samples in arrays.items() if isinstance(samples, pd.DataFrame)}
    if given:
        arrays["columns"], plain = read_columns(list(given.values()), arguments, source)
        arrays |= dict(zip(given, plain, strict=True))
    if train and columns.roles.owner:
        table = parts["train"].table
        known_columns([columns.roles.owner], list(table.columns), source)
        arrays["owners"] = columns.roles.owners(table)
    return arrays, names


class Part(NamedTuple):
    """Split of a data set: all columns, and those of single values as a table."""

    rows: Any
    table: pd.DataFrame


class Columns:
    """Columns of a data set of `datasets` with the samples and the labels.

    Without a `label` in the `data-arguments`, the labels are the only column of classes, or else `label`; without an
    `input`, the samples are the only column of images, or the only one of arrays, or else a table of all others.

    Raises ConfigError if a named column is absent, or if it is not clear which columns have the labels or the samples.
    """

    def __init__(self, rows: Any, arguments: Mapping[str, Any], source: str, index: set[str]) -> None:
        self._features, self._source = rows.features, source
        self._types = {name: type(kind).__name__ for name, kind in rows.features.items()}
        self._single = [name for name, kind in self._types.items() if kind in ("Value", "ClassLabel")]
        classes = [name for name, kind in self._types.items() if kind == "ClassLabel"]
        index |= {*filter(LEVEL.fullmatch, self._single)}
        index |= {*index_columns(list(rows.features), lambda name: _numpy(rows, name))}
        label = classes[0] if len(classes) == 1 else ""
        self.roles = Roles(list(rows.features), arguments, source, index=index, label=label)
        self._task, self._named = arguments.get("task", "classification"), "classes" in arguments
        self._inputs = self.roles.inputs if arguments.get("input") else self._input_columns()

    def _input_columns(self) -> list[str]:
        several = [name for name in self.roles.inputs if name not in self._single]
        images = [name for name in several if self._types[name] == "Image"]
        columns = images if len(images) == 1 else several
        if len(columns) > 1:
            raise ConfigError(
                f"{self._source} does not say which of its columns {', '.join(several)} have the samples: one column of"
                " images or of arrays, or a table of single values. Name them in 'data-arguments', as in "
                'input=["NAME"].'
            )
        return columns or self.roles.inputs

    def part(self, rows: Any) -> Part:
        """A split. Raises ConfigError if it lacks a column."""
        if absent := [name for name in (self.roles.label, *self._inputs) if name not in rows.column_names]:
            raise ConfigError(f"{self._source} has no column {', '.join(absent)} in its test split.")
        single = [name for name in self._single if name in rows.column_names]
        arrow = rows.select_columns(single).with_format("arrow")[:] if single else None
        table = pd.DataFrame(index=range(len(rows))) if arrow is None else arrow.to_pandas(ignore_metadata=True)
        return Part(rows, table.set_axis(pd.RangeIndex(1, len(rows) + 1, name="row")))

    def samples(self, part: Part, size: int) -> Any:
        """Samples of a split: uint8 images (n, H, W) or (n, H, W, 3), arrays (n, ...), or the columns of a table.

        Images are scaled to `size` x `size` pixels if `size` is above 0.

        Raises ConfigError if the input columns have several kinds, or the arrays or images several shapes.
        """
        if set(self._inputs) <= set(self._single):
            table = part.table[self._inputs].copy()
            for name in self._inputs:
                if self._types[name] == "ClassLabel":
                    table[name] = _named(table[name], self._features[name].names)
            return table
        if len(self._inputs) > 1:
            raise ConfigError(
                f"{self._source} has the 'input' {', '.join(self._inputs)} in 'data-arguments'. It must be one column "
                "of images, one column of arrays, or columns of single values."
            )
        [name] = self._inputs
        return self._images(part, name, size) if self._types[name] == "Image" else self._arrays(part, name)

    def targets(self, parts: Mapping[str, Part]) -> tuple[dict[str, Any], tuple[str, ...]]:
        """Targets: y_NAME of each part, and the names of the classes, if they have names."""
        name = self.roles.label
        if name not in self._single:
            return {f"y_{key}": self._arrays(part, name) for key, part in parts.items()}, ()
        numbered = self._types[name] == "ClassLabel"
        columns = {f"y_{key}": part.table[name] for key, part in parts.items()}
        targets, names = labels(columns, self._task, self._source, named=self._named and not numbered)
        return targets, tuple(self._features[name].names) if numbered else names

    def _arrays(self, part: Part, name: str) -> NDArray[Any]:
        try:
            array = np.stack(list(map(np.asarray, _numpy(part.rows, name))))
        except ValueError as error:
            raise ConfigError(f"{self._source} has arrays of several shapes in '{name}'. Use one shape.") from error
        if array.dtype.kind not in NUMERIC:
            raise ConfigError(f"{self._source} has in '{name}' neither numbers nor images. Name others in 'input'.")
        images = array.dtype == np.uint8 and array.ndim > 2
        tokens = array.dtype.kind in "iu" and array.dtype != np.uint8
        return array if images or tokens else array.astype(np.float32)

    def _images(self, part: Part, name: str, size: int) -> NDArray[Any]:
        images: list[NDArray[Any]] = []
        for row_number, row in zip(part.table.index, part.rows.select_columns([name]), strict=True):
            title = f"{self._source} has in '{name}', row {row_number}, "
            if row[name] is None:
                raise ConfigError(f"{title}no image. Remove the row.")
            try:
                images.append(pixels(row[name], "L" if row[name].mode in ("1", "L") else "RGB", size))
            except ConfigError as error:
                raise ConfigError(f"{title}an image that cannot be used: {error}.") from error
            if images[-1].shape[:2] != images[0].shape[:2]:
                raise ConfigError(
                    f"{title}an image of {images[-1].shape[1]} x {images[-1].shape[0]} pixels, but the first one has "
                    f"{images[0].shape[1]} x {images[0].shape[0]}: images of several sizes. Set 'image-size' to scale "
                    "all of them."
                )
        colours = any(image.ndim == 3 for image in images)
        return np.stack([np.repeat(i[..., None], 3, axis=2) if colours and i.ndim == 2 else i for i in images])


def _numpy(rows: Any, name: str) -> Any:
    return rows.select_columns([name]).with_format("numpy")[:][name]


def _named(codes: pd.Series, names: list[str]) -> pd.Series:
    """A column of classes by their names; a class without a name is missing."""
    return pd.Series(pd.Categorical.from_codes(codes.fillna(-1).astype(int), names), codes.index, name=codes.name)


def title(config: DataConfig) -> str:
    """Beginning of error messages about a data set."""
    return f"The data set '{config.data}'" if config.hub_name else f"The path '{Path(config.data_path).resolve()}'"


def _splits(config: DataConfig, arguments: Mapping[str, Any], source: str) -> tuple[dict[str, Any], set[str]]:
    """The splits of a data set by name, and the columns with the index of a table that pandas wrote."""
    path, name = Path(config.data_path), config.hub_name
    if name and Path(name).exists():
        raise ConfigError(
            f"The 'data' parameter {config.data} is a data set of the Hub, but '{name}' is a path here. To read this "
            f"path, set 'data' to hf and 'data-path' to {name}."
        )
    if not name and not path.exists():
        raise ConfigError(f"{source} does not exist. Set 'data-path' to a folder that `datasets` saved, or to Parquet.")
    try:
        import datasets
    except ImportError as error:
        raise ConfigError(
            f"The data set '{config.data}' needs the package datasets: pip install 'fedsel[datasets]'."
        ) from error
    index: set[str] = set()
    try:
        if name:
            made = datasets.load_dataset(name, arguments.get("subset"))
        elif path.is_dir():
            made = datasets.load_from_disk(str(path))
        else:
            from pyarrow import parquet

            refuse_duplicates(parquet.read_schema(path).names, source)
            table = parquet.read_table(path)
            index = {
                each for each in (table.schema.pandas_metadata or {}).get("index_columns", []) if type(each) is str
            }
            made = datasets.Dataset(table)
    except ConfigError:
        raise
    except Exception as error:
        wrong = "can be read neither from the Hub nor from its cache"
        if not name:
            wrong = "is neither a folder that `datasets` saved nor a Parquet file that can be read"
        raise ConfigError(f"{source} {wrong}: {described(error)}.") from error
    one = arguments.get("train", "train") or arguments.get("test", "test")
    return (dict(made) if isinstance(made, dict) else {one: made}), index
