"""Terraform: the split against exact arithmetic over all splits, and the course of its rounds."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedsel_app.wire.codec import Update
from strategies.methods.terraform import Terraform, TerraformConfig, split_index
from strategies.roster import RoundInfo
from strategies.testing.fakes import dense, make_context, outcome
from tests.support.contexts import make_roster
from tests.support.exact_split import exact_split
from tests.support.selecting import select

QUARTILES = ("q1-q3", "0-1", "0-q3", "q1-1", "q3-1")
MAGNITUDES = ("gradient", "bias", "weights", "loss")
CLIENTS, SIZE = 12, 12


@pytest.mark.parametrize("quartiles", QUARTILES)
@given(clients=st.lists(st.tuples(st.integers(0, 12), st.integers(1, 9)), min_size=1, max_size=12))
def test_the_split_is_the_best_of_all(quartiles, clients):
    clients = sorted((Fraction(u), n) for u, n in clients)
    magnitudes, examples = (np.array([float(pair[i]) for pair in clients]) for i in (0, 1))
    assert split_index(magnitudes, examples, quartiles) == exact_split(clients, quartiles)


@pytest.mark.parametrize("scale", [1e-30, 1.0, 1e38])
def test_the_split_does_not_depend_on_scale_or_origin(scale):
    magnitudes = np.array([1.0, 1.1, 1.2, 5.0, 5.3, 9.0])
    assert split_index(magnitudes * scale, np.ones(6), "0-1") == 3
    assert split_index(magnitudes + 1e6, np.ones(6), "0-1") == 3


def test_equal_magnitudes_split_at_the_first_index_of_the_range():
    assert split_index(np.full(8, 0.1), np.arange(1.0, 9.0), "q1-q3") == 4  # 1+2+3+4 = 10 >= 36/4


def build(**changes):
    return Terraform(make_context(TerraformConfig(**changes), clients=CLIENTS, size=SIZE, cohort=10))


def moved(clients, magnitudes):
    """Updates whose output layer has the given norms; the body moves the other way round and must not count."""
    updates = []
    for magnitude in magnitudes:
        values = np.zeros(SIZE)
        values[0], values[6] = 100.0 - magnitude, magnitude
        updates.append(dense(values))
    return outcome(RoundInfo(1, 10), clients, updates)


def test_a_round_draws_trains_the_hard_sets_and_draws_again():
    method, roster = build(iterations=3), make_roster(CLIENTS)
    method.whole_roster = roster
    first = select(method, roster, 1, 10)
    assert first.clients.size == 10
    assert first.components["round"].tolist() == [1.0] * 10
    assert first.components["iteration"].tolist() == [1.0] * 10

    # Clients in falling order of magnitude, so that the hard ones have the lowest ids.
    method.update(moved(first.clients, [20, 19, 18, 17, 16, 15, 14, 2, 1, 0]))
    second = select(method, roster, 2, 10)
    assert second.clients.tolist() == first.clients[:7].tolist()
    assert second.components["round"].tolist() == [1.0] * 7
    assert second.components["iteration"].tolist() == [2.0] * 7

    # 25% of 7 is held by 2 clients, 75% by 6; the best split takes off three.
    method.update(moved(second.clients, [9, 9, 9, 9, 1, 1, 1]))
    third = select(method, roster, 3, 10)
    assert third.clients.tolist() == second.clients[:4].tolist()
    assert third.components["iteration"].tolist() == [3.0] * 4

    method.update(moved(third.clients, [4, 3, 2, 1]))
    fourth = select(method, roster, 4, 10, seed=5)
    assert fourth.clients.size == 10
    assert fourth.components["round"].tolist() == [2.0] * 10
    assert fourth.components["iteration"].tolist() == [1.0] * 10


def test_only_magnitudes_of_one_part_of_the_output_layer_need_its_biases():
    needed = {name: Terraform.needs(TerraformConfig(magnitude=name)).output_biases for name in MAGNITUDES}
    assert needed == {"gradient": False, "bias": True, "weights": True, "loss": False}


def test_its_own_round_is_known_before_the_selection():
    """The hard set is clients 3 ... 9. With 4 or more of them the round continues, with fewer the next one begins."""
    method, roster = build(), make_roster(CLIENTS)
    method.whole_roster = roster
    assert method.own_round(roster) == build(min_clients=1).own_round(roster) == (1, 1)
    method.update(moved(range(10), [1, 1, 1, 5, 5, 5, 5, 5, 5, 5]))
    assert method.own_round(roster) == (1, 2)
    roster.available[[3, 4, 5]] = False
    assert method.own_round(roster) == (1, 2)
    roster.available[6] = False
    assert method.own_round(roster) == (2, 1)
    assert Terraform.most_iterations(TerraformConfig(iterations=3)) == 1
    assert Terraform.most_iterations(TerraformConfig(iterations=3, count="rounds")) == 3


def test_a_round_is_counted_as_it_was_selected_if_only_some_of_the_hard_set_are_connected():
    """Of the hard set 3 ... 9 only 3, 4 and 5 are connected, fewer than eta = 4: they are the cohort of round 2."""
    method, roster = build(), make_roster(CLIENTS)
    method.whole_roster = roster
    method.update(moved(range(10), [1, 1, 1, 5, 5, 5, 5, 5, 5, 5]))
    roster.available[:] = False
    roster.available[[3, 4, 5]] = True
    chosen = select(method, roster, 2, 3)
    assert chosen.clients.tolist() == [3, 4, 5]
    assert (chosen.components["round"][0], chosen.components["iteration"][0]) == (2, 1)
    method.update(moved(chosen.clients, [1, 2, 3]))
    assert (method.state()["round"], method.state()["iteration"]) == (2, 1)
    roster.available[:] = True
    assert method.own_round(roster) == (3, 1)


@pytest.mark.parametrize(("first", "hard"), [(100, [1, 2, 3, 4]), (99, [])])
def test_five_clients_are_split_if_the_smallest_magnitude_is_of_a_client_with_a_quarter_of_the_examples(first, hard):
    """Four of five remain only if the first quartile ends at the first client: its 100 are a quarter of 100 + 300."""
    method, roster = build(), make_roster(CLIENTS, examples=[first, 75, 75, 75, 75, *[1] * 7])
    method.whole_roster = roster
    method.update(moved(range(5), [1, 9, 9, 9, 9]))
    assert method.state()["hard"].tolist() == hard


def test_failed_and_absent_clients():
    method, roster = build(), make_roster(CLIENTS)
    method.whole_roster = roster
    result = moved([0, 1, 2, 3, 4, 5, 6, 7], [9, 8, 9, 8, 9, 8, 1, 1])
    method.update(result)
    assert method.state()["hard"].tolist() == [1, 3, 5, 0, 2, 4]  # ascending by magnitude, then by id

    roster.available[0] = False
    assert select(method, roster, 2, 10).clients.tolist() == [1, 2, 3, 4, 5]
    assert select(method, roster, 2, 4).clients.tolist() == [2, 3, 4, 5]  # the four hardest that are there
    roster.available[[1, 2]] = False
    fresh = select(method, roster, 2, 9)
    assert fresh.components["round"].tolist() == [2.0] * fresh.clients.size
    assert fresh.clients.size == 9

    empty = outcome(RoundInfo(2, 10), [], [], failed=[1, 2, 3, 4, 5])
    method.update(empty)
    assert method.state()["hard"].size == 0


def test_an_iteration_with_failures_counts_and_goes_on_without_them():
    method = build()
    method.whole_roster = make_roster(CLIENTS)
    method.update(moved(range(10), [1, 1, 1, 5, 5, 5, 5, 5, 5, 5]))
    assert method.state()["hard"].tolist() == [3, 4, 5, 6, 7, 8, 9]
    result = moved([3, 4, 5, 6, 7, 8], [1, 1, 9, 9, 9, 9])
    method.update(outcome(RoundInfo(2, 10), [3, 4, 5, 6, 7, 8], result.updates, failed=[9]))
    state = method.state()
    assert (state["round"], state["iteration"]) == (1, 2)
    assert state["hard"].tolist() == [5, 6, 7, 8]


@pytest.mark.parametrize(
    ("magnitude", "expected"), [("gradient", [5.0, 13.0]), ("bias", [3.0, 5.0]), ("weights", [4.0, 12.0])]
)
def test_what_is_read_of_an_update(magnitude, expected):
    """The layer is entries 6 ... 11, its last two the biases."""
    full = dense([9, 9, 9, 9, 9, 9, 4, 0, 0, 0, 3, 0])
    sparse = Update(SIZE, np.array([0, 7, 11], np.uint32), np.array([7, 12, 5], np.float32))
    assert build(magnitude=magnitude).magnitudes(outcome(RoundInfo(1, 10), [0, 1], [full, sparse])).tolist() == expected
