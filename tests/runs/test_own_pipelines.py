"""The compared methods of HeteRo-Select's tables, on their own papers' pipelines and with everything equal."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from clients.compression import curvature
from fedsel_app.wire.codec import Update, decode
from fedsel_app.wiring.configuration import resolve
from tests.support.in_process import run_config
from tests.support.stubs import sent_payload

OWN, EQUAL = "hetero-select-table-3-mnist-small", "hetero-select-equal-table-3-mnist-small"
SIZE = 650
SMALL = {"rounds": 4, "cohort": 4, "clients": 6, "local-steps": 3, "seed": 5}
SMALL |= {"uplink-min-bits-per-s": 1e3, "uplink-max-bits-per-s": 2e4}
"""Links so slow that sending a part of 2.6 kB saves as much time as computing takes."""


@dataclass(frozen=True)
class Run:
    rows: list[dict[str, Any]]
    steps: list[np.ndarray]
    """Change of the global model in each round but the last."""
    updates: dict[tuple[int, int], Update]
    residuals: bool
    """True if any client keeps what it did not send."""
    curvature_probes: int


@pytest.fixture
def run(tmp_path, monkeypatch):
    def carry_out(preset, strategy):
        models, updates, probes = {}, {}, []
        probe = curvature.hutchinson_diagonal

        def counted(*arguments, **named):
            probes.append(1)
            return probe(*arguments, **named)

        monkeypatch.setattr(curvature, "hutchinson_diagonal", counted)

        def on_fit(client, message, reply):
            number = message.instruction.server_round
            models[number] = message.model.arrays[0].astype(np.float64)
            updates[number, client] = decode(sent_payload(reply), size=SIZE).update
            return reply

        config = resolve({"preset": preset, "strategy": strategy, "state-dir": str(tmp_path / "state")} | SMALL)
        _, rows = run_config(tmp_path / "run", config, on_fit)
        kept = [np.load(path).files for path in (tmp_path / "state").rglob("*.npz")]
        steps = [models[number + 1] - models[number] for number in sorted(models)[:-1]]
        return Run(rows, steps, updates, any("residual" in files for files in kept), len(probes))

    return carry_out


@pytest.mark.parametrize("strategy", ["random", "adasample"])
def test_fedavg_and_adasample_send_whole_updates_and_keep_nothing(run, strategy):
    done = run(OWN, strategy)
    assert {update.values.size for update in done.updates.values()} == {SIZE}
    assert [row["uplink_value_bytes"] for row in done.rows] == [4 * SIZE * len(row["aggregated"]) for row in done.rows]
    assert (done.residuals, done.curvature_probes) == (False, 0)


@pytest.mark.parametrize("strategy", ["fedcg", "optrate"])
def test_fedcg_and_optrate_send_a_part_without_residual_and_curvature(run, strategy):
    done = run(OWN, strategy)
    assert min(update.values.size for update in done.updates.values()) < SIZE
    assert (done.residuals, done.curvature_probes) == (False, 0)


def test_flexcom_keeps_what_it_did_not_send(run):
    done = run(OWN, "flexcom")
    assert max(update.values.size for update in done.updates.values()) < SIZE
    assert (done.residuals, done.curvature_probes) == (True, 0)


@pytest.mark.parametrize("strategy", ["random", "fedcg", "adasample"])
def test_the_server_steps_by_the_updates_as_they_are(run, strategy):
    """FedAvg by examples, the others by the weights of their selection; no momentum from the round before."""
    done = run(OWN, strategy)
    for number, step in enumerate(done.steps, start=1):
        row = done.rows[number - 1]
        sums = [done.updates[number, client].dense().astype(np.float64) for client in row["aggregated"]]
        np.testing.assert_allclose(step, np.array(row["weights"]) @ np.array(sums), atol=1e-6)


@pytest.mark.parametrize("strategy", ["random", "fedcg"])
def test_with_everything_equal_they_send_and_keep_as_hetero_select_does(run, strategy):
    done = run(EQUAL, strategy)
    assert min(update.values.size for update in done.updates.values()) < SIZE
    assert done.residuals
    assert done.curvature_probes > 0
