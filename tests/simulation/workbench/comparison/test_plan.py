"""Plan of a comparison: its runs."""

import numpy as np
import pytest
from torch import nn

from fedsel_app.config import ConfigError
from simulation.workbench.command_line.parser import parse_grids, parse_setting
from simulation.workbench.comparison.plan import plan

SMALL = {"clients": 6, "cohort": 2, "rounds": 2}
BUILT: list[tuple[int, ...]] = []
"""Shapes of the samples for which `counted` was called."""


def counted(sample_shape, classes):
    BUILT.append(sample_shape)
    return nn.Sequential(nn.Flatten(), nn.Linear(int(np.prod(sample_shape)), classes))


def test_every_strategy_gets_every_seed_and_the_first_seed_comes_first(tmp_path):
    comparison = plan(tmp_path, ["oort", "random"], [7, 3], SMALL, {})
    assert [run.name for run in comparison.runs] == ["oort-s7", "random-s7", "oort-s3", "random-s3"]
    assert [run.config.run.seed for run in comparison.runs] == [7, 7, 3, 3]
    assert [run.config.run.strategy for run in comparison.runs] == ["oort", "random"] * 2
    assert {run.config.partition for run in comparison.runs} == {comparison.runs[0].config.partition}
    assert comparison.baseline == "random"
    assert plan(tmp_path, ["oort", "fedcg"], [7], SMALL, {}).baseline == "oort"


def test_a_grid_is_every_combination_and_leaves_out_what_a_strategy_does_not_have(tmp_path):
    grid = {"lr": [0.1, 0.2], "oort.explore": [0.5, 0.9]}
    comparison = plan(tmp_path, ["oort", "random"], [1], SMALL, grid)
    assert [(run.strategy, run.cell) for run in comparison.runs] == [
        ("oort", {"lr": 0.1, "oort.explore": 0.5}),
        ("oort", {"lr": 0.1, "oort.explore": 0.9}),
        ("oort", {"lr": 0.2, "oort.explore": 0.5}),
        ("oort", {"lr": 0.2, "oort.explore": 0.9}),
        ("random", {"lr": 0.1}),
        ("random", {"lr": 0.2}),
    ]
    assert comparison.runs[3].name == "oort-lr=0.2-oort.explore=0.9-s1"
    assert comparison.runs[3].config.values()["oort.explore"] == 0.9
    assert comparison.runs[5].config.training.lr == 0.2


def test_a_plugins_own_setting_is_left_out_for_the_others(tmp_path, monkeypatch):
    code = """
        from dataclasses import dataclass
        from fedsel_app.config import Settings, setting
        from strategies.methods.random_selection import RandomSelection

        class Mine(RandomSelection):
            name = "mine"
            @dataclass(frozen=True)
            class Config(Settings):
                luck: float = setting(0.5, "how lucky")
        """
    (tmp_path / "own_method.py").write_text("\n".join(line[8:] for line in code.splitlines()))
    monkeypatch.syspath_prepend(str(tmp_path))
    runs = plan(tmp_path, ["own_method:Mine", "random"], [1], SMALL | {"mine.luck": 0.75}, {}).runs
    assert [run.name for run in runs] == ["own_method-Mine-s1", "random-s1"]
    assert runs[0].config.values()["mine.luck"] == 0.75


@pytest.mark.parametrize(
    ("settings", "grid", "said"),
    [
        ({"loacl-steps": 3}, {}, "Did you mean 'local-steps'?"),
        ({}, {"loacl-steps": [3]}, "Did you mean 'local-steps'?"),
        ({}, {"fedcg.none": [3]}, "There is no setting 'fedcg.none'."),
        ({}, {"hetero-select.temperature": [1.0]}, "belongs to none of the strategies oort, random."),
        ({}, {"lr": [0.1, -1]}, "The 'lr' parameter"),
        ({}, {"strategy": ["oort"]}, "sets 'strategy' itself; use"),
        ({}, {"lr": []}, "Give 'lr' at least one value"),
        ({}, {"data-path": ["a/b", "a b"]}, "Two runs would have the name oort-data-path=a-b-s1"),
        ({"lr": 0.1}, {"lr": [0.1, 0.2]}, "Give 'lr' in the grid, or one value of it for all runs, not both."),
    ],
)
def test_what_no_comparison_can_be_made_of(tmp_path, settings, grid, said):
    with pytest.raises(ConfigError, match=r".") as error:
        plan(tmp_path, ["oort", "random"], [1], settings, grid)
    assert said in str(error.value)


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("lr=0.1,1e-3", [0.1, 0.001]),
        ("compressor=top-k, none", ["top-k", "none"]),
        ("workers=1,2", [1, 2]),
        ("client-eval=true,false", [True, False]),
        ('alphas="0.1,0.5","1"', ["0.1,0.5", "1"]),
    ],
)
def test_grid_values_are_read_as_settings_are(text, values):
    ((key, read),) = parse_grids([text]).items()
    assert (key, read, list(map(type, read))) == (text.split("=")[0], values, list(map(type, values)))


def test_no_value_of_the_command_line_is_dropped():
    """A second grid of a setting once replaced the first, and a second line of --set was not read."""
    with pytest.raises(ConfigError, match=r"Give all values of 'lr' in one --grid: --grid lr=VALUE,VALUE\."):
        parse_grids(["lr=0.1", "lr=0.2"])
    assert parse_setting("lr=0.1\nmu=5") == ("lr", "0.1\nmu=5")


def test_a_check_builds_one_model_for_all_methods_of_a_seed(tmp_path):
    settings = SMALL | {"model": f"{__name__}:counted"}
    built = []
    for strategies in (["random"], ["random", "oort", "delta", "full"]):
        BUILT.clear()
        plan(tmp_path / str(len(strategies)), strategies, [1, 2], settings, {}).check()
        built.append(len(BUILT))
    assert built[0] == built[1] > 0
