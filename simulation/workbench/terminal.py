"""Terminal: consoles with the width of the terminal or of COLUMNS, and tables."""

import os
import sys
from collections.abc import Iterable
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from fedsel_app.records.reading import legible

WIDTH = 160
"""Characters of a line without a terminal and without COLUMNS."""


def wide_console() -> Console:
    """Console for tables."""
    sized = sys.stdout.isatty() or os.environ.get("COLUMNS", "").isdigit()
    return Console(width=None if sized else WIDTH)


def print_lines(console: Console, lines: Iterable[str]) -> None:
    """Print lines unchanged: without markup, colours or wrapping."""
    for line in lines:
        console.print(line, markup=False, highlight=False, soft_wrap=True)


def duration_text(seconds: float) -> str:
    """Text of an estimated duration, in seconds, minutes or hours."""
    if seconds < 90.0:
        return f"{seconds:.0f} s"
    return f"{seconds / 60.0:.0f} min" if seconds < 5400.0 else f"{seconds / 3600.0:.1f} h"


class PlainTable(Table):
    """Table whose cells are texts without markup."""

    def add_row(self, *cells: Any) -> None:  # type: ignore[override]
        """Add a row of texts, whose brackets are no markup."""
        super().add_row(*map(_plain, cells))


def whole_table(
    names: str, *columns: str, numbers: tuple[str, ...] = (), fold: bool = True, title: str = "", caption: str = ""
) -> Table:
    """Table with a column of `names`, further `columns` of text, and right-aligned `numbers`.

    A text that is longer than its column continues on the next line, a name only with `fold`.
    """
    table = PlainTable(title=_plain(title) or None, caption=_plain(caption) or None)
    table.add_column(_plain(names), overflow="fold", no_wrap=not fold)
    for column in columns:
        table.add_column(_plain(column), overflow="fold")
    for column in numbers:
        table.add_column(_plain(column), overflow="fold", justify="right")
    return table


def _plain(text: str) -> str:
    """Markup that shows the text as it is, and its control characters as escapes."""
    return escape(legible(text))
