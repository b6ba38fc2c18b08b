"""Configuration of a run: defaults, presets, users' values, and Flower's run configuration."""

import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest

from fedsel_app.config import ConfigError, Settings, setting
from fedsel_app.presets.preset import flatten, load_preset, preset_files
from fedsel_app.wiring.configuration import known_defaults, resolve, resolve_run_config
from strategies.base import SelectionStrategy
from strategies.roster import Needs, Selection

PYPROJECT = Path(__file__).parents[3] / "pyproject.toml"


@dataclass(frozen=True)
class LowestIdsConfig(Settings):
    skip: int = setting(0, "ids that are left out", low=0)


class LowestIds(SelectionStrategy):
    """Selection method of a user: the lowest ids."""

    name: ClassVar[str] = "lowest-ids"
    paper: ClassVar[str] = "none"
    Config: ClassVar[type[Settings]] = LowestIdsConfig

    @classmethod
    def needs(cls, config):
        return Needs(links=True)

    def select(self, roster, now, count, rng):
        return Selection(roster.ids[:count], np.ones(count))


OWN = f"{__name__}:LowestIds"


def refusal(values):
    with pytest.raises(ConfigError) as error:
        resolve(values)
    return str(error.value)


def test_the_table_of_pyproject_holds_the_defaults_and_their_types():
    table = tomllib.loads(PYPROJECT.read_text(encoding="utf-8"))["tool"]["flwr"]["app"]["config"]
    typed = {key: (type(value), value) for key, value in flatten(table).items()}
    assert typed == {key: (type(value), value) for key, value in known_defaults().items()}


def test_values_resolve_to_the_same_configuration():
    config = resolve({"preset": "paper", "strategy": "random", "rounds": 3, "links": "measured"})
    assert resolve(config.values()) == config


@pytest.mark.parametrize("name", preset_files())
def test_every_preset_resolves_and_says_only_what_is_known(name):
    values = resolve({"preset": name}).values()
    preset = load_preset(name).settings
    assert preset
    assert preset.keys() <= known_defaults().keys()
    assert {key: (preset | values)[key] for key in preset} == preset


def test_what_is_set_wins_over_the_preset_and_the_preset_over_the_defaults():
    config = resolve({"preset": "paper", "rounds": 7, "hetero-select.average-decay": 0.5})
    assert config.run.rounds == 7
    assert config.method.average_decay == 0.5
    assert config.run.clients == load_preset("paper").settings["clients"] != known_defaults()["clients"]
    assert config.run.seed == known_defaults()["seed"]


def test_a_preset_that_cannot_be_read_is_named(tmp_path):
    broken, missing, nested = tmp_path / "broken.toml", tmp_path / "missing.toml", tmp_path / "nested.toml"
    broken.write_text("rounds = = 3", encoding="utf-8")
    nested.write_text("rounds = [1, 2]", encoding="utf-8")
    assert refusal({"preset": str(missing)}) == f"There is no preset file {missing}."
    assert refusal({"preset": str(broken)}).startswith(f"The preset {broken} cannot be read: ")
    assert refusal({"preset": str(nested)}) == (
        "The 'rounds' parameter must be true or false, a number or text. Got [1, 2]."
    )


def test_a_strategy_of_ones_own_brings_its_settings():
    config = resolve({"strategy": OWN, "lowest-ids.skip": 2})
    assert config.strategy is LowestIds
    assert config.method == LowestIdsConfig(skip=2)
    assert config.values()["lowest-ids.skip"] == 2
    assert resolve(config.values()) == config
    assert "Did you mean 'lowest-ids.skip'?" in refusal({"strategy": OWN, "lowest-ids.skp": 2})


def test_under_flower_a_value_equal_to_its_default_counts_as_unset():
    """Flower's run configuration is pyproject's table with the user's values inserted."""
    preset = load_preset("paper").settings
    table = known_defaults()
    assert resolve_run_config(table) == resolve({})
    config = resolve_run_config(table | {"preset": "paper", "rounds": 3, "seed": 7})
    assert config == resolve({"preset": "paper", "rounds": 3, "seed": 7})
    assert preset["clients"] != table["clients"]
    again = resolve_run_config(table | {"preset": "paper", "clients": table["clients"]})
    assert again.run.clients == preset["clients"]
