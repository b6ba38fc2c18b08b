"""Typed keywords: one for each setting, both for type checkers and in help and completion."""

from inspect import signature

import pytest

import fedsel_app
from fedsel_app.config import ConfigError
from fedsel_app.wiring.configuration import known_defaults
from simulation.workbench.python_interface.keywords import key_of, setting_keys, setting_values


def test_every_setting_has_a_keyword_of_its_own():
    elsewhere = {"strategy", "seed", "out", "resume", "state-dir", "identity-dir"}
    assert sorted(setting_keys().values()) == sorted(known_defaults().keys() - elsewhere)


def test_help_and_completion_list_every_keyword_with_its_default():
    for function in (fedsel_app.run, fedsel_app.compare):
        listed = signature(function).parameters
        assert [name for name in setting_keys() if name not in listed] == []
        assert listed["local_steps"].default == known_defaults()["local-steps"]
        assert listed["oort_explore"].annotation is float


def test_keywords_and_keys_are_taken():
    values = setting_values({"local_steps": 3, "hetero_select_loss_weight": 2.0}, {"mine.share": 0.5, "lr": 0.1})
    assert values == {"local-steps": 3, "hetero-select.loss-weight": 2.0, "mine.share": 0.5, "lr": 0.1}
    for key in ("local-steps", "hardest.random-share", "seed"):
        assert key_of(key) == key


def test_an_unknown_keyword_is_told_with_the_nearest():
    with pytest.raises(ConfigError, match=r"There is no setting 'rouds'\. Did you mean 'rounds'\?"):
        setting_values({"rouds": 1}, None)
