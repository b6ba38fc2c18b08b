"""Methods, compressors and solvers are independent axes: every sensible cell runs."""

import math

import numpy as np
import pytest

from tests.support.in_process import run_in_process

CELLS = [
    ("hetero-select", "top-k", "scaffold"),
    ("fedcg", "common-k", "scaffold"),
    ("optrate", "top-k", "fednova"),
    ("flexcom", "rand-k", "scaffold"),
    ("fedcor", "qsgd", "fedprox"),
    ("fedcvr-bolt", "qsgd", "scaffold"),
    ("delta", "none", "scaffold"),
    ("divfl", "none", "feddyn"),
]
"""Methods that read updates, losses, links or labels, or choose fractions or weights, over all solvers."""

QUICK = {
    "fedcor": {"fedcor.warmup": 1, "fedcor.first_steps": 10, "fedcor.steps": 5},
    "fedcvr-bolt": {"fedcvr-bolt.warmup_rounds": 1},
}
"""So that the second round is one of the method's own."""


SIZE = 650
DENSE_BYTES = 28 + 4 * SIZE


@pytest.mark.parametrize(("method", "compressor", "solver"), CELLS)
def test_a_sensible_cell_runs(tmp_path, method, compressor, solver):
    axes = {"strategy": method, "compressor": compressor, "solver": solver}
    small = {"clients": 6, "cohort": 4, "rounds": 2, "local_steps": 3, "kept_warmup_rounds": 0, "probe_batches": 1}
    plain = {"server_optimizer": "mean"} if solver == "feddyn" else {}
    strategy, rows = run_in_process(tmp_path / "run", device="cpu", **small, **axes, **plain, **QUICK.get(method, {}))
    assert [row["round"] for row in rows] == [1, 2]
    assert np.isfinite(strategy.run.model.parameters).all()
    payloads = 2 if solver == "scaffold" else 1
    for row in rows:
        assert row["failures"] == []
        assert row["aggregated"] == row["selected"] != []
        assert 0.0 <= row["accuracy"] <= 1.0
        assert math.isfinite(row["loss"])
        assert row["downlink_bytes"] > 0
        whole = len(row["selected"]) * DENSE_BYTES * payloads
        assert 0 < row["uplink_bytes"] <= whole
        if compressor == "none":
            assert row["uplink_bytes"] == whole
        if compressor == "qsgd":
            assert row["uplink_bytes"] < whole - len(row["selected"]) * DENSE_BYTES / 2
