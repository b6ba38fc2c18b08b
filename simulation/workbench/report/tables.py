"""Tables of a report, written as text cells, as LaTeX, and as CSV with all digits.

A LaTeX document with these tables needs the packages booktabs and adjustbox.
"""

import csv
import io
import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from simulation.workbench.comparison.statistics import Estimate, Floats

ABSENT = "–"
FORMULA = ("=", "+", "-", "@", "\t", "\r")
NUMBER = re.compile(r"[-+]?(\d+\.?\d*|\.\d+)(e[-+]?\d+)?|[-+]?(inf|nan)", re.IGNORECASE)
FREE = -1
"""`Heading.digits` for numbers of very different sizes: they have four significant digits."""

HEAD = "% \\usepackage{adjustbox, booktabs}\n"
ESCAPES = {
    **{character: f"\\{character}" for character in "&%$#_{}"},
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"$<$",
    ">": r"$>$",
    "|": r"$|$",
    "*": r"$*$",
    "±": r"$\pm$",
    "²": r"$^2$",
    "⁶": r"$^6$",
    "–": "--",
    "∞": r"$\infty$",
}


def capital(text: str) -> str:
    """Text with its first letter in upper case."""
    return text[:1].upper() + text[1:]


def number_text(number: float, digits: int) -> str:
    """Number with `digits` digits after the point; with two significant digits if it is too small for these."""
    if digits == FREE:
        return f"{number:.4g}"
    if 1e-9 < abs(number) < 10.0 ** (1 - digits):
        return f"{number:.2g}"
    return f"{round(number, digits) + 0.0:.{digits}f}"


NAMES = ("ranking", "score", "differences", "participation", "clients", "runs", "failures", "tuning")
"""Names of the report's tables."""


@dataclass(frozen=True)
class Spread:
    """Mean and standard deviation (n - 1) over `n` runs; NaN for fewer than one, and fewer than two."""

    mean: float
    deviation: float
    n: int

    @classmethod
    def of(cls, values: Floats) -> "Spread":
        """Mean and deviation of `values` (n,)."""
        mean, deviation = (float(values.mean()) if values.size else math.nan), math.nan
        return cls(mean, float(values.std(ddof=1)) if values.size > 1 else deviation, values.size)


@dataclass(frozen=True)
class Heading:
    """Column: its name, digits after the point of its numbers, and whether its cells are `Estimate`s or `Spread`s."""

    name: str
    digits: int = 0
    estimates: bool = False
    spreads: bool = False

    @property
    def parts(self) -> dict[str, str]:
        """Attribute of a cell -> the end of its column's name in a CSV file."""
        if self.estimates:
            return {"mean": "", "low": " (low)", "high": " (high)", "n": " (n)"}
        return {"mean": "", "deviation": " (sd)", "n": " (n)"} if self.spreads else {}

    def shown(self, cell: Any, *, spread: bool = True) -> str:
        """Text of a cell: a mean with its interval or, with `spread`, its deviation; a value; a dash without one."""
        if isinstance(cell, Spread):
            mean = self.shown(cell.mean)
            if not (spread and math.isfinite(cell.deviation)):
                return mean
            decimals = len(mean.partition(".")[2])
            deviation = self.shown(cell.deviation) if "e" in mean else f"{cell.deviation:.{decimals}f}"
            return f"{mean} ± {deviation}"
        if isinstance(cell, Estimate):
            interval = f" [{self.shown(cell.low)}, {self.shown(cell.high)}]" if math.isfinite(cell.low) else ""
            return self.shown(cell.mean) + interval
        if cell is None or (isinstance(cell, float) and not math.isfinite(cell)):
            return ABSENT
        return number_text(cell, self.digits) if isinstance(cell, float) else str(cell)


@dataclass(frozen=True)
class Table:
    """Table: rows under columns; `name` is part of the CSV file's name, `caption` explains the numbers."""

    name: str
    title: str
    caption: str
    columns: Sequence[Heading]
    rows: Sequence[Sequence[Any]]

    def texts(self, *, spread: bool = True) -> list[list[str]]:
        """Texts of the cells, row by row: see `Heading.shown`."""
        return [
            [column.shown(cell, spread=spread) for column, cell in zip(self.columns, row, strict=True)]
            for row in self.rows
        ]

    def without_empty(self) -> "Table":
        """The table without the columns that are empty in every row."""
        texts = [[column.name for column in self.columns], *self.texts()]
        filled = [index for index, (_, *cells) in enumerate(zip(*texts, strict=True)) if not {*cells} <= {"", ABSENT}]
        rows = [[row[index] for index in filled] for row in self.rows]
        return replace(self, columns=[self.columns[index] for index in filled], rows=rows) if rows else self


def csv_text(tables: Iterable[tuple[str, Table]]) -> str:
    """CSV text of tables of one kind, one after the other. If any table has a label, each row begins with its label."""
    labelled = list(tables)
    lead = any(label for label, _ in labelled)
    output = io.StringIO()
    writer = csv.writer(output, lineterminator="\n")
    header = None
    for label, table in labelled:
        columns = [
            f"{inert(column.name)}{ending}" for column in table.columns for ending in column.parts.values() or ("",)
        ]
        if columns != header:
            writer.writerow(["cell"] * lead + columns)
            header = columns
        for row in table.rows:
            cells = [value for column, cell in zip(table.columns, row, strict=True) for value in _csv(column, cell)]
            writer.writerow([inert(label)] * lead + cells)
    return output.getvalue()


def _csv(column: Heading, cell: Any) -> list[Any]:
    values = [getattr(cell, part) for part in column.parts] or [cell]
    return ["" if isinstance(value, float) and not math.isfinite(value) else inert(value) for value in values]


def inert(value: Any) -> Any:
    """The value of a CSV cell, with a quote before text that a spreadsheet would read as a formula (OWASP)."""
    return (
        f"'{value}" if isinstance(value, str) and value.startswith(FORMULA) and not NUMBER.fullmatch(value) else value
    )


def latex_text(text: str) -> str:
    """Text on one line, escaped for LaTeX."""
    escaped = "".join(ESCAPES.get(character, character) for character in " ".join(text.split()))
    return re.sub(r"(?<![\w.-])-(?=\d)", "$-$", escaped)


def latex_table(cell: str, table: Table) -> str:
    """LaTeX text of a table, as a float; `cell` is the title of its section, empty if there is only one."""
    table = table.without_empty()
    numbers = [not any(isinstance(row[column], str) for row in table.rows) for column in range(len(table.columns))]
    lines = [[column.name for column in table.columns], *table.texts()]
    head, *body = (" & ".join(map(latex_text, line)) + r" \\" for line in lines)
    about = f"{cell}: {table.title}" if cell else table.title
    label = "".join(character if character.isalnum() else "-" for character in f"{table.name} {cell}".strip())
    return HEAD + "\n".join(
        [
            r"\begin{table}[htbp]",
            r"\centering",
            rf"\caption{{{latex_text(f'{about}. {table.caption}')}}}",
            rf"\label{{tab:{label}}}",
            r"\begin{adjustbox}{max width=\linewidth}",
            rf"\begin{{tabular}}{{{''.join('r' if number else 'l' for number in numbers)}}}",
            r"\toprule",
            head,
            r"\midrule",
            *body,
            r"\bottomrule",
            r"\end{tabular}",
            r"\end{adjustbox}",
            r"\end{table}",
            "",
        ]
    )
