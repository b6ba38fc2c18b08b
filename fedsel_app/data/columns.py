"""Columns of a data set of Hugging Face's `datasets`: those that hold the samples and the one of the labels, as arrays.

Samples are one column of images, one of arrays, or several of numbers: a table's features.
"""

from collections.abc import Collection, Iterable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedsel_app.config import ConfigError

LABELS = ("label", "labels", "target", "y", "class")
"""Names that a column of labels goes by."""
NUMBERS = ("int", "uint", "float", "bool", "double", "half")
"""Beginnings of the names of numbers' types."""


def values(part: Any, names: Collection[str]) -> dict[str, NDArray[Any]]:
    """Name -> values, (n,), of columns of single numbers or texts of a `datasets.Dataset`."""
    table = part.select_columns(list(names)).with_format("arrow")[:] if names else {}
    return {name: table[name].to_numpy() for name in names}


class Columns:
    """Columns that hold the samples and the labels.

    Parameters
    ----------
    features
        Name -> type of each column of the training split.
    arguments
        Those of `data-arguments`: `label`, `input` and `owner` name columns, which are found by their types otherwise.
    source
        Beginning of an error's sentence.

    Raises
    ------
    ConfigError
        Where a named column is absent, or it is not clear which hold the labels or the samples.
    """

    def __init__(self, features: Mapping[str, Any], arguments: Mapping[str, Any], source: str) -> None:
        self._features, self._source = features, source
        self._types = {name: type(kind).__name__ for name, kind in features.items()}
        self.single = [name for name, kind in self._types.items() if kind in ("Value", "ClassLabel")]
        self.label = self._label(arguments.get("label", ""))
        self.inputs = [self.known(name) for name in arguments.get("input", [])] or self._found_inputs(
            {self.label, arguments.get("owner", "")}
        )

    def known(self, name: str, columns: Iterable[str] | None = None) -> str:
        """`name`; ConfigError unless it is one of `columns`, by default of all."""
        known = list(self._features if columns is None else columns)
        if name not in known:
            raise ConfigError(
                f"{self._source} has no column {name!r} as 'data-arguments' say: there are {', '.join(known)}."
            )
        return name

    def _label(self, named: str) -> str:
        if named:
            return self.known(named)
        classes = [name for name, kind in self._types.items() if kind == "ClassLabel"]
        found = classes or [name for name in LABELS if name in self._features]
        if len(found) != 1:
            raise ConfigError(
                f"{self._source} does not say which of {', '.join(found or self._features)} has the labels. "
                "Name it in 'data-arguments', as in label=\"NAME\"."
            )
        return found[0]

    def _found_inputs(self, others: set[str]) -> list[str]:
        rest = [name for name in self._features if name not in others]
        images = [name for name in rest if self._types[name] == "Image"]
        arrays = [name for name in rest if name not in self.single and name not in images]
        if len(images) == 1 or (len(arrays) == 1 and not images):
            return images or arrays
        if not rest or images or arrays or not all(map(self._is_number, rest)):
            raise ConfigError(
                f"{self._source} does not say which of its columns {', '.join(rest)} to learn from: there is neither "
                "one of images nor one of arrays, nor are all of them numbers. Name them in 'data-arguments', as in "
                'input=["NAME"].'
            )
        return rest

    def _is_number(self, name: str) -> bool:
        return self._types[name] == "ClassLabel" or (
            name in self.single and str(self._features[name].dtype).startswith(NUMBERS)
        )

    def samples(self, part: Any, size: int) -> NDArray[Any]:
        """Samples of a split: uint8 images (n, H, W) or (n, H, W, 3), or arrays and tables (n, ...).

        Images are scaled to `size` x `size` pixels where that is above 0.

        Raises
        ------
        ConfigError
            Where the split lacks a column, or columns of several kinds or arrays of several shapes are the samples.
        """
        part = self._selected(part, self.inputs)
        if all(map(self._is_number, self.inputs)):
            columns = values(part, self.inputs)
            return np.stack([columns[name] for name in self.inputs], axis=1).astype(np.float32)
        if len(self.inputs) > 1 or self.inputs[0] in self.single:
            raise ConfigError(
                f"{self._source} cannot be learnt from {', '.join(self.inputs)}, as 'data-arguments' say: 'input' must "
                "be one column of images, one of arrays, or columns of numbers."
            )
        name = self.inputs[0]
        if self._types[name] == "Image":
            return self._images((row[name] for row in part), size)
        return self._arrays(part, name)

    def targets(self, parts: Mapping[str, Any]) -> tuple[dict[str, NDArray[Any]], int | None]:
        """Targets: y_NAME of each part, and the number of classes where they have names, else None.

        Labels that are texts are numbered in the order of the alphabet.
        """
        name, kind = self.label, self._features[self.label]
        chosen = {f"y_{key}": self._selected(part, [name]) for key, part in parts.items()}
        if name not in self.single:
            return {key: self._arrays(part, name) for key, part in chosen.items()}, None
        found = {key: values(part, [name])[name] for key, part in chosen.items()}
        if all(array.dtype == np.bool_ for array in found.values()):
            return {key: array.astype(np.int64) for key, array in found.items()}, None
        if any(array.dtype == np.object_ for array in found.values()):
            if any(label is None for array in found.values() for label in array):
                raise ConfigError(f"{self._source} has rows without a label in '{name}'. Remove them.")
            names = np.unique(np.concatenate(list(found.values())))
            return {key: np.searchsorted(names, array) for key, array in found.items()}, len(names)
        return found, kind.num_classes if self._types[name] == "ClassLabel" else None

    def _selected(self, part: Any, names: list[str]) -> Any:
        if absent := [name for name in names if name not in part.column_names]:
            raise ConfigError(f"{self._source} has no column {', '.join(absent)} in its test split.")
        return part.select_columns(names)

    def _arrays(self, part: Any, name: str) -> NDArray[Any]:
        try:
            found = np.stack([np.asarray(row) for row in part.with_format("numpy")[:][name]])
        except ValueError as error:
            raise ConfigError(f"{self._source} has arrays of several shapes in '{name}'. Make them alike.") from error
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
