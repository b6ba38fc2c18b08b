"""Terminal: consoles with the width of the terminal or of COLUMNS, and tables that fit into it."""

import os
import sys
from copy import copy
from typing import Any

from rich.console import Console, ConsoleOptions, RenderResult
from rich.markup import escape
from rich.table import Column, Table
from rich.text import Text

from fedsel_app.records.reading import legible

WIDTH = 160
"""Characters of a line without a terminal and without COLUMNS."""


def wide_console() -> Console:
    """Console for tables."""
    sized = sys.stdout.isatty() or os.environ.get("COLUMNS", "").isdigit()
    return Console(width=None if sized else WIDTH)


def duration_text(seconds: float) -> str:
    """Text of an estimated duration, in seconds, minutes or hours."""
    if seconds < 90.0:
        return f"{seconds:.0f} s"
    return f"{seconds / 60.0:.0f} min" if seconds < 5400.0 else f"{seconds / 3600.0:.1f} h"


class WholeTable(Table):
    """Table that leaves out its last columns if the terminal is too narrow for their words, and names them below."""

    def add_row(self, *cells: Any) -> None:  # type: ignore[override]
        """Add a row of texts, whose brackets are no markup."""
        super().add_row(*map(_plain, cells))

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Render the table within the available width. Lines are broken only between words."""
        table, left_out, space = copy(self), list[str](), options.max_width
        table.columns = [copy(column) for column in self.columns]
        while sum(map(_least_width, table.columns)) + 3 * len(table.columns) + 1 > space and len(table.columns) > 1:
            left_out.insert(0, _texts(table.columns.pop())[0])
        if left_out:
            note = f"Not shown, as the terminal is narrow: {', '.join(left_out)}."
            table.caption = f"{table.caption}\n{note}" if table.caption else note
        widths, least = [max(map(len, _texts(column))) for column in table.columns], [*map(_least_width, table.columns)]
        while sum(widths) + 3 * len(widths) + 1 > space and widths != least:
            most = max(range(len(widths)), key=lambda place: (widths[place] > least[place], widths[place]))
            widths[most] -= 1
        for column, width in zip(table.columns, widths, strict=True):
            column.width = width
        yield from Table.__rich_console__(table, console, options)


def whole_table(
    names: str, *columns: str, numbers: tuple[str, ...] = (), fold: bool = True, title: str = "", caption: str = ""
) -> Table:
    """Table with a column of `names`, further `columns` of text, and right-aligned `numbers`.

    A text that is longer than its column continues on the next line, a name only with `fold`. Numbers stay whole.
    """
    table = WholeTable(title=_plain(title) or None, caption=_plain(caption) or None)
    table.add_column(_plain(names), overflow="fold", no_wrap=not fold)
    for column in columns:
        table.add_column(_plain(column), overflow="fold")
    for column in numbers:
        table.add_column(_plain(column), overflow="fold", justify="right")
    return table


def _plain(text: str) -> str:
    """Markup that shows the text as it is, and its control characters as escapes."""
    return escape(legible(text))


def _texts(column: Column) -> list[str]:
    """Header and cells of a column without their styles."""
    return [Text.from_markup(str(text)).plain for text in (column.header, *column.cells)]


def _least_width(column: Column) -> int:
    if column.no_wrap:
        return max(map(len, _texts(column)))
    return max((len(word) for text in _texts(column) for word in text.split()), default=1)
