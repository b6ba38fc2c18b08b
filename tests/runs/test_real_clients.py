"""The round over real clients in this process: sound ones, and ones whose replies are tampered with."""

import json

import numpy as np
import pytest
from torch import nn

from tests.support.in_process import run_in_process
from tests.support.rounds import without_wall

QUICK = {
    "data": "digits",
    "model": "logistic",
    "clients": 4,
    "cohort": 2,
    "rounds": 3,
    "local_steps": 5,
    "probe_batches": 1,
    "eval_threads": 1,
    "device": "cpu",
}


def quick(folder, on_fit=None, cid_of=str, **settings):
    """The strategy and its rows of a run whose clients keep their state in `folder`."""
    options = QUICK | {"state_dir": str(folder / "state")} | settings
    return run_in_process(folder / "run", on_fit, cid_of, **options)


def batchnorm_model(sample_shape, classes):
    inputs = int(np.prod(sample_shape))
    return nn.Sequential(nn.Flatten(), nn.BatchNorm1d(inputs), nn.Linear(inputs, classes))


@pytest.mark.parametrize("strategy", ["random", "hetero-select"])
def test_real_clients_learn_and_repeat_themselves(tmp_path, strategy):
    first, rows = quick(tmp_path / "a", strategy=strategy)
    second, again = quick(tmp_path / "b", cid_of=lambda client: f"node-{97 * client % 7}", strategy=strategy)
    assert json.dumps(without_wall(rows)) == json.dumps(without_wall(again))
    assert first.run.model.parameters.tobytes() == second.run.model.parameters.tobytes()
    assert [row["client_updates"] for row in rows] == [2, 2, 2]
    assert rows[-1]["accuracy"] > 0.4
    # 64 inputs, 10 classes and their biases; dense in the first round, then 0.2 of it on average.
    assert rows[0]["uplink_value_bytes"] == 2 * 4 * 650
    assert rows[1]["uplink_value_bytes"] < rows[0]["uplink_value_bytes"] / 2
    assert (tmp_path / "a" / "run" / "summary.json").exists()


def test_real_batchnorm_statistics_are_calibrated(tmp_path):
    strategy, rows = quick(
        tmp_path,
        strategy="random",
        model="tests.runs.test_real_clients:batchnorm_model",
        rounds=2,
        calibration_batches=3,
        max_update_norm=0.0,
    )
    # 64 weights, 64 biases of the normalisation and 650 of the layer after; 64 means and 64 variances.
    assert strategy.context.initial.size == 778
    assert strategy.context.buffers.size == 128
    buffers = strategy.run.model.buffers
    assert np.isfinite(buffers).all()
    # The first pixel of a digit is always blank: its running variance shrinks by 0.9 with each of 2 * 3 batches.
    assert buffers[64] == pytest.approx(0.9**6)
    whole = 4 * (778 + 128)
    assert [row["calibration_bytes"] for row in rows] == [2 * (whole + 4 * 128)] * 2
    assert [row["downlink_bytes"] for row in rows] == [2 * whole] * 2
