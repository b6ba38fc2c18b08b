"""Terminal: consoles as wide as the terminal or as COLUMNS says, and tables that break lines between words alone."""

import os
import sys
from copy import copy

from rich import box
from rich.console import Console, ConsoleOptions, RenderResult
from rich.table import Column, Table
from rich.text import Text

WIDTH = 160
"""Characters of a line where there is neither a terminal nor COLUMNS."""
EMPTY = {"", "–", "0"}
"""Cells of a column that may go where there is no room."""


def wide_console() -> Console:
    """Console for tables."""
    known = sys.stdout.isatty() or os.environ.get("COLUMNS", "").isdigit()
    return Console(width=None if known else WIDTH)


class WordTable(Table):
    """Table whose columns are as wide as their longest word at least.

    Where the terminal is too narrow for that, the table loses its lines, then columns that say nothing, then numbers
    from the right, then other columns; the caption names what is not shown.
    """

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Render the table as wide as it may be."""
        shown, left_out, space = copy(self), list[str](), options.max_width
        shown.columns = [copy(column) for column in self.columns]
        if _least(shown) > space:
            shown.box, shown.padding, shown.pad_edge, shown.show_edge = box.SIMPLE_HEAD, (0, 1, 0, 0), False, False
        while _least(shown) > space and len(shown.columns) > 1:
            further = shown.columns[1:]
            silent = [column for column in further if set(_texts(column)[1:]) <= EMPTY]
            numbers = [column for column in further if column.justify == "right"]
            dropped = (silent or numbers or further)[-1]
            shown.columns.remove(dropped)
            left_out.insert(0, _texts(dropped)[0])
        if left_out:
            said = f"Not shown, as the terminal is narrow: {', '.join(left_out)}."
            shown.caption = f"{shown.caption}\n{said}" if shown.caption else said
        for column, width in zip(shown.columns, _widths(shown, space), strict=True):
            column.width = width
        yield from Table.__rich_console__(shown, console, options)


def whole_table(
    names: str, *columns: str, numbers: tuple[str, ...] = (), fold: bool = True, title: str = "", caption: str = ""
) -> Table:
    """Table of a column with `names`, further `columns` of text, then `numbers`, right-aligned.

    What is longer than its column goes on in the next line, a name only with `fold`; numbers stay whole.
    """
    table = WordTable(title=title or None, caption=caption or None)
    table.add_column(names, overflow="fold", no_wrap=not fold)
    for column in columns:
        table.add_column(column, overflow="fold")
    for column in numbers:
        table.add_column(column, overflow="fold", justify="right")
    return table


def _texts(column: Column) -> list[str]:
    """Header and cells of a column without their styles."""
    return [Text.from_markup(str(text)).plain for text in (column.header, *column.cells)]


def _longest_word(column: Column) -> int:
    return max((len(word) for text in _texts(column) for word in text.split()), default=1)


def _between(table: Table) -> int:
    """Characters of a line of `table` that are no text."""
    return 3 * len(table.columns) + 1 if table.show_edge else 2 * (len(table.columns) - 1)


def _least(table: Table) -> int:
    """Characters of a line of `table` at least: names are not broken at all."""
    return sum(_least_width(column) for column in table.columns) + _between(table)


def _least_width(column: Column) -> int:
    return max(map(len, _texts(column))) if column.no_wrap else _longest_word(column)


def _widths(table: Table, space: int) -> list[int]:
    """Characters of each column: those of its longest text, less in those that have most to give."""
    widths, least = [max(map(len, _texts(column))) for column in table.columns], list(map(_least_width, table.columns))
    while sum(widths) + _between(table) > space and widths != least:
        most = max(range(len(widths)), key=lambda place: (widths[place] > least[place], widths[place]))
        widths[most] -= 1
    return widths
