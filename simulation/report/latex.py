r"""LaTeX of a report's tables, for a document with the packages booktabs and adjustbox."""

import re
from collections.abc import Iterable

from simulation.report.tables import Table

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


def latex_text(text: str) -> str:
    """Text on one line, in which nothing is a command of LaTeX."""
    escaped = "".join(ESCAPES.get(character, character) for character in " ".join(text.split()))
    return re.sub(r"(?<![\w.-])-(?=\d)", "$-$", escaped)


def latex_tables(tables: Iterable[tuple[str, Table]]) -> str:
    """Float with a table, its caption and its label, for each of `tables`: the label of its cell, and the table."""
    return HEAD + "".join(_latex(label, table) for label, table in tables)


def _latex(cell: str, table: Table) -> str:
    table = table.without_empty()
    numbers = [not any(isinstance(row[column], str) for row in table.rows) for column in range(len(table.columns))]
    lines = [[column.name for column in table.columns], *table.texts()]
    head, *body = (" & ".join(map(latex_text, line)) + r" \\" for line in lines)
    about = f"{cell}: {table.title}" if cell else table.title
    label = "".join(character if character.isalnum() else "-" for character in f"{table.name} {cell}".strip())
    return "\n".join(
        [
            *(r"\begin{table}[htbp]", r"\centering", rf"\caption{{{latex_text(f'{about}. {table.caption}')}}}"),
            *(rf"\label{{tab:{label}}}", r"\begin{adjustbox}{max width=\linewidth}"),
            rf"\begin{{tabular}}{{{''.join('r' if number else 'l' for number in numbers)}}}",
            *(r"\toprule", head, r"\midrule", *body, r"\bottomrule"),
            *(r"\end{tabular}", r"\end{adjustbox}", r"\end{table}", ""),
        ]
    )
