"""Tables on the terminal."""

import io

from rich.console import Console

from simulation.workbench.terminal import whole_table


def test_a_table_sends_nothing_to_the_terminal():
    file, hostile = io.StringIO(), "a\x1b[2Jb"
    Console(file=file, width=80).print(whole_table(hostile, hostile, title=hostile, numbers=[hostile], caption=hostile))
    assert "\x1b" not in file.getvalue()
    assert file.getvalue().count(r"a\x1b[2Jb") == 5
