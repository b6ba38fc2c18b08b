"""Pipelines of compared methods: derived from the settings of the runs, and named."""

import json

import pytest

from simulation.workbench.comparison.plan import comparison_kind, differing_settings, plan
from simulation.workbench.comparison.results import RecordedComparison
from tests.support.report_runs import write_run

SMALL = {"clients": 6, "cohort": 2, "rounds": 2}
OWN, EQUAL = "hetero-select-table-3-mnist", "hetero-select-equal-table-3-mnist"
WEIGHED = "Everything equal but the method, which also weighs the updates."
STRATEGIES = ["hetero-select", "random", "fedcg"]


def planned(folder, preset, strategies, grid=None, **settings):
    return plan(folder, strategies, [1], SMALL | {"preset": preset} | settings, grid or {})


def test_settings_differ_where_the_values_do():
    first = {"strategy": "a", "seed": 1, "out": "x", "workers": 1, "mu": 0.1, "lr": 0.1, "a.own": 3, "psi": 0.2}
    second = {"strategy": "b", "seed": 2, "out": "y", "workers": 2, "mu": 0.0, "lr": 0.1, "b.own": 4, "psi": 0.4}
    assert differing_settings({"a": first, "b": second}, ["psi"]) == {"a": {"mu": 0.1}, "b": {"mu": 0.0}}
    assert differing_settings({"a": first}, []) == {"a": {}}


@pytest.mark.parametrize(
    ("configs", "kind"),
    [
        ({"a": {}}, ""),
        ({"a": {"weighting": "uniform"}, "b": {"weighting": "uniform"}}, "Everything equal but the method."),
        ({"a": {"weighting": "method"}, "b": {"weighting": "method"}}, WEIGHED),
        ({"a": {"mu": 1}, "b": {"mu": 0}}, "The methods also differ in mu."),
    ],
)
def test_the_kind_of_a_comparison(configs, kind):
    assert comparison_kind(configs, []) == kind


def test_a_plan_gives_each_method_its_own_settings_and_says_so(tmp_path):
    comparison = planned(tmp_path, OWN, STRATEGIES, {"psi": [0.2, 0.4]}, lr=0.2)
    sent = {run.strategy: run.config.compression.compressor for run in comparison.runs}
    assert sent == {"hetero-select": "top-k", "random": "none", "fedcg": "top-k"}
    assert {run.config.training.lr for run in comparison.runs} == {0.2}
    assert comparison.kind.startswith("The methods also differ in ")
    assert "compressor" in comparison.kind
    assert planned(tmp_path, EQUAL, STRATEGIES).kind == WEIGHED
    assert planned(tmp_path, OWN, ["fedcg"]).kind == ""


def test_what_is_set_or_swept_holds_for_every_method(tmp_path):
    comparison = planned(tmp_path, OWN, STRATEGIES, {"mu": [0.0, 0.1]}, **{"error-feedback": True})
    assert {run.config.compression.error_feedback for run in comparison.runs} == {True}
    assert [run.config.training.mu for run in comparison.runs] == [0.0, 0.1] * 3
    assert "mu" not in comparison.kind.removesuffix(".").split(" in ")[1].split(", ")


@pytest.mark.parametrize(("preset", "differ"), [(OWN, True), (EQUAL, False)])
def test_a_report_reads_the_kind_off_the_runs(tmp_path, preset, differ):
    comparison = planned(tmp_path, preset, STRATEGIES)
    comparison.write()
    for run in comparison.runs:
        write_run(run.folder, run.strategy, 1, [0.5, 0.9], preset=preset)
        config = run.config.values()
        assert json.loads((run.folder / "config.json").read_text())["compressor"] == config["compressor"]
    read = RecordedComparison.read(tmp_path)
    assert read.kind_of(read.groups[0]) == comparison.kind
    assert ("compressor" in comparison.kind) == differ
