"""Terminal: consoles as wide as the terminal or as COLUMNS says, and tables in which no text is cut."""

import os
import sys

from rich.console import Console
from rich.table import Table

WIDTH = 160
"""Characters of a line where there is neither a terminal nor COLUMNS."""


def wide_console() -> Console:
    """Console for tables."""
    known = sys.stdout.isatty() or os.environ.get("COLUMNS", "").isdigit()
    return Console(width=None if known else WIDTH)


def whole_table(
    names: str, *columns: str, numbers: tuple[str, ...] = (), fold: bool = True, title: str = "", caption: str = ""
) -> Table:
    """Table of a column with `names`, further `columns` of text, then `numbers`, right-aligned.

    What is longer than its column goes on in the next line, a name only with `fold`; numbers stay whole.
    """
    table = Table(title=title or None, caption=caption or None)
    table.add_column(names, overflow="fold", no_wrap=not fold)
    for column in columns:
        table.add_column(column, overflow="fold")
    for column in numbers:
        table.add_column(column, overflow="fold", justify="right")
    return table
