"""Plan of a tuning: its trials, and what it refuses."""

import json

import pytest

from fedsel_app.config import ConfigError
from simulation.workbench.comparison.plan import plan
from simulation.workbench.tuning.plan import parse_space, plan_tuning
from strategies import STRATEGIES
from tests.support.report_runs import write_run


def test_more_trials_begin_with_the_same_ones_and_all_methods_have_their_part(tmp_path):
    base = plan(tmp_path, ["random", "oort"], [1], {}, {})
    few, many = (plan_tuning(base, count, [101], "lr=0.1..1,oort.penalty=1|2") for count in (3, 6))
    assert {name: own[:3] for name, own in many.settings.items()} == few.settings
    assert few.settings["oort"][0] == {"lr": 0.05, "oort.penalty": 2.0}
    of_random, of_oort = many.settings["random"], many.settings["oort"]
    assert of_random == [{"lr": own["lr"]} for own in of_oort]
    assert all(0.1 <= own["lr"] <= 1.0 for own in of_oort[1:])
    assert len({own["lr"] for own in of_oort}) == 6
    assert {own["oort.penalty"] for own in of_oort[1:3]} == {1, 2}


def test_a_setting_that_no_trial_reads_is_refused(tmp_path):
    """With the mean no trial reads `krum-malicious`; with Krum among the choices, some do."""
    base = plan(tmp_path, ["random"], [1], {"clients": 12, "cohort": 6, "rounds": 2}, {})
    with pytest.raises(ConfigError, match="With aggregation=mean, 'krum-malicious' has no effect"):
        plan_tuning(base, 2, [101], "krum-malicious=0..1")
    read = plan_tuning(base, 6, [101], "aggregation=mean|krum,krum-malicious=0..1").settings["random"]
    assert {own["aggregation"] for own in read} == {"mean", "krum"}


def test_a_dry_run_estimates_the_time_left_from_the_finished_runs(tmp_path):
    """Of 4 runs of 500 updates of 50 steps of 0.11 ms, two at a time, one is then finished in 60 s: 3 x 60 s left."""
    base = plan(tmp_path, ["random"], [1], {"rounds": 100, "cohort": 5, "local-steps": 50}, {})
    tuning = plan_tuning(base, 2, [101], "lr=0.1..1")
    assert tuning.lines(2)[-1] == "Side by side: 2; at least 6 s, the local training with one CPU core a run"
    run = tuning.trials.runs[0]
    write_run(run.folder, "random", 101, [0.5])
    summary = {"strategy": "random", "seed": 101, "wall_s": 60.0, "target_accuracy": 0.8, "failure_count": 0}
    (run.folder / "summary.json").write_text(json.dumps(summary), encoding="utf-8")
    assert tuning.lines(2)[-1] == "Side by side: 2; about 2 min left"


METHODS = [STRATEGIES["oort"], STRATEGIES["random"]]


@pytest.mark.parametrize(
    ("text", "shown", "values"),
    [
        ("value-bits=4|8", "one of 4, 8", [4, 8, 8]),
        ("optimizer=sgd|adam|adamw", "one of sgd, adam, adamw", ["sgd", "adam", "adamw"]),
        ("momentum=0.5..0.9", "0.5 to 0.9", [0.5, 0.7, 0.9]),
        ("lr=0.01..1", "0.01 to 1, on a log scale", [0.01, 0.1, 1.0]),
        ("cohort=2..8", "2 to 8", [2, 5, 8]),
        ("local-steps=1..99", "1 to 99, on a log scale", [1, 10, 99]),
    ],
)
def test_a_range_has_its_values(text, shown, values):
    """At the places 0, 1/2 and nearly 1."""
    ((key, found),) = parse_space(text, METHODS).items()
    assert (key, str(found)) == (text.partition("=")[0], shown)
    assert [found.at(place) for place in (0.0, 0.5, 1.0 - 1e-12)] == pytest.approx(values)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("lerning=0..1", "There is no setting 'lerning'"),
        ("lr", r"--over takes lr=LOW..HIGH, or lr=A.B. Got lr\."),
        ("rounds=5..50", "'rounds' defines the task, which is the same for all"),
        ("lr=0.5", "--over takes lr=LOW..HIGH, or lr=A.B. Got lr=0.5."),
        ("lr=0.5..0.1", "--over takes"),
        ("lr=0..inf", "--over takes"),
        ("optimizer=1..2", "--over takes"),
    ],
)
def test_what_is_no_range_is_refused_by_name(text, sentence):
    with pytest.raises(ConfigError, match=sentence):
        parse_space(text, METHODS)
