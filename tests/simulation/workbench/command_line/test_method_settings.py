"""Settings that a preset has for the runs of single methods: applied, overridden, inherited, and refused."""

import pytest

from fedsel_app.config import ConfigError
from fedsel_app.wiring.configuration import resolve

METHODS = """
rounds = 3
lr = 0.5
mu = 0.2
[methods.fedcg]
lr = 0.25
error-feedback = false
lr-decay = 0.25
[methods.oort]
mu = 0.0
"""


def test_a_preset_has_settings_for_the_runs_of_single_methods(tmp_path):
    (tmp_path / "first.toml").write_text(METHODS, encoding="utf-8")
    preset = {"preset": str(tmp_path / "first.toml")}
    fedcg, oort, other = (resolve(preset | {"strategy": name}) for name in ("fedcg", "oort", "random"))
    assert [config.training.lr for config in (fedcg, oort, other)] == [0.25, 0.5, 0.5]
    assert [config.training.mu for config in (fedcg, oort, other)] == [0.2, 0.0, 0.2]
    assert [config.compression.error_feedback for config in (fedcg, oort, other)] == [False, True, True]
    assert fedcg.training.lr_decay == 0.25
    assert resolve(preset | {"strategy": "fedcg", "lr": 0.125}).training.lr == 0.125


def test_what_a_preset_sets_itself_it_sets_for_the_methods_of_its_base_too(tmp_path):
    (tmp_path / "first.toml").write_text(METHODS, encoding="utf-8")
    (tmp_path / "second.toml").write_text('base = "first.toml"\nlr = 0.1\nstrategy = "fedcg"\n', encoding="utf-8")
    (tmp_path / "third.toml").write_text('base = "second.toml"\n[methods.random]\nmu = 0.3\n', encoding="utf-8")
    (tmp_path / "equal.toml").write_text('base = "first.toml"\nmethods = {}\n', encoding="utf-8")
    second, third, equal = (str(tmp_path / f"{name}.toml") for name in ("second", "third", "equal"))
    config = resolve({"preset": second})
    assert (config.strategy.name, config.training.lr, config.compression.error_feedback) == ("fedcg", 0.1, False)
    assert resolve({"preset": third, "strategy": "random"}).training.mu == 0.3
    assert resolve({"preset": third}).compression.error_feedback
    assert resolve({"preset": equal, "strategy": "fedcg"}).training.lr == 0.5


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ("[methods.fedgc]\nmu = 0.0", r"^\[methods.fedgc\] in the preset .*Did you mean 'fedcg'\?"),
        ("[methods.fedcg]\nlearning = 0.0", r"^\[methods.fedcg\] in the preset .*: There is no setting 'learning'"),
        ("[methods.fedcg]\nmu = -1.0", r"^\[methods.fedcg\] in the preset .*: The 'mu' parameter must be"),
        (
            '[methods.fedcg]\nstrategy = "oort"',
            r"^\[methods.fedcg\] .* must be a table of settings for the strategy fedcg",
        ),
        ("methods = 3", r"^\[methods.NAME\] .* must be a table of settings"),
    ],
)
def test_wrong_settings_of_a_method_are_refused_whatever_method_runs(tmp_path, table, message):
    (tmp_path / "wrong.toml").write_text(table, encoding="utf-8")
    with pytest.raises(ConfigError, match=message):
        resolve({"preset": str(tmp_path / "wrong.toml"), "strategy": "random"})
