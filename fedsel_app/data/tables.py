"""Tables: columns of numbers, categories and dates, which become the float32 features of a model.

What an encoding learns (the value in place of a missing one, the categories and their order) it learns from the
training part alone. The index of a table has the places of its rows, which messages name: its name is "line" for a
file of lines, or "row", counted from 1.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any, Self

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from fedsel_app.config import ConfigError
from fedsel_app.config.data import KINDS, composed
from fedsel_app.data.arrays import as_floats

MOST_CATEGORIES = 100
"""More different texts are hardly categories, unless `data-arguments` say so."""
MOST_COLUMNS = 10_000
NUMBER_LIKE = re.compile(r"\W*\d+([.,]\d+)*(e[-+]?\d+)?[^\d\n]*", re.IGNORECASE)
"""Numbers, also with a unit or with commas."""
DATE = re.compile(r"\d{4}-\d\d-\d\d([T ]\d\d:\d\d\S*)?")
LEAST_ROWS = 20
"""Fewer rows may well have another value each."""
Vector = NDArray[np.float32]
NUMERIC = "biuf"
"""Kinds of dtype of numbers."""
DURATION = "m"
"""Kind of dtype of times between two moments: no number, unless the user makes it one."""


@dataclass(frozen=True)
class Column:
    """Column of a table, and how its values become features.

    Attributes
    ----------
    kind : one of `KINDS`. A date becomes the number of days since 1970
    type : type of the values in the file
    many : whether `data-arguments` say that it is a category, of however many values
    categories : the values of a category, in their order; any other is unknown
    fill : what stands in place of a missing value; None: nothing does
    indicator : whether a feature tells the missing values from the others
    """

    name: str
    kind: str
    type: str = ""
    many: bool = False
    categories: tuple[str, ...] = ()
    fill: float | str | None = None
    indicator: bool = False

    @property
    def width(self) -> int:
        """Number of features."""
        return (len(self.categories) if self.kind == "category" else 1) + self.indicator

    def fitted(self, values: pd.Series, arguments: Mapping[str, Any], source: str) -> Self:
        """The column with what it learns from the plain values of a training part; see `fit`."""
        missing, fills = arguments.get("missing", ""), arguments.get("fill", {})
        present = values.dropna()
        if present.empty:
            raise ConfigError(
                f"{source} has no value in column '{self.name}' in its training part. Leave it out: name the others in "
                "'data-arguments', as in input=[\"NAME\"]."
            )
        category = self.kind == "category"
        categories = self.categories or (tuple(sorted(present.unique())) if category else ())
        if len(categories) > MOST_CATEGORIES and not self.many:
            raise ConfigError(
                f"{source} has {len(categories):,} different texts in column '{self.name}'. In 'data-arguments', leave "
                f'it out (input=["NAME"] names the others), or say that it is a category: category=["{self.name}"].'
            )
        common = present.mode()[0] if category else float(present.median())
        fill = self.read_fill(fills[self.name], source) if self.name in fills else common if missing else None
        # A file without a training part is that of a federation, whose gaps are elsewhere.
        indicator = missing == "indicator" and (len(present) < len(values) or arguments.get("train") == "")
        return replace(self, categories=categories, fill=fill, indicator=indicator)

    def read_fill(self, stated: Any, source: str) -> float | str:
        """The plain value of what `data-arguments` state for a missing value. A date may be a number of days."""
        if self.kind == "date" and type(stated) in (int, float):
            return float(stated)
        values = pd.Series([stated], pd.Index([1], name="fill"), object, self.name)
        parsed_fill = _plain(values, self, source, fixed=True).iloc[0]
        return str(parsed_fill) if self.kind == "category" else float(parsed_fill)

    def features(self, values: pd.Series) -> NDArray[Any]:
        """Features of plain values, (n, width)."""
        gaps, filled = values.isna(), values if self.fill is None else values.fillna(self.fill)
        features = filled.to_numpy()[:, None]
        if self.kind == "category":
            features = self._codes(filled)[:, None] == np.arange(len(self.categories))
        return np.concatenate([features, gaps.to_numpy()[:, None]], axis=1) if self.indicator else features

    def unknown(self, values: pd.Series) -> pd.Series:
        """True for each plain value that is no known category."""
        return values.notna() & (self._codes(values) < 0) & (self.kind == "category")

    def _codes(self, values: pd.Series) -> NDArray[np.int64]:
        return np.asarray(pd.Index(self.categories, dtype=object).get_indexer(values), np.int64)


@dataclass(frozen=True)
class Encoding:
    """Encoding of a table: its input columns, in their order, and what was counted when they were read.

    Attributes
    ----------
    missing, unknown : of each column, the values that are missing, and those that are no known category
    running : names of the columns that look like identifiers, which float32 may no longer show
    """

    columns: tuple[Column, ...]
    missing: tuple[int, ...]
    unknown: tuple[int, ...]
    running: tuple[str, ...]

    @property
    def units(self) -> tuple[str, ...]:
        """Name of the column of each feature; "" for categories and indicators, which have no unit."""
        measures = ((c.name if c.kind != "category" else "", *[""] * (c.width - 1)) for c in self.columns)
        return tuple(chain.from_iterable(measures))

    def of_measures(self, mean: Vector, std: Vector) -> tuple[Vector, Vector]:
        """Mean and standard deviation of each feature, (features,): categories and indicators are never normalised."""
        measures = [name != "" for name in self.units]
        return np.where(measures, mean, 0), np.where(measures, std, 1)

    def scaling(self, arguments: Mapping[str, Any], source: str) -> dict[str, NDArray[Any]]:
        """Mean and standard deviation of each feature, as far as `arguments` state them.

        Raises ConfigError unless the "scaling" gives each column of numbers or dates two numbers.
        """
        if "scaling" not in arguments:
            return {}
        measured = [column.name for column in self.columns if column.kind != "category"]
        given = {name: np.asarray(pair) for name, pair in arguments["scaling"].items()}
        sound = all(pair.shape == (2,) and pair.dtype.kind in "if" for pair in given.values())
        if sorted(given) != sorted(measured) or not sound:
            raise ConfigError(
                f"{source} needs in the 'scaling' of 'data-arguments' a mean and a standard deviation for each of "
                f"{', '.join(measured)}, as in {{{measured[0] if measured else 'age'}=[45, 12]}}."
            )
        pairs = np.concatenate([[given.get(column.name, (0, 1))] * column.width for column in self.columns])
        return {"mean": pairs[:, 0], "std": pairs[:, 1]}

    def encode(self, table: pd.DataFrame, source: str) -> NDArray[np.float32]:
        """Features of each row of plain values, float32 (n, features)."""
        columns = [(column.features(table[column.name]), f"column '{column.name}'") for column in self.columns]
        return np.concatenate([as_floats(features, what, source) for features, what in columns], axis=1)


def fit(columns: Sequence[Column], arguments: Mapping[str, Any], source: str, *parts: pd.DataFrame) -> Encoding:
    """Encoding of `columns`, from the first part of a table of plain values; of those of a schema, without its values.

    Raises ConfigError if a column has no value in the first part, too many texts for categories, or, in a schema, an
    unknown one.
    """
    first, whole = parts[0], pd.concat(parts)
    fitted = tuple(columns)
    if "columns" not in arguments:
        fitted = tuple(column.fitted(first[column.name], arguments, source) for column in columns)
    for column in columns if "columns" in arguments else ():
        what = f"category of the server's schema ({', '.join(column.categories)})"
        ways = [f"categories={{{column.name}=[...]}} on the server"]
        refuse(first[column.name], column.unknown(first[column.name]), what, source, ways)
    missing = tuple(whole.isna().sum().tolist())
    unknown = tuple(int(column.unknown(whole[column.name]).sum()) for column in fitted)
    running = tuple(each.name for each in fitted if each.kind != "date" and _running(whole[each.name].dropna()))
    return Encoding(fitted, missing, unknown, running)


def _running(values: pd.Series) -> bool:
    """True if plain values are another text or whole number in each row, or whole numbers that float64 merges."""
    if len(values) < LEAST_ROWS or values.dtype == object:
        return len(values) >= LEAST_ROWS and values.is_unique
    return bool((values % 1 == 0).all() and (values.is_unique or values.abs().max() > 2**53))


def read_columns(
    parts: Sequence[pd.DataFrame], arguments: Mapping[str, Any], source: str
) -> tuple[tuple[Column, ...], list[pd.DataFrame]]:
    """The columns of a table, and its parts in plain values: numbers and days are float64, categories texts.

    The columns are those of the schema in `arguments` ("columns"). Without one, each has the kind that `arguments`
    name, or that its type and its values in the first part have.

    Raises ConfigError, with the column and the place, if the table lacks a column of the schema or has another one, or
    if a value is of another kind than its column, or missing where it may not be.
    """
    stated, first = arguments.get("columns", ()), parts[0]
    columns = tuple(stated) or tuple(_column(first[name], arguments) for name in first.columns)
    names = [column.name for column in columns]
    if absent := [name for name in names if name not in first]:
        raise ConfigError(
            f"{source} has no column '{absent[0]}' of the server's schema ({', '.join(names)}). Add it, or rename the "
            "column that has its values."
        )
    if foreign := list(first.columns.difference(names, sort=False)):
        raise ConfigError(
            f"{source} has the column '{foreign[0]}', which the server's schema does not have. Leave it out: "
            f"'data-arguments' with input={json.dumps(names)}."
        )
    for column in stated:
        if column.kind == "category" and (own := _column(first[column.name], arguments)).kind != "category":
            raise ConfigError(
                f"{source} has a {own.kind} in each row of column '{column.name}', which is a category in the server's "
                f"schema. If it is one, say so in 'data-arguments' of this client: category=[\"{column.name}\"]."
            )
    gaps = {column.name for column in columns if column.fill is not None or column.name in arguments.get("fill", {})}
    gaps |= set(names) if "missing" in arguments and not stated else set()
    made = []
    for part in parts:
        values = {each.name: _plain(part[each.name], each, source, fixed=bool(stated)) for each in columns}
        for name, plain in values.items():
            if name not in gaps and (empty := plain.isna()).any():
                raise ConfigError(
                    f"{source} has no value in column '{name}', {place(empty)} ({int(empty.sum())} in all). Say what "
                    f"takes its place in 'data-arguments'{' of the server' if stated else ''}: missing="
                    '"median", or "indicator", which is the median and a feature that tells. Or remove these rows.'
                )
        made.append(pd.DataFrame(values, index=part.index))
    return columns, made


def _column(values: pd.Series, arguments: Mapping[str, Any]) -> Column:
    name = str(values.name)
    categories = arguments.get("categories", {}).get(name, [])
    named = "category" if categories else next((kind for kind in KINDS if name in arguments.get(kind, [])), "")
    kind = named or kind_of(values)
    return Column(name, kind, str(values.dtype), bool(named), tuple(dict.fromkeys(map(str, categories))))


def kind_of(values: pd.Series) -> str:
    """Kind of a column by its type and, if it has texts, by these."""
    if isinstance(values.dtype, pd.CategoricalDtype):
        return "category"
    values = values.dropna().infer_objects()
    if values.dtype.kind in NUMERIC + DURATION:
        return "number"
    if values.dtype.kind == "M":
        return "date"
    different = [str(text) for text in values.unique()]
    if different and all(map(DATE.fullmatch, different)):
        return "date"
    return "number" if 2 * sum(map(bool, map(NUMBER_LIKE.fullmatch, different))) > len(different) else "category"


def _plain(found: pd.Series, column: Column, source: str, *, fixed: bool) -> pd.Series:
    if column.kind == "category":
        return texts(found)
    if column.kind == "date":
        days = pd.to_datetime(texts(found), errors="coerce", utc=True, format="ISO8601")
        values = (days - pd.Timestamp("1970-01-01", tz="UTC")) / pd.Timedelta(days=1)
    else:
        values = parsed(found)
    ways = [] if fixed else [f'category=["{found.name}"] if these are categories', "input=[...] without this column"]
    refuse(found, (values.isna() & found.notna()) | np.isinf(values), column.kind, source, ways)
    return values


def parsed(column: pd.Series) -> pd.Series:
    """Values of a column as float64; what is not a number is missing."""
    numbers = column if column.dtype.kind in NUMERIC else pd.to_numeric(column.astype(object), errors="coerce")
    return numbers.astype(np.float64)


def texts(column: pd.Series) -> pd.Series:
    """Values of a column as texts in NFC without spaces around them; gaps are None, whole numbers have no point."""

    def text(value: Any) -> str:
        return composed(str(int(value) if column.dtype.kind == "f" and value % 1 == 0 else value).strip())

    made = [None if gap else text(value) for value, gap in zip(column, column.isna(), strict=True)]
    return pd.Series(made, column.index, object, column.name)


def refuse(column: pd.Series, wrong: pd.Series, kind: str, source: str, ways: Sequence[str] = ()) -> None:
    """Raise ConfigError if a value of a column is wrong: not a `kind`. `ways` are what 'data-arguments' may say."""
    if not wrong.any():
        return
    given, count = str(column[wrong].iloc[0]), int(wrong.sum())
    more = f" ({count:,} values in all)" if count > 1 else ""
    advice = f", or set in 'data-arguments' {' or '.join(ways)}" if ways else ""
    raise ConfigError(
        f"{source} has {given!r} in column '{column.name}', {place(wrong)}{more}, which is not a {kind}. "
        f"Correct it{advice}."
    )


def place(where: pd.Series) -> str:
    """Place of the first True, such as "line 17"."""
    return f"{where.index.name} {where.index[where].min()}"


def refuse_duplicates(names: Sequence[str], source: str) -> None:
    """Raise ConfigError if two columns have the same name, or there are more than `MOST_COLUMNS`."""
    if len(names) > MOST_COLUMNS:
        raise ConfigError(
            f"{source} has {len(names):,} columns, and a table may have {MOST_COLUMNS:,}. Use data=npz for so many."
        )
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise ConfigError(f"{source} has two columns {name!r}. Rename one of them, or remove it.")
        seen.add(name)


def required(column: pd.Series, what: str, source: str) -> pd.Series:
    """Return a column without gaps. Otherwise raise ConfigError; `what` is what a row lacks."""
    if (gaps := column.isna()).any():
        where = f"in column '{column.name}', {place(gaps)} ({int(gaps.sum())} in all)"
        raise ConfigError(f"{source} has no {what} {where}. Correct these rows, or remove them.")
    return column


def known_columns(names: Sequence[str], columns: Sequence[str], source: str) -> None:
    """Raise ConfigError if one of the names that `data-arguments` give is none of `columns`."""
    for name in names:
        if name not in columns:
            raise ConfigError(
                f"{source} has no column {name!r}, which 'data-arguments' name. It has {', '.join(columns)}."
            )
