"""Every ablation of the HeteRo-Select paper is one `--set` away, and does what it says for two rounds."""

from dataclasses import dataclass
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest
import torch

from clients.state import ClientHistory, StateStore
from fedsel_app.wire.codec import Update, decode
from fedsel_app.wiring.configuration import resolve
from simulation.workbench.command_line.arguments import parse_setting
from tests.support.in_process import run_config
from tests.support.stubs import sent_payload

BASE = {
    "strategy": "hetero-select",
    "clients": 6,
    "cohort": 5,
    "rounds": 2,
    "local-steps": 4,
    "batch-size": 16,
    "probe-batches": 2,
    "kept-warmup-rounds": 0,
}
"""Five of six clients, compressed from the first round on: most of them come twice, and one of them late."""
COMPONENTS = {"loss": ["loss"], "diversity": ["diversity"], "fairness-staleness": ["fairness", "staleness"]}
PAPER = {"loss": 1.0, "diversity": 0.3, "fairness": 0.2, "staleness": 0.2}


@dataclass(frozen=True)
class Run:
    rows: list[dict[str, Any]]
    parameters: np.ndarray
    instructions: dict[tuple[int, int], dict[str, Any]]
    updates: dict[tuple[int, int], Update]
    residuals: dict[int, np.ndarray]
    """Of the clients that were selected in the last round."""


@cache
def run(*settings: str) -> Run:
    instructions, updates = {}, {}
    torch.set_num_threads(1)
    with TemporaryDirectory() as folder:

        def on_fit(client, message, reply):
            key = message.instruction.server_round, client
            instructions[key] = message.instruction
            updates[key] = decode(sent_payload(reply), size=650).update
            return reply

        values = BASE | {"state-dir": folder} | dict(map(parse_setting, settings))
        _, rows = run_config(Path(folder) / "run", resolve(values), on_fit)
        with np.load(Path(folder) / "run" / "model.npz", allow_pickle=False) as model:
            parameters = model["parameters"]
        kept = {path.name: path.parent for path in (Path(folder) / "fedsel-state").glob("*/client-*")}
        residuals = {
            client: StateStore(kept[f"client-{client}"]).recall(client, ClientHistory(2, 2))[0]["residual"]
            for client in rows[-1]["selected"]
        }
    return Run(rows, parameters, instructions, updates, residuals)


def rank_of(row, weights):
    """The weighted sum of the selected clients' components."""
    return sum(weights[name] * np.array(values) for name, values in row["components"].items())


def follow(scores, sums):
    """True if `scores` are `sums` up to a shift and a positive scale, as min-max over all clients leaves them."""
    scores, sums = np.array(scores), np.array(sums)
    slope, shift = np.polyfit(sums, scores, 1)
    return bool(slope > 0 and np.allclose(slope * sums + shift, scores, atol=1e-9))


def test_the_base_is_the_papers_method():
    base = run()
    assert len(base.rows) == 2
    assert all(follow(row["scores"], rank_of(row, PAPER)) for row in base.rows)
    assert all(row["probe_bytes"] > 6 * 4 * 650 for row in base.rows)
    assert set(base.rows[0]["selected"]) != set(base.rows[1]["selected"])
    for row in base.rows:
        theta = row["kept_fraction"]
        assert len(set(row["kept_fractions"])) > 2
        weights = np.array(row["scores"]) / sum(row["scores"])
        assert row["weights"] == pytest.approx(weights)
        for client in row["selected"]:
            ins = base.instructions[row["round"], client]
            assert ins.residual_decay == pytest.approx(0.85 + 0.12 * (1 - theta))
            assert ins.learning_rate == pytest.approx(0.05 * (1 - 0.5 * row["round"] / 2))


@pytest.mark.parametrize(("without", "gone"), COMPONENTS.items())
def test_a_component_is_left_out_of_the_score(without, gone):
    ablated, base = run(f"hetero-select.without={without}").rows[1], run().rows[1]
    weights = PAPER | dict.fromkeys(gone, 0.0)
    assert follow(ablated["scores"], rank_of(ablated, weights))
    assert not follow(base["scores"], rank_of(base, weights))


@pytest.mark.parametrize(("without", "gone"), COMPONENTS.items())
def test_leaving_a_component_out_is_giving_it_no_weight(without, gone):
    ablated = run(f"hetero-select.without={without}")
    assert not np.array_equal(ablated.parameters, run().parameters)
    by_weights = run(*(f"hetero-select.{name}-weight=0" for name in gone))
    assert np.array_equal(ablated.parameters, by_weights.parameters)
    assert ablated.rows[0]["selected"] == by_weights.rows[0]["selected"]


def test_uniform_compression():
    ablated = run("allocation=uniform")
    for row in ablated.rows:
        assert row["kept_fractions"] == [row["kept_fraction"]] * 5
    counts = {update.count for (number, _), update in ablated.updates.items() if number == 1}
    assert counts == {int(np.ceil(650 * 0.2 * 1.4))}
    assert len({update.count for (number, _), update in run().updates.items() if number == 1}) > 1


def test_static_beta():
    ablated = run("residual-decay=static")
    assert {ins.residual_decay for ins in ablated.instructions.values()} == {0.9}
    first = {client: update for (number, client), update in ablated.updates.items() if number == 1}
    base = {client: update for (number, client), update in run().updates.items() if number == 1}
    assert first == base
    assert not np.array_equal(ablated.parameters, run().parameters)


def test_uniform_aggregation():
    ablated = run("weighting=uniform")
    for row in ablated.rows:
        assert row["weights"] == pytest.approx([0.2] * 5)
    assert ablated.rows[0]["selected"] == run().rows[0]["selected"]
    assert not np.array_equal(ablated.parameters, run().parameters)


def keeps_the_largest(done: Run) -> list[bool]:
    """Of each client in the last round: is all that it kept back, before its decay, smaller than all that it sent?"""
    answers = []
    for client, residual in done.residuals.items():
        beta = done.instructions[2, client].residual_decay
        sent = np.abs(done.updates[2, client].values).min()
        answers.append(bool(np.abs(residual).max() / beta <= sent * 1.0001))
    return answers


def test_pure_magnitude():
    assert keeps_the_largest(run("curvature-layers=0")) == [True] * 5
    assert not any(keeps_the_largest(run()))


def test_score_adaptive_learning_rate():
    ablated = run("hetero-select.score-adaptive-lr=true")
    for row in ablated.rows:
        rate = 0.05 * (1 - 0.5 * row["round"] / 2)
        for client, score in zip(row["selected"], row["scores"], strict=True):
            assert ablated.instructions[row["round"], client].learning_rate == pytest.approx(rate * (1 + score))
    assert not np.array_equal(ablated.parameters, run().parameters)


def test_the_proximal_term():
    """The larger mu, the closer the first clients stay to where they started."""
    norms = []
    for mu in (0, 0.01, 0.1, 0.5):
        done = run(f"mu={mu}", "kept-warmup-rounds=1")  # so that the first round's updates are whole
        norms.append(np.mean([update.norm() for (number, _), update in done.updates.items() if number == 1]))
    assert norms == sorted(norms, reverse=True)
    assert len(set(norms)) == 4
    assert np.array_equal(run("mu=0.1").parameters, run().parameters)
