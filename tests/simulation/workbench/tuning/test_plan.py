"""Plan of a tuning: the number that ranks its trials is one that its runs have, in the right direction."""

import json

import pytest

pytest.importorskip("optuna", reason="the extra 'tune' is not installed")

from fedsel_app.config import ConfigError
from fedsel_app.models.tasks import Classification
from simulation.workbench.comparison.plan import plan
from simulation.workbench.tuning.plan import plan_tuning
from tests.support.report_runs import write_run


class Wrong(Classification):
    """Classification with the share of wrong examples as its score."""

    score = "error"

    def __init__(self, outputs):
        super().__init__(None)

    def scores(self, tally, loss, examples):
        return {"error": 1.0 - super().scores(tally, loss, examples)["accuracy"]}


def goal(folder, metric, **settings):
    base = plan(folder, ["random"], [1], {"clients": 6, "cohort": 2, "rounds": 2} | settings, {})
    return plan_tuning(base, 2, [101], "lr", metric).goal


@pytest.mark.parametrize(
    ("metric", "key"),
    [("stable_validation_accuracy", "stable_validation_error"), ("final_error", "final_error")],
)
def test_a_lower_score_of_a_user_s_task_is_better(tmp_path, metric, key):
    found = goal(tmp_path, metric, task=f"{__name__}:Wrong")
    assert (found.key, found.higher_wins) == (key, False)


def test_a_score_that_the_runs_do_not_have_is_refused(tmp_path):
    """Every trial then had the worst number, so that the defaults were the best."""
    with pytest.raises(ConfigError, match=r"one of stable_validation_accuracy, .* Got 'stable_f1_macro'\."):
        goal(tmp_path, "stable_f1_macro", metrics="f1-macro")


def test_a_setting_that_no_trial_reads_is_refused(tmp_path):
    """Four trials of `isp-jury` were planned with a fixed cohort; with the search among the choices, it is read."""
    base = plan(tmp_path, ["random"], [1], {"clients": 6, "cohort": 2, "rounds": 2, "holdout-fraction": 0.2}, {})
    with pytest.raises(ConfigError, match="With participation=fixed, 'isp-jury' has no effect"):
        plan_tuning(base, 2, [101], "isp-jury", "final_accuracy")
    read = "participation=fixed|isp,isp-loss=clients|surrogate,isp-jury"
    assert "isp-jury" in plan_tuning(base, 2, [101], read, "final_accuracy").spaces["random"]


def test_a_dry_run_estimates_the_time_left_from_the_finished_runs(tmp_path):
    """2 trials and 2 runs with default and best settings, one of them finished in 60 s: 3 x 60 s on two places."""
    base = plan(tmp_path, ["random"], [1], {}, {})
    tuning = plan_tuning(base, 2, [101], "lr", "final_accuracy")
    assert tuning.lines(2)[-1] == "Side by side: 2"
    [run] = tuning.trial_runs("random", 1, {"lr": 0.05})
    write_run(run.folder, "random", 101, [0.5])
    summary = {"strategy": "random", "seed": 101, "wall_s": 60.0, "target_accuracy": 0.8, "failure_count": 0}
    (run.folder / "summary.json").write_text(json.dumps(summary), encoding="utf-8")
    assert tuning.lines(2)[-1] == "Side by side: 2; about 2 min left"
