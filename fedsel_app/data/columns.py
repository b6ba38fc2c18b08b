"""Columns of labelled data: those of the labels, of the owners and of the samples, in a table or in `datasets`.

The column of labels is the one that `data-arguments` name, or else the column `label`. The samples are one column of
images, one column of arrays, or the other columns, which are a table (`fedsel_app.data.tables`).
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import takewhile
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from fedsel_app.config import ConfigError
from fedsel_app.config.data import KINDS, MOST_CLASSES
from fedsel_app.data.tables import NUMERIC, known_columns, parsed, refuse, required, texts

LABEL = "label"
"""Name of the column of labels, unless `data-arguments` name another."""
INDEX = re.compile(r"(Unnamed: \d+(\.\d+)*)?")
"""Names of first columns with the index of a table that pandas wrote."""
NUMBERING = ("index", "level_0")
"""Names that pandas gives an index which becomes a column."""


def index_columns(names: Sequence[str], values: Callable[[str], Any]) -> list[str]:
    """Names of the columns at the start that are no data: pandas wrote an index there.

    A column is an index if it has no name, a name such as "Unnamed: 0", or a name of `NUMBERING` and the `values` 0, 1,
    2, and so on.
    """

    def is_index(name: str) -> bool:
        if name not in NUMBERING:
            return INDEX.fullmatch(name) is not None
        column = np.asarray(values(name))
        return np.array_equal(column, np.arange(len(column)))

    return list(takewhile(is_index, names))


class UnnamedLabelError(ConfigError):
    """Nothing names the column of the labels among `columns`, and none is called `LABEL`."""

    def __init__(self, source: str, columns: Sequence[str]) -> None:
        super().__init__(
            f"{source} does not say which of {', '.join(columns)} has the labels. "
            "Name it: --set 'data-arguments=label=\"NAME\"'."
        )
        self.columns = list(columns)


class Roles:
    """Roles of the columns: `label`, `owner` (empty without one), and `inputs`.

    Raises ConfigError if a named column is absent, no column has the labels, an input has them or is named twice, or
    none is left for the inputs.

    Parameters
    ----------
    columns : names of the columns
    arguments : those of `data-arguments`: `label`, `input` and `owner` name columns
    source : beginning of error messages
    index : columns that have the index of a table: inputs only if `input` names them
    label : column of the labels, unless the arguments name it
    """

    def __init__(
        self,
        columns: Sequence[str],
        arguments: Mapping[str, Any],
        source: str,
        *,
        index: Iterable[str] = (),
        label: str = "",
    ) -> None:
        named, self.owner = arguments.get("label") or label, arguments.get("owner", "")
        inputs = arguments.get("input", [])
        of_kinds = [name for kind in (*KINDS, "categories", "fill") for name in arguments.get(kind, [])]
        known_columns([*filter(None, [named, self.owner]), *inputs, *of_kinds], columns, source)
        if not named and LABEL not in columns:
            raise UnnamedLabelError(source, columns)
        self.label = named or LABEL
        if wrong := [name for name in inputs if name == self.label or inputs.count(name) > 1]:
            raise ConfigError(
                f"Name each column once in the 'input' of 'data-arguments', and not the labels: {source} is to have "
                f"'{wrong[0]}' as an input."
            )
        others = {self.label, self.owner, *index}
        self.inputs = inputs or [name for name in columns if name not in others]
        if not self.inputs:
            raise ConfigError(f"{source} has no column for the inputs, in addition to the labels.")
        self._source = source

    def owners(self, table: pd.DataFrame) -> NDArray[Any]:
        """Owners of the rows, (n,), as numbers or texts. Raises ConfigError if a row has none."""
        column = required(table[self.owner], "owner", self._source)
        return np.asarray(column if column.dtype.kind in "iuf" else texts(column))


def labels(
    parts: Mapping[str, pd.Series], task: str, source: str, *, named: bool = False
) -> tuple[dict[str, NDArray[Any]], tuple[str, ...]]:
    """Labels of each part, (n,), as numbers, and the names of the classes if they are texts.

    Texts are numbered in alphabetical order; numbers are texts if the classes are `named`. Unless the `task` is
    regression, truth values and whole numbers become int64.

    Raises ConfigError if a row has no label, or a number that is no class. Raises ConfigError for a text too, if the
    task is regression or most labels are numbers.
    """
    filled = {part: required(column, "label", source) for part, column in parts.items()}
    if task == "regression":
        return {part: _numbers(column, source) for part, column in filled.items()}, ()
    if not named and all(column.dtype.kind in NUMERIC for column in filled.values()):
        for column in filled.values():
            numbers = column.astype(np.float64)
            wrong = ~numbers.between(0, MOST_CLASSES - 1) | (numbers % 1 != 0)
            ways = ['classes=["-1", "1"], with the names of all classes,', 'task="regression"']
            refuse(column, wrong, f"number of a class, from 0 to {MOST_CLASSES - 1:,}", source, ways)
        return {part: column.to_numpy().astype(np.int64) for part, column in filled.items()}, ()
    words = {part: texts(column) for part, column in filled.items()}
    names = sorted(set().union(*words.values()))
    numeric = pd.to_numeric(pd.Series(names, dtype=object), errors="coerce").notna()
    if not named and 2 * int(numeric.sum()) > len(names) and not numeric.all():
        for column in words.values():
            _numbers(column, source)
    return {part: pd.Index(names).get_indexer(column) for part, column in words.items()}, tuple(names)


def _numbers(column: pd.Series, source: str) -> NDArray[np.float64]:
    values = parsed(column)
    refuse(column, ~np.isfinite(values), "number", source)
    return np.asarray(values)
