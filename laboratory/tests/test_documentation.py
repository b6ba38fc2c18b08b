"""Commands of the laboratory in the pages can be typed, and what is generated from the settings is current."""

import pytest

from laboratory.__main__ import parser
from laboratory.claims.claim import Claim
from laboratory.pages import generated
from tests.support.documentation import PAGES, commands

NAMED = [("bench",), ("claims", "run"), ("claims", "verify")]
"""Commands that a sentence names without their arguments."""
COMMANDS = [
    command.words[3:]
    for text in PAGES.values()
    for command in commands(text)
    if command.words[:3] == ("python", "-m", "laboratory") and "NAME" not in command.words
]


@pytest.mark.parametrize("words", dict.fromkeys(COMMANDS), ids=" ".join)
def test_a_command_of_a_page_can_be_typed(words):
    if words not in NAMED:
        arguments = parser().parse_args(words)
        claims = getattr(arguments, "names", [])
        assert {*claims} <= Claim.files().keys()


def test_what_is_generated_from_the_settings_is_up_to_date():
    stale = [str(path) for path, text in generated().items() if path.read_text(encoding="utf-8") != text]
    assert stale == [], "run `python -m laboratory pages`"
