"""ISP on quadratics: the search by hand, its costs, and the state that it leaves alone."""

import numpy as np
import pytest

from fedsel_app.config import NetworkConfig
from fedsel_app.network.links import SimulatedLinks
from strategies.participation import best_relative, mixed
from tests.support.isp_ring import CLIENTS, MODEL_BYTES, REPLY_BYTES, ring, run_isp, setup_for


@pytest.mark.parametrize("exponent", [0.0, 0.5, 1.0, 2.0])
def test_the_relative_improvement_is_the_largest_of_all(exponent):
    gains = np.random.default_rng(3).normal(size=40)
    best = max(range(1, 41), key=lambda m: (gains[m - 1] / m**exponent, -m))
    assert best_relative(range(1, 41), gains.tolist(), exponent) == best


def test_of_equal_relative_improvements_the_fewest_clients_and_numbers_only():
    assert best_relative([1, 2, 4], [1.0, 2.0, 4.0], 1.0) == 1
    # df = -0.1, -0.4, -0.45 are improvements of 0.1, 0.2 and 0.15 a client. Eq. 6 as printed would take m = 1.
    assert best_relative([1, 2, 3], [0.1, 0.4, 0.45], 1.0) == 2
    assert best_relative([1, 2], [float("nan"), -1.0], 1.0) == 2
    assert best_relative([1, 2], [float("nan"), float("-inf")], 1.0) is None


def test_what_is_found_is_mixed_with_what_was():
    assert mixed(4, 20, 0.5) == 12
    assert mixed(1, 2, 0.5) == 2
    assert mixed(3, 4, 0.5) == 4
    assert mixed(7, 100, 1.0) == 7
    assert mixed(0, 0, 0.5) == 1
    # 0.5 * 16 + 0.5 * 7 = 11.5 and 0.25 * 3 + 0.75 * 8 = 6.75
    assert (mixed(16, 7, 0.5), mixed(16, 7, 0.5, down=True)) == (12, 11)
    assert (mixed(3, 8, 0.25), mixed(3, 8, 0.25, down=True)) == (7, 6)


# The search


def test_improvement_that_starts_at_four_is_found_as_four_and_not_a_client_more_is_tried():
    # 1.9 / sqrt(m) < 1 from m = 4 on.
    [row], _, _ = run_isp(setup_for(ring()))
    search = row["search"]
    assert search["found"] == row["cohort"] == len(row["selected"]) == 4
    assert search["tried"] == [1, 2, 3, 4]
    assert search["losses"] == [1.5, 1.5, 1.5, 0.5]
    assert search["global_loss"] == 1.0
    # The moving average of f(w) and the candidates' loss.
    assert search["improvements"] == pytest.approx([-0.5 / 3, -0.5 / 3, -0.5 / 3, 0.5 / 3])


@pytest.mark.parametrize(
    ("settings", "length", "tried", "found", "cohort"),
    [
        ({}, 0.5, [1], 1, 1),
        ({"isp_step": 2}, 1.9, [1, 3, 5], 5, 5),
        ({}, 9.0, range(1, 9), None, 8),
    ],
    ids=["one is enough", "steps", "none helps: all"],
)
def test_the_numbers_that_are_tried_and_the_one_that_is_found(settings, length, tried, found, cohort):
    [row], _, _ = run_isp(setup_for(ring(), **settings), length=length)
    assert row["search"]["tried"] == list(tried)
    assert (row["search"]["found"], row["cohort"]) == (found, cohort)


def test_in_the_authors_form_the_number_stays_if_none_helps():
    rows, _, _ = run_isp(setup_for(ring(), isp_form="code", rounds=2), length=9.0)
    assert (rows[0]["search"]["found"], [row["cohort"] for row in rows]) == (None, [CLIENTS, 2])


# Round 1 finds 1; nothing improves on -1 later: all 8. (1 + 8) / 2 = 4.5, (4 + 8) / 2 = 6 and (6 + 8) / 2 = 7.
@pytest.mark.parametrize(
    ("settings", "cohorts"),
    [
        ({}, [1, 1, 4, 4, 6]),
        ({"isp_momentum": 0.75}, [1, 1, 6, 6, 8]),
    ],
)
def test_momentum_from_the_first_number_and_between_searches(settings, cohorts):
    settings = {"isp_momentum": 0.5, "isp_interval": 2} | settings
    rows, _, _ = run_isp(setup_for(lambda w, _: -1.0 if np.any(w) else 1.0, rounds=5, **settings))
    assert [row["cohort"] for row in rows] == cohorts
    assert ["search" in row for row in rows] == [True, False, True, False, True]
    assert rows[2]["search"]["found"] is None


def test_isp_ri_tries_every_number_and_takes_the_best_ratio():
    losses = dict(enumerate((0.9, 0.5, 0.2, 0.15, 0.1, 0.1, 0.1, 0.1), start=1))

    def loss(parameters, _):
        return losses[np.count_nonzero(parameters)] if np.any(parameters) else 1.0

    [row], _, _ = run_isp(setup_for(loss, participation="isp-ri"))
    best = max(losses, key=lambda m: (1.0 - losses[m]) / m)
    assert row["search"]["tried"] == list(range(1, 9))
    assert row["cohort"] == best == 3


# What it costs and what it leaves alone


def test_the_intermediate_exchanges_and_bytes_are_counted_and_tests_are_probes():
    [row], stubs, _ = run_isp(setup_for(ring()))
    assert row["client_updates"] == CLIENTS + 4
    assert row["uplink_bytes"] == (CLIENTS + 4) * REPLY_BYTES
    assert row["uplink_value_bytes"] == (CLIENTS + 4) * 4
    assert row["downlink_bytes"] == (CLIENTS + 4) * MODEL_BYTES
    assert row["probe_bytes"] == 0
    assert not any("evaluate" in stub.kinds for stub in stubs)
    uplinks, step_s = SimulatedLinks(NetworkConfig(), CLIENTS, 42).observe(1, np.full(CLIENTS, np.nan))
    seconds = 2 * step_s + 8 * REPLY_BYTES / uplinks
    assert row["round_s"] == pytest.approx(seconds.max() + seconds[row["selected"]].max())
