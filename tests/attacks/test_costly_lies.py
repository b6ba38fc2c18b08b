"""Lies that cost: what few clients alone touch, and bytes (N7)."""

import numpy as np
import pytest

from fedsel_app.config import AggregationConfig, BudgetConfig
from laboratory.bench.lies import LIARS, RULES, read, result
from strategies.roster import RoundInfo
from strategies.round.budget import client_fractions
from tests.support.lying_losses import LIARS as LYING
from tests.support.lying_losses import run_with_lying_losses


@pytest.mark.parametrize("rule", ["median", "trimmed-mean", "multi-krum"])
def test_a_backdoor_in_entries_that_honest_clients_hardly_use_stays_out(rule):
    federation = read("digits", 1)
    _, open_ = result(federation, RULES[rule], "backdoor")
    accuracy, bounded = result(federation, RULES[f"{rule}, entry-malicious={len(LIARS)}"], "backdoor")
    assert open_ > 0.8
    assert bounded < 0.2
    assert accuracy > 0.9


def test_the_bound_costs_honest_clients_nothing():
    federation = read("digits", 2)
    plain, _ = result(federation, RULES["trimmed-mean"], "honest")
    bounded, _ = result(
        federation, AggregationConfig(aggregation="trimmed-mean", krum_malicious=2, entry_malicious=2), "honest"
    )
    assert bounded > plain - 0.02


def honest_fractions(rows):
    """Mean kept fraction of the honest clients that were selected, without the warm-up."""
    return np.mean(
        [
            kept
            for row in rows[1:]
            for client, kept in zip(row["selected"], row["kept_fractions"], strict=True)
            if client not in LYING
        ]
    )


@pytest.mark.parametrize("method", ["hetero-select", "hetero-select-stable"])
def test_lying_losses_take_no_kept_fraction_from_others(method, tmp_path, monkeypatch):
    """N7: four of twenty left the honest clients 0.11 of the entries in place of 0.2, `loss-clip=3` or not.

    In 12 rounds, without a clip, they take 35% from the honest clients of hetero-select, and 10% of the stable form.
    """
    settings = {"strategy": method, "compressor": "top-k", "link_cap": "none", "loss_clip": 3.0, "rounds": 12}
    honest = honest_fractions(run_with_lying_losses(tmp_path / "honest", monkeypatch, (), **settings))
    lied = honest_fractions(run_with_lying_losses(tmp_path / "lied", monkeypatch, **settings))
    assert lied == pytest.approx(honest, rel=0.05)


def test_under_uniform_allocation_absurd_scores_take_no_kept_fraction_from_others():
    honest, lied = np.array([1.0, 1.1, 0.9, 1.0, 1.2]), np.array([1.0, 1.1, 0.9, 50.0, 50.0])
    for allocation, taken in (("score", True), ("uniform", False)):
        config = BudgetConfig(allocation=allocation, kept_warmup_rounds=0)
        before, after = (
            client_fractions(scores, 0.2, np.full(5, 0.5), RoundInfo(2, 10), config)[:3] for scores in (honest, lied)
        )
        assert bool((after < before).any()) == taken
