"""Lists of settings and presets: complete, searchable, and within the given width."""

from fedsel_app.presets.preset import preset_files, summary
from fedsel_app.wiring.configuration import known_defaults
from simulation.workbench.catalogue.listing import matching_settings, preset_lines, setting_lines


def keys(groups):
    return [entry.key for entries in groups.values() for entry in entries]


def test_every_setting_is_listed_once_and_has_a_meaning():
    groups = matching_settings()
    assert keys(groups) == list(known_defaults())
    assert all(entry.meaning for entries in groups.values() for entry in entries)


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


def test_every_preset_is_listed_by_paper():
    lines = preset_lines(60)
    assert max(map(len, lines)) <= 60
    assert [line for line in lines if line and not line.startswith(" ")] == [
        *("general", "fedavg", "fedcvr_bolt", "hetero_select", "hetero_select_stable", "isp", "terraform"),
    ]
    text = " ".join(" ".join(lines).split())
    assert all(f" {name} {summary(name)}" in text for name in preset_files())
