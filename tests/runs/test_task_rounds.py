"""Rounds on data sets that have no classes: real clients, Flower's loop, one process."""

import json

import numpy as np
import pytest

from fedsel_app.data.dataset import Dataset
from tests.support.in_process import run_in_process

ONE = np.ones(1, np.float32)


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


def test_a_multi_label_run_learns_and_reports_its_metrics(tmp_path):
    """With curvature, reports and probes on, so that every place that computes a loss computes this one."""
    settings = SMALL | LEADS | {"strategy": "hetero-select", "curvature_layers": 1, "rounds": 4}
    _, rows = run_in_process(tmp_path / "run", **settings)
    assert [row["failures"] for row in rows] == [[]] * 4
    for row in rows:
        assert set(row["metrics"]) == {"weighted_sensitivity", "weighted_specificity", "g_mean"}
        assert row["accuracy"] == row["metrics"]["g_mean"]
    assert rows[-1]["accuracy"] > 0.8
    assert json.loads((tmp_path / "run" / "summary.json").read_text())["final_accuracy"] == rows[-1]["accuracy"]


@pytest.mark.parametrize("strategy", ["random", "oort", "delta", "fedcvr-bolt", "terraform"])
def test_a_regression_run_finds_the_line(tmp_path, strategy):
    settings = SMALL | LINE | {"strategy": strategy, "rounds": 5, "local_steps": 40, "client_eval": True}
    method, rows = run_in_process(tmp_path / "run", **settings)
    np.testing.assert_allclose(method.run.model.parameters, [2, -3], atol=0.1)
    assert rows[-1]["loss"] < 0.02
    # FedCVR-Bolt's Table 1 averages the clients' own test errors; theirs are of the same line.
    assert 0 < rows[-1]["client_loss"] < 0.02
    y = line(None).y_test.astype(np.float64)
    assert rows[-1]["metrics"] == {"r2": rows[-1]["accuracy"]}
    assert rows[-1]["accuracy"] == pytest.approx(1 - rows[-1]["loss"] / y.var(), rel=1e-6)
