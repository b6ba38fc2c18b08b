"""Numbers of runs with handwritten rounds, and data of eight examples with known owners."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from fedsel_app.config import ConfigError
from simulation.workbench.comparison.measures import EvaluatedMetric, Numbers, metric_of
from simulation.workbench.comparison.results import RecordedComparison
from simulation.workbench.comparison.runs import RecordedRun, joined, read_recorded_run
from tests.support.report_runs import write_comparison, write_run


def read(folder) -> RecordedRun:
    run = read_recorded_run(folder, folder.name, {}, RecordedRun)
    assert run is not None
    return run


def test_costs_to_target(tmp_path):
    """Reached in round 3: 30 s, 0.75 MB up, 0.3 MB of values, and 1.5 MB down."""
    write_run(tmp_path / "run", "random", 1, [0.5, None, 0.8, 0.7])
    numbers = read(tmp_path / "run").measures
    assert numbers["rounds_to_target"] == 3
    assert numbers["time_to_target_s"] == 30.0
    assert numbers["uplink_to_target_mb"] == pytest.approx(0.75)
    assert numbers["uplink_value_to_target_mb"] == pytest.approx(0.3)
    assert numbers["traffic_to_target_mb"] == pytest.approx(2.25)
    assert (numbers["traffic_mb"], numbers["final_accuracy"], numbers["client_updates"]) == (3.0, 0.7, 8)
    totals = read(tmp_path / "run").cumulative("uplink_bytes", "downlink_bytes")
    assert totals.tolist() == [750e3, 1500e3, 2250e3, 3000e3]


def test_numbers_are_aligned_by_seed(tmp_path):
    write_comparison(tmp_path)
    comparison = RecordedComparison.read(tmp_path)
    numbers = Numbers(comparison.groups[0], metric_of(comparison.runs.values()))
    oort, random = numbers.pairs("oort", "random", "rounds_to_target")
    assert oort.tolist()[1:] == [2, 2]
    assert np.isnan(oort[0])
    assert random.tolist() == [4, 4, 3]
    assert numbers.reached("oort", "rounds_to_target").tolist() == [2, 2]
    assert numbers.common_seeds(["oort", "random"], "rounds_to_target") == [2, 3]
    assert numbers.mean("random", "rounds_to_target", [2, 3]) == 3.5
    assert numbers.mean("oort", "rounds_to_target", []) == 2.0


def test_a_client_s_last_row_of_a_round_counts(tmp_path):
    tests = [
        {"client": client, "round": 2, "accuracy": accuracy} for client, accuracy in ((1, 0.5), (0, 0.25), (1, 1.0))
    ]
    write_run(tmp_path / "run", "random", 1, [0.1, 0.2], client_rows=[{"client": 0, "round": 1, "examples": 3}, *tests])
    accuracies = read(tmp_path / "run").client_scores("accuracy")
    assert {number: values.tolist() for number, values in accuracies.items()} == {2: [0.25, 1.0]}


def test_levels_of_a_metric(tmp_path):
    """The loss is 1 - accuracy. A metric of the task is one level deeper in a row."""
    row = {"metrics": {"sensitivity": 0.25}}
    write_run(tmp_path / "run", "random", 1, [0.2, None, 0.75, 0.5], row=row)
    run = read(tmp_path / "run")
    loss = metric_of([run], "loss")
    assert loss.of(run) == {"final_loss": 0.5, "stable_loss": pytest.approx(1.55 / 3), "best_loss": 0.25}
    assert (loss.axis, loss.higher_wins, loss.stable.higher_wins) == ("test loss", False, False)
    assert metric_of([run], "accuracy").of(run)["best_accuracy"] == 0.75
    assert metric_of([run], "sensitivity").of(run)["final_sensitivity"] == 0.25
    assert np.isnan(list(metric_of([run]).of(replace(run, rows=())).values())).all()
    with pytest.raises(ConfigError, match=r"--metric 'f1'\. These runs have accuracy, loss, sensitivity"):
        metric_of([run], "f1")


def test_a_rounds_own_field_goes_before_a_metric_of_the_same_name(tmp_path):
    write_run(tmp_path / "run", "random", 1, [0.5, None, 0.7], row={"metrics": {"accuracy": 0.1, "f1": 0.2}})
    run = read(tmp_path / "run")
    assert run.rounds["accuracy"].tolist() == [0.5, 0.1, 0.7]
    assert metric_of([run]).values(run).to_dict() == {0: 0.5, 1: 0.1, 2: 0.7}
    assert metric_of([run], "f1").values(run).tolist() == [0.2, 0.2, 0.2]


@pytest.mark.parametrize(
    ("evaluations", "text"),
    [([1], "the one evaluation"), ([0, 3], "mean of all 3 evaluations"), ([2, 12],
     "mean of all 2 evaluations or mean of the last 10 evaluations"), ([0], "mean of the last 10 evaluations")],
)  # fmt: skip
def test_the_name_of_a_stable_score_says_what_it_averages(tmp_path, evaluations, text):
    for seed, count in enumerate(evaluations, start=1):
        write_run(tmp_path / str(seed), "random", seed, [0.5] * count + [None])
    metric = metric_of([read(tmp_path / str(seed)) for seed in range(1, len(evaluations) + 1)])
    assert metric.stable.name == f"accuracy, {text}"


@pytest.mark.parametrize(
    ("key", "higher_wins", "worst"),
    [("accuracy", True, 0.0), ("loss", False, 1.0), ("client_f1_0", True, 0.0)],
)
def test_the_direction_of_a_metric(key, higher_wins, worst):
    metric = EvaluatedMetric(key, key, is_score=key != "loss")
    assert metric.higher_wins == higher_wins
    assert {(level.higher_wins, level.digits) for level in metric.levels} == {(higher_wins, 4)}
    assert metric.worst_tenth(np.linspace(0.0, 1.0, 10)) == worst


def test_frames_are_joined_below_each_other_and_a_columns_own_values_stay():
    first, second = pd.DataFrame({"round": [1, 2], "seed": [7, 8]}), pd.DataFrame({"round": [3], "loss": [0.5]})
    found = joined([({"run": "a", "seed": 1}, first), ({"run": "b", "seed": 2}, second)])
    assert list(found.columns) == ["run", "seed", "round", "loss"]
    assert found["run"].tolist() == ["a", "a", "b"]
    assert found["seed"].tolist() == [7, 8, 2]
    assert found["loss"].fillna(-1).tolist() == [-1, -1, 0.5]
