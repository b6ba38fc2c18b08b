"""Methods, compressors and solvers are independent axes: every sensible cell runs, every senseless one is refused."""

import math

import numpy as np
import pytest

from fedsel_app.config import ConfigError
from fedsel_app.wiring.configuration import resolve
from simulation.engines.preflight import refuse_unrunnable
from tests.support.in_process import run_in_process

CELLS = [
    ("hetero-select", "top-k", "scaffold"),
    ("fedcg", "rand-k", "sgd"),
    ("optrate", "top-k", "fednova"),
    ("flexcom", "rand-k", "scaffold"),
    ("fedcor", "qsgd", "fedprox"),
    ("terraform", "top-k", "fednova"),
    ("fedcvr-bolt", "qsgd", "scaffold"),
    ("delta", "none", "scaffold"),
    ("divfl", "none", "feddyn"),
]
"""Methods that read updates, losses, links or labels, or choose fractions or weights, over all solvers."""

QUICK = {
    "terraform": {"terraform.min_clients": 2},
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


def joined(**settings):
    return {key.replace("_", "-"): value for key, value in settings.items()}


SENSELESS = [
    *(
        (joined(strategy="optrate", compressor=name), "Set 'compressor' to top-k")
        for name in ("rand-k", "qsgd", "none")
    ),
    *(
        (joined(strategy="flexcom", compressor=name), "Set 'compressor' to top-k or rand-k")
        for name in ("qsgd", "none")
    ),
    ({"strategy": "divfl", "divfl.gradients": "ideal"}, "Set 'compressor' to none"),
    *((joined(solver="feddyn", compressor=name), "'compressor' to none") for name in ("top-k", "rand-k", "qsgd")),
    (joined(solver="feddyn", compressor="none", server_optimizer="fedadam"), "'server-optimizer' to mean"),
    (joined(solver="fednova", error_feedback_scheme="ef21"), "'error-feedback-scheme' to ef14"),
    (joined(compressor="none", error_feedback_scheme="ef21"), "nothing to estimate"),
    (joined(solver="feddyn", compressor="none", value_bits=8, server_optimizer="mean"), "'value-bits' to 32"),
    (joined(compressor="qsgd", value_bits=8), "Set 'value-bits' to 32"),
    *(
        (joined(solver=solver, optimizer=name), "'optimizer' to sgd")
        for solver in ("scaffold", "fednova")
        for name in ("adam", "adamw")
    ),
    (joined(error_feedback=False, error_feedback_scheme="ef21"), "'error-feedback' to true"),
    (joined(strategy="full", participation="isp"), "'participation' to fixed"),
    ({"strategy": "power-of-choice", "power-of-choice.candidates": 2}, "at least 'cohort' (5)"),
]


@pytest.mark.parametrize(
    ("settings", "advice"), SENSELESS, ids=[" ".join(map(str, cell.values())) for cell, _ in SENSELESS]
)
def test_a_senseless_cell_is_refused_before_anything_starts(tmp_path, settings, advice):
    with pytest.raises(ConfigError) as error:
        refuse_unrunnable(resolve(settings | {"out": str(tmp_path / "run")}))
    assert advice in str(error.value)
    assert str(error.value).endswith(".")
