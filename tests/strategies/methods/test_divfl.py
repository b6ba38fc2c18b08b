"""DivFL: greedy facility location against exhaustive search."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedsel_app.config import Settings
from strategies.methods.divfl import DivFL, facility_location
from strategies.roster import RoundInfo
from strategies.testing.fakes import dense, make_context, outcome
from tests.support.contexts import seen_roster
from tests.support.points import POINTS, distances_of, points_outcome
from tests.support.selecting import select


def cost(distances, chosen):
    return sum(min(row[i] for i in chosen) for row in distances)


def build():
    return DivFL(make_context(Settings(), clients=5, size=2))


@pytest.mark.parametrize(
    ("count", "picked", "objective"), [(1, [1], 15.888406), (2, [1, 3], 3.414214), (3, [1, 3, 0], 2)]
)
def test_the_reference_points(count, picked, objective):
    """A single client costs the sum of its distances: 1 + sqrt(2) + sqrt(41) + sqrt(50) = 15.888406 is the least.

    The others cost 16.88, 16.03, 20.88 and 23.09. Beside 1, client 3 (as 4, which is later) leaves 1 + sqrt(2) + 1 =
    3.414214, 0 and 2 leave 14.47; then 0 (as 2, which is later) leaves 1 + 1 = 2, and 4 leaves 1 + sqrt(2).
    """
    distances = distances_of(POINTS)
    found = facility_location(distances, count)
    assert found.tolist() == picked
    assert cost(distances, found) == pytest.approx(objective, abs=1e-6)


@given(st.integers(0, 10_000), st.integers(2, 7), st.integers(1, 4))
def test_every_greedy_step_has_the_largest_marginal_gain(seed, size, count):
    points = np.random.default_rng(seed).normal(size=(size, 3))
    distances = np.sqrt(np.square(points[:, None] - points).sum(axis=2))
    found = facility_location(distances, count).tolist()
    assert len(set(found)) == min(count, size)
    for step, client in enumerate(found):
        options = [other for other in range(size) if other not in found[:step]]
        best = min(cost(distances, [*found[:step], other]) for other in options)
        assert cost(distances, found[: step + 1]) == pytest.approx(best, abs=1e-9)
        assert client in options


def test_ties_go_to_the_lowest_id_and_equal_updates_still_fill_the_cohort():
    assert facility_location(np.zeros((5, 5)), 3).tolist() == [0, 1, 2]


@pytest.mark.parametrize("available", [[0, 1, 2, 3, 4], [0, 2, 3]])
def test_the_method_picks_the_representatives_by_id(available):
    method = build()
    method.learn(points_outcome())
    expected = [1, 3] if len(available) == 5 else [2, 3]
    assert select(method, seen_roster(available=available), 2, 2).clients.tolist() == expected


def test_a_place_is_filled_beside_those_under_way():
    """Client 1 represents 0 and 2; nobody represents 4, which is far away."""
    method, roster = build(), seen_roster(available=[0, 2, 4])
    method.learn(points_outcome())
    roster.under_way[1] = True
    assert select(method, roster, 2, 1).clients.tolist() == [4]


def test_only_participants_are_refreshed():
    method = build()
    method.learn(points_outcome())
    method.learn(outcome(RoundInfo(2, 10), [1], [dense([6.0, 6.0])]))
    points = POINTS.copy()
    points[1] = (6, 6)
    best = min(range(5), key=lambda client: cost(distances_of(points), [client]))
    assert select(method, seen_roster(), 3, 1).clients.tolist() == [best]
