"""Requirements: the table of docs/flower-app.md, and the page's difference between the example before and after."""

import difflib
import re

import pytest

from fedsel_app.config import ConfigError
from simulation.apps.server.settings import app_config, requirements
from simulation.apps.server.strategy import IN_PLACE, strategy
from simulation.apps.server.strategy import STRATEGIES as STRATEGY_WORDS
from strategies import STRATEGIES
from tests.support.documentation import PAGES, code_blocks
from tests.support.sources import ROOT

PAGE = PAGES["docs/flower-app.md"]
FILES = {"before/client_app.py": "message_app/client_app.py", "before/server_app.py": "message_app/server_app.py"}
"""Files of the example message-app before and after fedsel."""
LINE = "fedsel's line"
"""What a method needs without a function."""


def table(mark):
    """The rows of the page's table behind the comment."""
    return PAGE.split(f"<!-- {mark}:")[1].split("\n\n")[0].splitlines()[3:]


def support_rows():
    """Rows of docs/flower-app.md: a method that does not work with an unchanged client, and what it needs."""
    for name in STRATEGIES:
        try:
            config = app_config(name, {})
        except ConfigError:
            config = app_config(name, {"compressor": "top-k"})
        needed = list(requirements(config))
        if needed:
            functions = ", ".join(f"`{ability}`" for _, ability in needed if ability)
            yield f"| `{name}` | {functions or LINE} |"


def test_the_table_of_methods_is_the_registry():
    assert table("support") == list(support_rows())


@pytest.mark.parametrize("word", [*IN_PLACE, *STRATEGY_WORDS])
def test_the_table_of_flowers_strategies_and_arguments_says_what_the_refusals_say(word):
    """What a refusal names in place of Flower's word stands in that word's row of the table."""
    legacy = {"num_rounds", "num_malicious_clients"}
    rows = [row for row in table("flower") if f"`{word}`" in row.split(" | ")[0] or f"`{word}`" in row.lower()]
    instead = IN_PLACE.get(word, STRATEGY_WORDS.get(word))
    assert word in legacy or [all(name in row for name in re.findall(r"(\w+)=", instead)) for row in rows] == [True]
    with pytest.raises(ConfigError, match=re.escape(instead) or "fedsel has no such rule"):
        strategy(**{"name": word} if word in STRATEGY_WORDS else {"name": "random", word: 1}, clients=4, cohort=2)


def test_the_page_shows_the_few_lines_of_the_example():
    shown = []
    for old, new in FILES.items():
        before, after = ((ROOT / "examples" / "message-app" / path).read_text().splitlines() for path in (old, new))
        difference = difflib.unified_diff(before, after, old, new, n=0, lineterm="")
        shown += [line for line in difference if not line.startswith("@@")]
    [block] = code_blocks(PAGE, "diff")
    assert block.splitlines() == [line.rstrip() for line in shown]
    assert len(shown) - 2 * len(FILES) <= 8
