"""Requirements: the table of docs/flower-app.md, and the page's difference between the example before and after."""

import difflib

from simulation.flower_app.requirements import support_rows
from tests.support.documentation import PAGES, code_blocks
from tests.support.sources import ROOT

PAGE = PAGES["docs/flower-app.md"]
EXAMPLE = ROOT / "examples" / "flower-app"
FILES = {
    "before/client_app.py": "flower_app/client_app.py",
    "before/server_app.py": "flower_app/server_app.py",
    "before/pyproject.toml": "pyproject.toml",
}


def test_the_table_of_methods_is_the_registry():
    table = PAGE.split("<!-- support:")[1].split("\n\n")[0].splitlines()[3:]
    assert table == [f"| {' | '.join(row)} |" for row in support_rows()]


def test_the_page_shows_the_ten_lines_of_the_example():
    shown = []
    for old, new in FILES.items():
        before, after = ((EXAMPLE / path).read_text().splitlines() for path in (old, new))
        difference = difflib.unified_diff(before, after, old, new, n=0, lineterm="")
        shown += [line for line in difference if not line.startswith("@@")]
    [block] = code_blocks(PAGE, "diff")
    assert block.splitlines() == [line.rstrip() for line in shown]
    assert len(shown) - 2 * len(FILES) <= 10


def test_the_model_and_the_data_of_the_example_are_its_own():
    assert "fedsel" not in (EXAMPLE / "flower_app" / "task.py").read_text()
