"""Self-contained HTML pages: the report, and the page of `fedsel watch --html`.

The templates are in `templates/`. `parts.html` has macros: a table, a figure and a list of sentences. The
script of `live.html` replaces the page's main part, and stops after the last run or the server's end.
"""

from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader

ENVIRONMENT = Environment(
    loader=FileSystemLoader(Path(__file__).with_name("templates")),
    autoescape=True,
    trim_blocks=True,
    lstrip_blocks=True,
)


def html(page: str, **values: Any) -> str:
    """Text of the page `report` or `live`, filled with `values`."""
    return ENVIRONMENT.get_template(f"{page}.html").render(**values)
