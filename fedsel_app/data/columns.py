"""Columns of labelled data: those of the labels, of the owners and of the samples, in a table or in `datasets`.

The column of labels is the one that `data-arguments` name, or else the column `label`. The samples are one column of
images, one column of arrays, or the other columns, which are a table (`fedsel_app.data.tables`).
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from fedsel_app.config import ConfigError
from fedsel_app.config.data import KINDS
from fedsel_app.data.tables import known_columns, parsed, refuse, refuse_duplicates, required, texts

LABEL = "label"
"""Name of the column of labels, unless `data-arguments` name another."""
INDEX = re.compile(r"__index_level_\d+__")
"""Name that pandas gives a column with the index of a table."""


class Roles:
    """Roles of the columns: `label`, `owner` (empty without one), and `inputs`.

    Parameters
    ----------
    columns
        Names of the columns.
    arguments
        Those of `data-arguments`: `label`, `input` and `owner` name columns.
    source
        Beginning of error messages.
    index
        Columns that have the index of a table: inputs only if `input` names them.
    label
        Column of the labels, unless the arguments name it.

    Raises
    ------
    ConfigError
        If a named column is absent, two have one name, no column has the labels, or none is left for the inputs.
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
        refuse_duplicates(columns, source)
        named, self.owner = arguments.get("label") or label, arguments.get("owner", "")
        inputs = arguments.get("input", [])
        of_kinds = [name for kind in (*KINDS, "categories") for name in arguments.get(kind, [])]
        known_columns([*filter(None, [named, self.owner]), *inputs, *of_kinds], columns, source)
        if not named and LABEL not in columns:
            raise ConfigError(
                f"{source} does not say which of {', '.join(columns)} has the labels. "
                "Name it: --set 'data-arguments=label=\"NAME\"'."
            )
        self.label = named or LABEL
        others = {self.label, self.owner, *index}
        self.inputs = inputs or [name for name in columns if name not in others]
        if not self.inputs:
            raise ConfigError(f"{source} has no column for the inputs, in addition to the labels.")
        self._source = source

    def owners(self, table: pd.DataFrame) -> NDArray[Any]:
        """Owners of the rows, (n,), as numbers or texts. Raises ConfigError if a row has none."""
        found = required(table[self.owner], "owner", self._source)
        return np.asarray(found if found.dtype.kind in "iuf" else texts(found))


def labels(parts: Mapping[str, pd.Series], task: str, source: str) -> tuple[dict[str, NDArray[Any]], tuple[str, ...]]:
    """Labels of each part, (n,), as numbers, and the names of the classes if they are texts.

    Texts are numbered in alphabetical order. Unless the `task` is regression, truth values and whole numbers become
    int64.

    Raises
    ------
    ConfigError
        If a row has no label, or one that is not a number although the task or most labels are.
    """
    found = {part: required(column, "label", source) for part, column in parts.items()}
    if task == "regression":
        return {part: _numbers(column, source) for part, column in found.items()}, ()
    if all(column.dtype.kind in "biuf" for column in found.values()):
        values = {part: column.to_numpy() for part, column in found.items()}
        whole = all((array == np.round(array)).all() for array in values.values() if array.dtype.kind == "f")
        kinds = "bf" if whole else "b"
        return {part: a.astype(np.int64) if a.dtype.kind in kinds else a for part, a in values.items()}, ()
    named = {part: texts(column) for part, column in found.items()}
    names = sorted(set().union(*named.values()))
    numeric = pd.to_numeric(pd.Series(names, dtype=object), errors="coerce").notna()
    if 2 * int(numeric.sum()) > len(names) and not numeric.all():
        for column in named.values():
            _numbers(column, source)
    return {part: pd.Index(names).get_indexer(column) for part, column in named.items()}, tuple(names)


def _numbers(column: pd.Series, source: str) -> NDArray[np.float64]:
    values = parsed(column)
    refuse(column, ~np.isfinite(values), "number", source)
    return np.asarray(values)
