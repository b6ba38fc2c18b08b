"""Tables of a report as Markdown, for the ledger."""

import html

from simulation.workbench.report.tables import Table


def markdown(table: Table) -> str:
    """Markdown of the table, with its caption below."""
    lines = [[column.name for column in table.columns], ["---"] * len(table.columns), *table.texts()]
    body = "\n".join("| " + " | ".join(map(markdown_text, line)) + " |" for line in lines)
    return f"{body}\n\n{markdown_text(table.caption)}".rstrip()


def markdown_text(text: str) -> str:
    """Text on one line, escaped for Markdown: no part of it is HTML, a link, a picture or the end of a cell."""
    line = html.escape(" ".join(text.split()), quote=False)
    return line.replace("](", "]\\(").replace("|", "\\|")
