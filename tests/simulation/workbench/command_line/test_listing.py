"""Lists of settings: within the given width."""

from simulation.workbench.command_line.listing import matching_settings, setting_lines


def test_no_line_is_wider_than_asked_and_nothing_is_cut():
    groups, width = matching_settings(), 40
    lines = setting_lines(groups, width)
    assert max(map(len, lines)) <= width
    words = " ".join(lines).split()
    text = " ".join(words)
    for purpose, entries in groups.items():
        assert purpose in text
        for entry in entries:
            assert entry.key in words
            assert " ".join(entry.meaning.split()) in text
            assert entry.allowed in text
