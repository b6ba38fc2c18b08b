"""Rounds on data sets that have no classes: real clients in one process."""

import json

import numpy as np
import pytest
import torch
from sklearn.metrics import f1_score, roc_auc_score
from torch import nn
from torch.nn import functional

from fedsel_app import load_run
from fedsel_app.config import ConfigError
from fedsel_app.data.dataset import Dataset
from fedsel_app.models.tasks import Regression
from tests.support.in_process import run_in_process

ONE = np.ones(1, np.float32)
VOCABULARY = 6


class Huber(Regression):
    """Huber loss, beside R^2."""

    def __init__(self, outputs):
        pass

    def loss(self, outputs, y):
        return self.losses(outputs, y).mean()

    def losses(self, outputs, y):
        return functional.huber_loss(outputs.flatten(), y, reduction="none")


class Density(Huber):
    """Negative logarithm of a density, which may be above 1: this loss falls to -2."""

    def losses(self, outputs, y):
        return super().losses(outputs, y) - 2.0


def counting(config):
    """Sentences that count on, modulo the size of the vocabulary; of every other, the last two tokens are padding."""
    x = (np.arange(160)[:, None] + np.arange(6)) % VOCABULARY
    y = (x + 1) % VOCABULARY
    y[::2, 4:] = -100
    return {"x_train": x[:120], "y_train": y[:120], "x_test": x[120:], "y_test": y[120:], "task": "next-token"}


def bigrams(sample_shape, vocabulary):
    """The logits of the next token are a function of the last one."""
    return nn.Embedding(vocabulary, vocabulary)


def leads(config):
    """Two labels, the signs of the two channels' means: the one in half of the signals, the other in a quarter."""
    rng = np.random.default_rng(0)
    y = np.stack([np.arange(160) % 2 == 0, np.arange(160) % 4 == 0], axis=1).astype(np.float32)
    x = (rng.normal(size=(160, 2, 20)) + (2 * y - 1)[:, :, None]).astype(np.float32)
    return Dataset(x[:120], y[:120], x[120:], y[120:], 2, 0 * ONE.repeat(2), ONE.repeat(2), task="multi-label")


def line(config):
    """y = 2 a - 3, with a constant 1 beside a."""
    a = np.random.default_rng(0).normal(size=160).astype(np.float32)
    x, y = np.stack([a, np.ones_like(a)], axis=1), 2 * a - 3
    return Dataset(x[:120], y[:120], x[120:], y[120:], 1, 0 * ONE, ONE, task="regression")


SMALL = {
    "device": "cpu",
    "clients": 4,
    "cohort": 2,
    "partition": "iid",
    "local_steps": 20,
    "probe_batches": 1,
    "kept_warmup_rounds": 0,
}
LEADS = {"data": f"{__name__}:leads", "model": "mlp", "lr": 0.003, "optimizer": "adam"}
LINE = {
    "data": f"{__name__}:line",
    "model": "linear",
    "normalize": False,
    "compressor": "none",
    "momentum": 0.0,
    "clip_norm": 0.0,
    "mu": 0.0,
    "server_optimizer": "mean",
    "holdout_fraction": 0.2,
}
TESTED = {"holdout_fraction": 0.2, "client_eval": True}
NEXT_TOKEN = TESTED | {"data": f"{__name__}:counting", "model": f"{__name__}:bigrams", "lr": 1.0, "rounds": 6}
NEXT_TOKEN |= {"mu": 0.0, "clip_norm": 0.0, "compressor": "none"}
OWN_LOSS = LINE | TESTED | {"task": f"{__name__}:Huber", "strategy": "oort", "rounds": 9}
OWN_LOSS |= {"score": "rmse", "metrics": "mae", "target": 0.2, "stop_at_target": True}
CLIENT_SCORES = TESTED | {"score": "f1-macro", "metrics": "auroc,f1-each", "rounds": 3}
CLIENT_SCORES |= {"class_weights": "balanced"}


def test_a_multi_label_run_learns_and_reports_its_metrics(tmp_path):
    """With curvature, reports and probes on, so that every place that computes a loss computes this one."""
    settings = SMALL | LEADS | {"strategy": "hetero-select", "curvature_layers": 1, "rounds": 4}
    _, rows = run_in_process(tmp_path / "run", **settings)
    assert [row["failures"] for row in rows] == [[]] * 4
    for row in rows:
        assert set(row["metrics"]) == {"weighted_sensitivity", "weighted_specificity"}
        assert row["g_mean"] ** 2 == pytest.approx(np.prod(list(row["metrics"].values())))
    assert rows[-1]["g_mean"] > 0.8
    summary = (tmp_path / "run" / "summary.json").read_text()
    assert json.loads(summary)["final_g_mean"] == rows[-1]["g_mean"]
    assert "accuracy" not in summary


@pytest.mark.parametrize("strategy", ["oort", "fedcvr-bolt"])
def test_a_regression_run_finds_the_line(tmp_path, strategy):
    settings = SMALL | LINE | {"strategy": strategy, "rounds": 5, "local_steps": 40, "client_eval": True}
    method, rows = run_in_process(tmp_path / "run", **settings)
    np.testing.assert_allclose(method.run.model.parameters, [2, -3], atol=0.1)
    assert rows[-1]["loss"] < 0.02
    # FedCVR-Bolt's Table 1 averages the clients' own test errors; theirs are of the same line.
    assert 0 < rows[-1]["client_loss"] < 0.02
    y = line(None).y_test.astype(np.float64)
    assert rows[-1]["r2"] == pytest.approx(1 - rows[-1]["loss"] / y.var(), rel=1e-6)


def test_a_run_predicts_the_next_token(tmp_path):
    """A bigram is enough to count: the perplexity approaches 1, and padding counts nowhere."""
    _, rows = run_in_process(tmp_path / "run", **SMALL | NEXT_TOKEN)
    assert [row["failures"] for row in rows] == [[]] * 6
    last = rows[-1]
    assert last["accuracy"] == last["client_accuracy"] == 1.0
    # Half of the 40 test sentences have 6 tokens, half 4, which are as hard: both means are nearly the same.
    assert last["metrics"]["perplexity"] == pytest.approx(np.exp(last["loss"]), rel=0.05)
    assert 1.0 < last["client_metrics"]["perplexity"] < rows[0]["client_metrics"]["perplexity"]


def test_a_task_of_ones_own_trains_and_a_lower_score_wins(tmp_path):
    """The best model is that of the lowest RMSE, and the run ends where it is low enough."""
    _, rows = run_in_process(tmp_path / "run", **SMALL | OWN_LOSS)
    scores = [row["rmse"] for row in rows]
    assert min(scores) == scores[-1] <= 0.2 < min(scores[:-1])
    assert set(rows[-1]["metrics"]) == set(rows[-1]["client_metrics"]) == {"r2", "mae"}
    y, outputs = (torch.tensor(each) for each in (line(None).y_test, line(None).x_test @ [[2.0], [-3.0]]))
    assert float(functional.huber_loss(outputs.flatten(), y)) < 1e-6  # the right line costs nothing
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert summary["peak_rmse"] == summary["final_rmse"] == scores[-1]
    assert summary["rounds_to_target"] == len(rows)
    run = load_run(tmp_path / "run")
    x, y = run.test_data
    with torch.no_grad():
        errors = run.best_model(x).flatten() - y
    assert float(errors.square().mean().sqrt()) == pytest.approx(scores[-1], rel=1e-5)
    huber = torch.where(errors.abs() < 1, errors.square() / 2, errors.abs() - 0.5)
    assert float(huber.mean()) == pytest.approx(rows[-1]["loss"], rel=1e-5)


@pytest.mark.parametrize(
    "settings",
    [
        {"strategy": "random", "participation": "isp", "loss_clip": 3.0},
        {"strategy": "active-fl", "active-fl.valuation": "current"},
        {"strategy": "hetero-select", "loss_clip": 3.0},
        {"strategy": "oort"},
        {"strategy": "power-of-choice"},
    ],
)
def test_a_loss_may_be_negative(tmp_path, settings):
    """Clients were left out as soon as their loss fell below 0."""
    settings |= {"client_eval": True, "task": f"{__name__}:Density", "rounds": 6}
    _, rows = run_in_process(tmp_path / "run", **SMALL | LINE | settings)
    assert [row["failures"] for row in rows] == [[]] * 6
    last = rows[-1]
    assert -2.0 < last["loss"] < -1.5
    assert last["client_loss"] < -1.5
    assert all(loss < -1.0 for loss in last["fit_losses"])
    assert json.loads((tmp_path / "run" / "summary.json").read_text())["final_loss"] == last["loss"]


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"score": "f1-macro"}, "Leave out the metric f1-macro.*task of this data set is regression. It may have mae"),
        ({"score": "r3"}, "The 'score' must be one of r2, or a metric for regression data"),
        ({"metrics": "auc"}, r"The 'metrics' must be some of .* Got 'auc'\."),
        ({"target": 2.0}, r"The 'target' must be at most 1, the best R²\. Got 2\.0"),
        ({"task": f"{__name__}:line"}, "line' .'task'. needs the function loss"),
        ({"task": "Huber"}, "'task' parameter must be package.module:Class"),
    ],
)
def test_scores_and_tasks_that_do_not_fit_are_refused_before_the_first_round(tmp_path, settings, words):
    with pytest.raises(ConfigError, match=words):
        run_in_process(tmp_path / "run", **SMALL | LINE | settings)
    assert not (tmp_path / "run" / "rounds.jsonl").exists() or not (tmp_path / "run" / "rounds.jsonl").read_text()


def test_any_metric_is_the_score_and_clients_have_it_too(tmp_path):
    """The values of the last round are those that scikit-learn computes from the saved model."""
    _, rows = run_in_process(tmp_path / "run", **SMALL | CLIENT_SCORES)
    run = load_run(tmp_path / "run")
    x, y = run.test_data
    with torch.no_grad():
        outputs = run.model(x).double()
    last = rows[-1]
    predicted, probabilities = outputs.argmax(dim=1).numpy(), outputs.softmax(dim=1).numpy()
    assert last["f1_macro"] == pytest.approx(f1_score(y, predicted, average="macro"), abs=1e-6)
    assert last["metrics"]["auroc"] == pytest.approx(roc_auc_score(y, probabilities, multi_class="ovr"), abs=1e-6)
    assert last["metrics"]["accuracy"] == pytest.approx((predicted == y.numpy()).mean())
    assert [last["metrics"][f"f1_{number}"] for number in range(10)] == pytest.approx(
        f1_score(y, predicted, average=None).tolist(), abs=1e-6
    )
    frame = run.rounds
    tested = map(json.loads, (tmp_path / "run" / "clients.jsonl").read_text().splitlines())
    each = [row["f1_macro"] for row in tested if row.get("round") == 3 and "f1_macro" in row]
    assert len(each) == 4
    assert frame["client_f1_macro"].iloc[-1] == last["client_f1_macro"] == pytest.approx(np.mean(each))
    assert run.clients["f1_macro"].tolist() == each
