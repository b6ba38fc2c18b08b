"""Requirements: the table of docs/flower-app.md, and the page's difference between the example before and after."""

import difflib

import pytest

from fedsel_app.config import ConfigError
from simulation.apps.server.requirements import requirements
from simulation.apps.server.settings import app_config
from strategies import STRATEGIES
from tests.support.documentation import PAGES, code_blocks
from tests.support.sources import ROOT

PAGE = PAGES["docs/flower-app.md"]
EXAMPLES = {
    "message-app": (
        {"before/client_app.py": "message_app/client_app.py", "before/server_app.py": "message_app/server_app.py"},
        8,
    ),
    "flower-app": (
        {
            "before/client_app.py": "flower_app/client_app.py",
            "before/server_app.py": "flower_app/server_app.py",
            "before/pyproject.toml": "pyproject.toml",
        },
        10,
    ),
}
"""Example -> its files before and after fedsel, and the most lines that differ."""


def support_rows():
    """Method, whether it works with an unchanged client and with the mod, and its function: rows of docs/flower-app.md.

    With their default settings; a method that needs a compressor has top-k.
    """
    for name in STRATEGIES:
        try:
            config = app_config(name, {})
        except ConfigError:
            config = app_config(name, {"compressor": "top-k"})
        needed = list(requirements(config))
        functions = ", ".join(f"`{ability}`" for _, ability in needed if ability)
        yield f"`{name}`", "no" if needed else "yes", "with a function" if functions else "yes", functions or "none"


def test_the_table_of_methods_is_the_registry():
    table = PAGE.split("<!-- support:")[1].split("\n\n")[0].splitlines()[3:]
    assert table == [f"| {' | '.join(row)} |" for row in support_rows()]


@pytest.mark.parametrize(("example", "block"), list(zip(EXAMPLES, code_blocks(PAGE, "diff"), strict=True)))
def test_the_page_shows_the_few_lines_of_each_example(example, block):
    files, most = EXAMPLES[example]
    shown = []
    for old, new in files.items():
        before, after = ((ROOT / "examples" / example / path).read_text().splitlines() for path in (old, new))
        difference = difflib.unified_diff(before, after, old, new, n=0, lineterm="")
        shown += [line for line in difference if not line.startswith("@@")]
    assert block.splitlines() == [line.rstrip() for line in shown]
    assert len(shown) - 2 * len(files) <= most
