"""Power-of-Choice: candidates by size, the largest losses among them."""

import numpy as np
import pytest

from strategies.methods.power_of_choice import PowerOfChoice, PowerOfChoiceConfig, candidate_count, largest
from strategies.roster import RoundInfo
from strategies.testing.fakes import make_context
from tests.support.contexts import make_roster
from tests.support.selecting import select, sequences


def build(clients=6, cohort=2, **settings):
    return PowerOfChoice(make_context(PowerOfChoiceConfig(**settings), clients=clients, cohort=cohort))


def play(method, roster, losses, count, seed, number=1):
    """A round: probe the candidates, then select. Who was probed, and who selected."""
    round_info, rng = RoundInfo(number, 10), np.random.default_rng(seed)
    probed = method.candidates(roster, round_info, count, rng)
    roster.losses[:] = np.nan
    roster.losses[probed] = np.asarray(losses)[probed]
    return probed.tolist(), method.select(roster, round_info, count, rng).clients.tolist()


def chances(weights, losses, d, m):
    """P(selected) of every client by enumeration of the candidate sequences; losses distinct."""
    found = np.zeros(len(weights))
    for sequence, probability in sequences(weights, d):
        found[sorted(sequence, key=lambda k: -losses[k])[:m]] += probability
    return found


def test_the_reference_vector():
    """p = (.5, .3, .2), losses (1, 2, 3), d = 2, m = 1: client 1 is selected if the candidates are 0 and 1, which has
    probability .5 x .3 / .5 + .3 x .5 / .7 = .514286, and client 2 otherwise."""
    expected = [0, 0.514286, 0.485714]
    np.testing.assert_allclose(chances([5, 3, 2], [1, 2, 3], 2, 1), expected, atol=1e-6)
    method, roster, draws = build(3, 1, candidates=2), make_roster(3, examples=[50, 30, 20]), 1500
    found = np.zeros(3)
    for seed in range(draws):
        found[play(method, roster, [1.0, 2.0, 3.0], 1, seed)[1]] += 1
    np.testing.assert_allclose(found / draws, expected, atol=0.04)


@pytest.mark.parametrize("variant", ["pow-d", "rpow-d"])
def test_selection_frequencies_equal_enumeration(variant):
    """Ids are not positions: client 1 is away. In rpow-d, which nobody probes, the remembered losses decide."""
    losses, sizes = [1.0, 9.0, 4.0, 3.0, 2.0], [10, 80, 20, 30, 40]
    there = [0, 2, 3, 4]
    method = build(5, 2, variant=variant, candidates=3)
    roster = make_roster(5, examples=sizes, available=there)
    roster.selections[:], roster.fit_losses[:] = 1, losses
    draws, found = 1500, np.zeros(5)
    for seed in range(draws):
        probed, selected = play(method, roster, losses, 2, seed)
        found[selected] += 1
        assert len(probed) == 3
        assert set(selected) <= set(there)
    expected = np.zeros(5)
    expected[there] = chances([sizes[k] for k in there], [losses[k] for k in there], 3, 2)
    np.testing.assert_allclose(found / draws, expected, atol=0.04)


def test_with_all_as_candidates_it_is_the_top_m_of_the_current_losses():
    method, roster = build(candidates=6), make_roster(6)
    roster.fit_losses[:] = [9, 8, 7, 6, 5, 4]
    assert play(method, roster, [1, 5, 2, 6, 3, 4], 2, 0) == ([0, 1, 2, 3, 4, 5], [1, 3])


def test_ties_go_by_the_draw():
    method, roster = build(4, 1, candidates=4), make_roster(4, examples=[70, 10, 10, 10])
    found = np.bincount([play(method, roster, [1.0] * 4, 1, seed)[1][0] for seed in range(1000)], minlength=4)
    np.testing.assert_allclose(found / 1000, [0.7, 0.1, 0.1, 0.1], atol=0.05)
    assert largest(np.array([1.0, np.nan, 2.0, 2.0, np.inf, -np.inf]), 6).tolist() == [4, 2, 3, 0, 5, 1]


def test_rpow_d_tries_the_never_selected_first_and_starves_nobody():
    method, roster = build(8, 2, variant="rpow-d", candidates=4), make_roster(8, examples=[100] * 7 + [1])
    for number in range(1, 200):
        picked = select(method, roster, number, 2, seed=number).clients
        fresh = int((roster.selections == 0).sum())
        if fresh == 8:
            assert (roster.selections[picked] == 0).all()
        roster.selections[picked] += 1
        roster.fit_losses[picked] = picked + 1.0
    assert (roster.selections > 0).all()


def test_rpow_d_does_not_pick_a_failing_client_for_ever():
    """Client 0 never reports; among known losses 1 and 3 it counts as 2."""
    method, roster = build(3, 1, variant="rpow-d", candidates=3), make_roster(3)
    roster.selections[:], roster.fit_losses[:] = 1, [np.nan, 1.0, 3.0]
    assert {select(method, roster, 5, 1, seed).clients[0] for seed in range(20)} == {2}


@pytest.mark.parametrize(
    ("settings", "count", "expected"),
    [
        ({}, 2, 4),
        ({}, 5, 8),
        ({"candidates": 6}, 2, 6),
        ({"candidates": 20}, 2, 8),
        ({"candidates": 3}, 5, 5),
    ],
)
def test_candidate_counts(settings, count, expected):
    """8 clients are there."""
    assert candidate_count(PowerOfChoiceConfig(**settings), count, 8) == expected


def test_nobody_is_probed_where_it_could_change_nothing():
    method, roster = build(candidates=2), make_roster(6, examples=[500, 1, 1, 1, 1, 1])
    probed, selected = play(method, roster, [0, 1, 2, 3, 4, 5], 2, 0)
    assert probed == []
    assert 0 in selected


def test_each_variant_says_what_it_probes():
    needs = {name: PowerOfChoice.needs(PowerOfChoiceConfig(variant=name)) for name in ("pow-d", "rpow-d")}
    assert (needs["pow-d"].loss_probe, needs["pow-d"].probe_batches) == (True, 0)
    assert not needs["rpow-d"].loss_probe
