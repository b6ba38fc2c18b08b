"""Tables in CSV files, whose first line names the columns; pandas reads their values."""

import csv
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pandas as pd

from fedsel_app.config import ConfigError
from fedsel_app.config.data import composed
from fedsel_app.data.columns import LABEL, Roles, index_columns, labels
from fedsel_app.data.tables import read_columns, refuse_duplicates

SEPARATORS = ",;\t|"
LEADING_ZERO = re.compile(r"\s*0\d")
"""The begin of a name that pandas would read as a number, such as 007."""


def read(path: Path, arguments: Mapping[str, Any], source: str) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Read a table; its lines are named in messages.

    Raises ConfigError if the file is absent or is not a table, a named column is absent, or a row lacks its label or
    its owner.

    Returns
    -------
    arrays : x_train, plain values of the inputs, whose `columns` are those of a table; y_train; task; owners if
        `data-arguments` name their column
    names : names of the classes if the labels are texts, which are numbered in alphabetical order
    """
    table = _table(path, arguments, source)
    roles = Roles(list(table.columns), arguments, source)
    task = arguments.get("task", "classification")
    targets, names = labels({"y_train": table[roles.label]}, task, source, named="classes" in arguments)
    columns, [samples] = read_columns([table[roles.inputs]], arguments, source)
    arrays = {"x_train": samples, "columns": columns, "task": task, **targets}
    if roles.owner:
        arrays["owners"] = roles.owners(table)
    return arrays, names


def _table(path: Path, arguments: Mapping[str, Any], source: str) -> pd.DataFrame:
    if not path.is_file():
        kind = "is a folder" if path.is_dir() else "does not exist"
        raise ConfigError(f"{source} {kind}. Set 'data-path' to a .csv file whose first line names the columns.")
    if path.suffix.lower() == ".gz":
        raise ConfigError(f"{source} is packed. Unpack it, and set 'data-path' to the .csv file.")
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            first = file.readline()
            if first.startswith("sep="):
                raise ConfigError(f"{source} begins with Excel's line {first.strip()!r}. Remove this line.")
            separator = max(SEPARATORS, key=first.count)
            file.seek(0)
            named = {arguments.get("owner", "")}
            if arguments.get("task") != "regression":
                named.add(arguments.get("label") or LABEL)
            rows = csv.reader(file, delimiter=separator, skipinitialspace=True)
            names, lines, texts = _lines(rows, named, source)
            texts |= {name for key in ("category", "categories", "date") for name in arguments.get(key, [])}
            texts |= {column.name for column in arguments.get("columns", ()) if column.kind != "number"}
            file.seek(0)
            table = pd.read_csv(
                file,
                sep=separator,
                names=names,
                header=0,
                index_col=False,
                dtype=dict.fromkeys(texts & set(names), str),
                skipinitialspace=True,
                low_memory=False,
            )
    except UnicodeDecodeError as error:
        raise ConfigError(f"{source} is not text in UTF-8: save it with this encoding ({error}).") from error
    except (csv.Error, pd.errors.ParserError) as error:
        raise ConfigError(f"{source} cannot be read as CSV: {error}.") from error
    table.index = pd.Index(lines, name="line")
    return table.drop(columns=index_columns(names, table.__getitem__))


def _lines(rows: Any, named: set[str], source: str) -> tuple[list[str], list[int], set[str]]:
    """Names of the columns, the line in which each row ends, and those of the `named` columns with a leading zero.

    Raises ConfigError for a row of another length.
    """
    names: list[str] = []
    lines: list[int] = []
    zeros: set[str] = set()
    places: dict[str, int] = {}
    for row in filter(None, rows):
        if not names:
            names = [composed(name.strip()) for name in row]
            refuse_duplicates(names, source)
            places = {name: names.index(name) for name in named & set(names)}
        elif len(row) != len(names):
            raise ConfigError(f"{source} has {len(row)} values in line {rows.line_num}, but {len(names)} columns.")
        else:
            lines.append(rows.line_num)
            zeros |= {name for name, position in places.items() if LEADING_ZERO.match(row[position])}
    if not lines:
        raise ConfigError(f"{source} has no rows below the names of its columns.")
    if "" in names[1:]:
        raise ConfigError(f"{source} has no name for column {names.index('', 1) + 1}. Name it in the first line.")
    return names, lines, zeros
