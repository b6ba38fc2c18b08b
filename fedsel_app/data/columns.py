"""Columns of labelled tables: finds the columns of the labels and of the samples, and reads them as arrays.

The readers of CSV files, Parquet and data sets of Hugging Face's `datasets` use this module. The column of labels is
the one that `data-arguments` name, or else the column `label`. The samples are one column of images, one column of
arrays, or several columns of numbers, which are the features of a table.
"""

from collections.abc import Collection, Iterable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedsel_app.config import ConfigError

LABEL = "label"
"""Name of the column of labels, unless `data-arguments` name another."""
NUMBERS = ("int", "uint", "float", "bool", "double", "half")
"""Prefixes of the names of numeric types."""


def values(part: Any, names: Collection[str]) -> dict[str, NDArray[Any]]:
    """Name -> values, (n,), of columns of single numbers or texts of a `datasets.Dataset`."""
    table = part.select_columns(list(names)).with_format("arrow")[:] if names else {}
    return {name: table[name].to_numpy() for name in names}


def known_column(name: str, columns: Collection[str], source: str) -> str:
    """Return `name` if it is one of `columns`. Otherwise raise ConfigError; its message begins with `source`."""
    if name not in columns:
        raise ConfigError(f"{source} has no column {name!r}, which 'data-arguments' name. It has {', '.join(columns)}.")
    return name


def label_column(named: str, columns: Collection[str], source: str) -> str:
    """Column of the labels: the one `named`, or else `LABEL`. Raises ConfigError if it is absent."""
    if named or LABEL in columns:
        return known_column(named or LABEL, columns, source)
    raise ConfigError(
        f"{source} does not say which of {', '.join(columns)} has the labels. "
        "Name it: --set 'data-arguments=label=\"NAME\"'."
    )


def numbered(labels: Mapping[str, NDArray[Any]], task: str) -> tuple[dict[str, NDArray[Any]], int | None]:
    """Labels of each part, (n,), as numbers, and the number of classes if they are texts, else None.

    Texts are numbered in alphabetical order. Unless the `task` is regression, truth values and whole numbers become
    int64.
    """
    if any(values.dtype == np.object_ for values in labels.values()):
        names = np.unique(np.concatenate(list(labels.values())))
        return {part: np.searchsorted(names, values) for part, values in labels.items()}, len(names)
    whole = all((values == np.round(values)).all() for values in labels.values() if values.dtype.kind == "f")
    counted = {
        part: values.astype(np.int64) if values.dtype.kind in "bf" else values for part, values in labels.items()
    }
    return (counted if whole and task != "regression" else dict(labels)), None


def owners(values: NDArray[Any]) -> NDArray[np.int64]:
    """Owners of the examples, (n,), numbered from 0 in the order of their names."""
    return np.unique(values, return_inverse=True)[1]


class Columns:
    """Columns of a data set of `datasets` with the samples and the labels.

    Parameters
    ----------
    features
        Name -> type of each column of the training split.
    arguments
        Those of `data-arguments`: `label`, `input` and `owner` name columns. Without them the labels are the only
        column of classes, or else `LABEL`, and the inputs are found by their types.
    source
        Beginning of error messages.

    Raises
    ------
    ConfigError
        If a named column is absent, or if it is not clear which columns have the labels or the samples.
    """

    def __init__(self, features: Mapping[str, Any], arguments: Mapping[str, Any], source: str) -> None:
        self._features, self._source = features, source
        self._types = {name: type(kind).__name__ for name, kind in features.items()}
        self.single = [name for name, kind in self._types.items() if kind in ("Value", "ClassLabel")]
        classes = [name for name, kind in self._types.items() if kind == "ClassLabel"]
        named = arguments.get("label") or (classes[0] if len(classes) == 1 else "")
        self.label = label_column(named, classes if len(classes) > 1 and not named else features, source)
        self._task = arguments.get("task", "classification")
        inputs = [known_column(name, features, source) for name in arguments.get("input", [])]
        self.inputs = inputs or self._found_inputs({self.label, arguments.get("owner", "")})

    def _found_inputs(self, others: set[str]) -> list[str]:
        rest = [name for name in self._features if name not in others]
        images = [name for name in rest if self._types[name] == "Image"]
        arrays = [name for name in rest if name not in self.single and name not in images]
        if len(images) == 1 or (len(arrays) == 1 and not images):
            return images or arrays
        if not rest or images or arrays or not all(map(self._is_number, rest)):
            raise ConfigError(
                f"{self._source} does not say which of its columns {', '.join(rest)} have the samples: one column of "
                "images, one of arrays, or only columns of numbers. Name them in 'data-arguments', as in "
                'input=["NAME"].'
            )
        return rest

    def _is_number(self, name: str) -> bool:
        return self._types[name] == "ClassLabel" or (
            name in self.single and str(self._features[name].dtype).startswith(NUMBERS)
        )

    def samples(self, part: Any, size: int) -> NDArray[Any]:
        """Samples of a split: uint8 images (n, H, W) or (n, H, W, 3), or arrays and tables (n, ...).

        Images are scaled to `size` x `size` pixels if `size` is above 0.

        Raises
        ------
        ConfigError
            If the split lacks a column, the input columns have several kinds, or the arrays several shapes.
        """
        part = self._selected(part, self.inputs)
        if all(map(self._is_number, self.inputs)):
            columns = values(part, self.inputs)
            return np.stack([columns[name] for name in self.inputs], axis=1).astype(np.float32)
        if len(self.inputs) > 1 or self.inputs[0] in self.single:
            raise ConfigError(
                f"{self._source} has the 'input' {', '.join(self.inputs)} in 'data-arguments'. It must be one column "
                "of images, one column of arrays, or columns of numbers."
            )
        name = self.inputs[0]
        if self._types[name] == "Image":
            return self._images((row[name] for row in part), size)
        return self._arrays(part, name)

    def targets(self, parts: Mapping[str, Any]) -> tuple[dict[str, NDArray[Any]], int | None]:
        """Targets: y_NAME of each part, and the number of classes if they have names, else None.

        Labels that are texts are numbered in alphabetical order.
        """
        name = self.label
        kind = self._features[self.label]
        chosen = {f"y_{key}": self._selected(part, [name]) for key, part in parts.items()}
        if name not in self.single:
            return {key: self._arrays(part, name) for key, part in chosen.items()}, None
        found = {key: values(part, [name])[name] for key, part in chosen.items()}
        if any(label is None for array in found.values() if array.dtype == np.object_ for label in array):
            raise ConfigError(f"{self._source} has rows without a label in '{name}'. Remove them.")
        targets, classes = numbered(found, self._task)
        return targets, kind.num_classes if self._types[name] == "ClassLabel" else classes

    def _selected(self, part: Any, names: list[str]) -> Any:
        if absent := [name for name in names if name not in part.column_names]:
            raise ConfigError(f"{self._source} has no column {', '.join(absent)} in its test split.")
        return part.select_columns(names)

    def _arrays(self, part: Any, name: str) -> NDArray[Any]:
        try:
            found = np.stack([np.asarray(row) for row in part.with_format("numpy")[:][name]])
        except ValueError as error:
            raise ConfigError(f"{self._source} has arrays of several shapes in '{name}'. Use one shape.") from error
        return found if found.dtype == np.uint8 and found.ndim > 2 else found.astype(np.float32)

    def _images(self, images: Iterable[Any], size: int) -> NDArray[np.uint8]:
        from PIL import Image

        pixels: list[NDArray[np.uint8]] = []
        for image in images:
            if image is None:
                raise ConfigError(f"{self._source} has rows without an image in '{self.inputs[0]}'. Remove them.")
            plain = image.convert("L" if image.mode in ("1", "L") else "RGB")
            pixels.append(np.asarray(plain.resize((size, size), Image.Resampling.BILINEAR) if size else plain))
        if len({array.shape[:2] for array in pixels}) > 1:
            raise ConfigError(f"{self._source} has images of several sizes. Set 'image-size' to scale all of them.")
        if len({array.ndim for array in pixels}) > 1:
            pixels = [array if array.ndim == 3 else np.repeat(array[..., None], 3, axis=2) for array in pixels]
        return np.stack(pixels)
