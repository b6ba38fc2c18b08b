"""Tables on the terminal: no width breaks a word, and the caption names columns without room."""

import io
import re

import pytest
from rich.console import Console

from simulation.workbench.terminal import whole_table

METHODS = ("hetero-select", "power-of-choice", "clustered-sampling")
NUMBERS = ("final accuracy", "MB to target, uplink", "seconds to target", "client updates to target", "client failures")
ROW = ("0.8719 ± 0.0434", "0.027 (1 of 3)", "1,234.5", "30", "0")


def printed(width):
    """Lines of a table of methods on a terminal of `width` characters."""
    table = whole_table("strategy", "verdict", numbers=NUMBERS, caption="Everything equal.")
    for method in METHODS:
        table.add_row(method, "not significant", *ROW)
    file = io.StringIO()
    Console(file=file, width=width).print(table)
    return file.getvalue().splitlines()


@pytest.mark.parametrize("width", [40, 60, 80, 100, 160])
def test_no_word_is_broken_and_no_line_is_too_long(width):
    lines = printed(width)
    assert max(map(len, lines)) <= width
    words = {word for line in lines for word in re.split(r"[\s│┃]+", line) if re.search(r"\w", word)}
    whole = " ".join((*METHODS, *NUMBERS, *ROW, "strategy verdict not significant Everything equal. Not shown,"))
    known = set(whole.split()) | {"as", "the", "terminal", "is", "narrow:"}
    assert {word.rstrip(",.") for word in words} <= {word.rstrip(",.") for word in known}
    assert set(METHODS) <= words


def test_the_last_columns_have_no_room_and_are_named():
    assert "Not shown" not in "".join(printed(120))
    text = " ".join(" ".join(printed(70)).split())
    assert "Not shown, as the terminal is narrow: client updates to target, client failures." in text


def test_a_table_sends_nothing_to_the_terminal():
    file, hostile = io.StringIO(), "a\x1b[2Jb"
    Console(file=file, width=80).print(whole_table(hostile, hostile, title=hostile, numbers=[hostile], caption=hostile))
    assert "\x1b" not in file.getvalue()
    assert file.getvalue().count(r"a\x1b[2Jb") == 5
