import math
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedsel_app.config import TrainingConfig
from fedsel_app.wire.codec import Update
from strategies.methods.hetero_select import HeteroSelect, HeteroSelectConfig, fairness, staleness, temperature
from strategies.roster import RoundInfo
from strategies.testing import CHECKS
from strategies.testing.fakes import dense, make_context, outcome
from tests.support.contexts import make_roster
from tests.support.selecting import sequences

SIZE = 4
NOW = RoundInfo(3, 10)
# log 2, log 3, log 4, log 2 of `last_selected` [2, 1, 0, 2] in round 3, spread over [0, 1].
STALE = [0.0, math.log2(3) - 1, 1.0, 0.0]


def method(clients=4, size=SIZE, training=None, **config):
    groups = {} if training is None else {"training": training}
    return HeteroSelect(make_context(HeteroSelectConfig(**config), clients=clients, size=size, **groups))


def history():
    """Four clients before round 3: V' = [.5, 0, 1, .25], F' = [-1, 0, 1, 0] and St' = STALE."""
    roster = make_roster(4, losses=[2.0, 1.0, 3.0, 1.5])
    roster.selections[:] = [2, 1, 0, 1]
    roster.last_selected[:] = [2, 1, 0, 2]
    return roster


def everybody(selector, roster, round_info=NOW):
    return selector.select(roster, round_info, roster.ids.size, np.random.default_rng(0))


def spread(values):
    low, high = min(values), max(values)
    return [(value - low) / (high - low) for value in values]


# Equations 1-5 --------------------------------------------------------------------------------------------------------


def test_components_by_hand():
    components = everybody(method(), history()).components
    np.testing.assert_allclose(components["loss"], [0.5, 0.0, 1.0, 0.25])
    np.testing.assert_allclose(components["diversity"], [0.5] * 4)
    np.testing.assert_allclose(components["fairness"], [-1.0, 0.0, 1.0, 0.0])
    np.testing.assert_allclose(components["staleness"], STALE)


def test_score_by_hand():
    # 0.5 + 0.15 - 0.2 + 0.2 * 0       = 0.45
    # 0   + 0.15 + 0   + 0.2 * 0.58496 = 0.266993
    # 1   + 0.15 + 0.2 + 0.2           = 1.55
    # 0.25+ 0.15 + 0   + 0             = 0.40
    # less 0.266993, over 1.283007:
    scores = everybody(method(), history()).scores
    np.testing.assert_allclose(scores, [0.142640, 0.0, 1.0, 0.103669], atol=1e-6)


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        ({"without": "loss"}, [-0.2, 0.2 * STALE[1], 0.4, 0.0]),
        ({"loss_weight": 0.0}, [-0.2, 0.2 * STALE[1], 0.4, 0.0]),
        ({"without": "fairness-staleness"}, [0.5, 0.0, 1.0, 0.25]),
        ({"fairness_weight": 0.0, "staleness_weight": 0.0}, [0.5, 0.0, 1.0, 0.25]),
        ({"fairness_weight": 0.0}, [0.5, 0.2 * STALE[1], 1.2, 0.25]),
        ({"staleness_weight": 0.0}, [0.3, 0.0, 1.2, 0.25]),
        ({"loss_weight": 2.0}, [0.8, 0.2 * STALE[1], 2.4, 0.5]),
    ],
)
def test_ablations_by_hand(config, expected):
    np.testing.assert_allclose(everybody(method(**config), history()).scores, spread(expected))


def test_without_diversity_nothing_is_remembered():
    for config in ({"without": "diversity"}, {"diversity_weight": 0.0}):
        selector = method(**config)
        assert not selector.needs(HeteroSelectConfig(**config)).updates
        selector.learn(outcome(RoundInfo(1, 10), [0], [dense([1.0, 0.0, 0.0, 0.0])]))
        # 0.3, 0.116993, 1.4, 0.25
        assert everybody(selector, history()).scores == pytest.approx(spread([0.3, 0.2 * STALE[1], 1.4, 0.25]))


def test_cold_start():
    selection = everybody(method(), make_roster(4, losses=[2.0, 1.0, 3.0, 1.5]), RoundInfo(1, 10))
    np.testing.assert_array_equal(selection.components["diversity"], 0.5)
    np.testing.assert_array_equal(selection.components["fairness"], 0.0)
    np.testing.assert_array_equal(selection.components["staleness"], 0.0)
    np.testing.assert_allclose(selection.scores, [0.5, 0.0, 1.0, 0.25])


def test_clients_that_do_not_differ_score_one():
    for losses in ([2.0] * 4, [np.nan] * 4, [np.inf] * 4):
        selection = everybody(method(), make_roster(4, losses=losses), RoundInfo(1, 10))
        np.testing.assert_array_equal(selection.scores, 1.0)
        np.testing.assert_array_equal(selection.components["loss"], 0.0)


def test_a_diverged_loss_is_the_worst_and_an_unknown_one_average():
    selection = everybody(method(), make_roster(4, losses=[np.nan, np.inf, 1.0, 3.0]), RoundInfo(1, 10))
    # NaN -> (1 + 3) / 2, inf -> 3
    np.testing.assert_allclose(selection.components["loss"], [0.5, 1.0, 0.0, 1.0])


def test_fairness_by_hand_and_clipped():
    np.testing.assert_array_equal(fairness(np.zeros(3, np.int64)), 0.0)
    # mean 1.25: 1 - 5 / 1.25 = -3, clipped
    np.testing.assert_array_equal(fairness(np.array([5, 0, 0, 0])), [-1.0, 1.0, 1.0, 1.0])
    # mean 2
    np.testing.assert_allclose(fairness(np.array([1, 2, 3])), [0.5, 0.0, -0.5])


def test_staleness_by_hand():
    np.testing.assert_allclose(staleness(np.array([0, 6]), 7), [0.5 * math.log(8), 0.5 * math.log(2)])


def test_last_fit_losses_are_free_and_unknown_ones_average():
    config = HeteroSelectConfig(loss_source="last-fit")
    assert not HeteroSelect.needs(config).loss_probe
    assert HeteroSelect.needs(HeteroSelectConfig()).loss_probe
    assert not HeteroSelect.needs(HeteroSelectConfig(loss_weight=0.0)).loss_probe
    roster = make_roster(4, losses=[9.0, 8.0, 7.0, 6.0])
    roster.fit_losses[:] = [np.nan, 1.0, 3.0, 1.5]
    selection = everybody(method(loss_source="last-fit"), roster, RoundInfo(1, 10))
    # (1 + 3 + 1.5) / 3 = 1.8333
    np.testing.assert_allclose(selection.components["loss"], [0.8333333 / 2, 0.0, 1.0, 0.25], rtol=1e-6)


def test_probes_of_a_few_by_hand():
    """With two candidates, and a probe in every second round, the others keep what their last probe said."""
    selector = method(probe_candidates=2, probe_every=2)
    draw = np.random.default_rng(7)
    drawn = selector.candidates(make_roster(4), RoundInfo(1, 10), 2, draw)
    assert drawn.tolist() == sorted(np.random.default_rng(7).choice(4, 2, replace=False).tolist())
    assert selector.candidates(make_roster(4), RoundInfo(2, 10), 2, draw).size == 0
    assert [selector.probe_count(selector.config, RoundInfo(number, 10), 2, 4) for number in (1, 2, 3)] == [2, 0, 2]
    assert selector.probe_count(HeteroSelectConfig(), RoundInfo(2, 10), 2, 4) == 4
    third = HeteroSelectConfig(probe_every=3)
    assert [selector.probe_count(third, RoundInfo(number, 10), 2, 4) for number in (1, 2, 3, 4)] == [4, 0, 0, 4]

    def losses_of_round(number, losses):
        """Loss components where these losses were probed in the round; then the round is learnt."""
        selector.roster.losses[:] = losses
        shown = everybody(selector, selector.roster, RoundInfo(number, 10)).components["loss"]
        selector.update(outcome(RoundInfo(number, 10), [0], [dense([1.0, 0, 0, 0])]))
        return shown.tolist()

    selector.roster.available[:] = True
    # Not probed yet: the mean of 2 and 4.
    assert losses_of_round(1, [2.0, 4.0, np.nan, np.nan]) == [0.0, 1.0, 0.5, 0.5]
    assert losses_of_round(2, [np.nan] * 4) == [0.0, 1.0, 0.5, 0.5]
    # Old for 0, new for 1 and 3, and the mean of 2, 3 and 7 for 2.
    assert losses_of_round(3, [np.nan, 3.0, np.nan, 7.0]) == [0.0, 0.2, 0.4, 1.0]
    again = method(probe_candidates=2, probe_every=2)
    again.load_state(selector.state())
    again.roster.available[:] = True
    again.roster.losses[:] = np.nan
    assert everybody(again, again.roster, RoundInfo(4, 10)).components["loss"].tolist() == [0.0, 0.2, 0.4, 1.0]


def test_if_all_are_probed_a_failed_probe_is_an_average_loss():
    selector = method()
    selector.roster.available[:] = True
    for number, losses in ((1, [2.0, 4.0, 9.0, 2.0]), (2, [2.0, 4.0, np.nan, 2.0])):
        selector.roster.losses[:] = losses
        shown = everybody(selector, selector.roster, RoundInfo(number, 10)).components["loss"]
        selector.update(outcome(RoundInfo(number, 10), [0], [dense([1.0, 0, 0, 0])]))
    np.testing.assert_allclose(shown, [0, 1, 1 / 3, 0])


# Equation 3: diversity, its running average -----------------------------------------------------------------------


def diversity_of(selector, clients=4):
    return selector.select(make_roster(clients), RoundInfo(3, 10), clients, np.random.default_rng(0)).components[
        "diversity"
    ]


def test_diversity_by_hand():
    selector = method()
    sparse = Update(SIZE, np.array([1], np.uint32), np.array([2.0], np.float32))
    selector.learn(outcome(RoundInfo(1, 10), [0, 2], [dense([1.0, 0.0, 0.0, 0.0]), sparse]))
    # The aggregate is (0.5, 1, 0, 0): cosines 0.5 / sqrt(1.25) = 0.447214 and 1 / sqrt(1.25) = 0.894427.
    np.testing.assert_allclose(diversity_of(selector), [0.552786, 0.5, 0.105573, 0.5], atol=1e-6)
    # Client 3 turns the average to (-2, 0, 0, 0): client 0 points the other way (clipped), client 2 is orthogonal.
    selector.learn(outcome(RoundInfo(2, 10), [3], [dense([-2.0, 0.0, 0.0, 0.0])]))
    np.testing.assert_allclose(diversity_of(selector), [1.0, 0.5, 1.0, 0.0], atol=1e-6)


def test_a_client_that_failed_keeps_its_last_update_and_an_empty_round_changes_nothing():
    selector = method()
    selector.learn(outcome(RoundInfo(1, 10), [0], [dense([1.0, 1.0, 0.0, 0.0])], failed=[1]))
    before = diversity_of(selector)
    np.testing.assert_allclose(before, [0.0, 0.5, 0.5, 0.5], atol=1e-6)
    selector.learn(outcome(RoundInfo(2, 10), [], [], failed=[0, 1]))
    np.testing.assert_array_equal(diversity_of(selector), before)


@given(st.integers(0, 2**31))
def test_diversity_is_one_less_the_dense_cosine(seed):
    rng = np.random.default_rng(seed)
    selector, last = method(5, 30), {}
    for number in (1, 2, 3):
        clients = np.sort(rng.choice(5, 2, replace=False)).tolist()
        updates = []
        for client in clients:
            indices = np.sort(rng.choice(30, 12, replace=False)).astype(np.uint32)
            updates.append(Update(30, indices, rng.normal(size=12).astype(np.float32)))
            last[client] = updates[-1].dense().astype(np.float64)
        result = outcome(RoundInfo(number, 10), clients, updates)
        selector.learn(result)
    expected = np.full(5, 0.5)
    for client, vector in last.items():
        cosine = vector @ result.aggregate / np.linalg.norm(vector) / np.linalg.norm(result.aggregate)
        expected[client] = min(max(1.0 - cosine, 0.0), 1.0)
    np.testing.assert_allclose(diversity_of(selector, 5), expected, atol=1e-6)


def test_the_authors_running_average_by_hand():
    selector = method(average_decay=0.9)
    selector.learn(outcome(RoundInfo(1, 10), [0], [dense([1.0, 0.0, 0.0, 0.0])]))
    selector.learn(outcome(RoundInfo(2, 10), [1], [dense([0.0, 1.0, 0.0, 0.0])]))
    # 0.1 (1, 0), then 0.9 * 0.1 (1, 0) + 0.1 (0, 1) = (0.09, 0.1), of norm sqrt(0.0181) = 0.134536:
    # cosines 0.09 / 0.134536 = 0.668965 and 0.1 / 0.134536 = 0.743294.
    np.testing.assert_allclose(diversity_of(selector), [0.331035, 0.256706, 0.5, 0.5], atol=1e-6)
    np.testing.assert_allclose(selector.state()["average"], [0.09, 0.1, 0.0, 0.0])


def test_the_average_may_start_as_the_first_aggregate():
    """0.9 (1, 0) + 0.1 (0, 1) = (0.9, 0.1); from zero it is 0.9 (0.1, 0) + 0.1 (0, 1) = (0.09, 0.1)."""
    expected = {"first": 1 - 0.9 / math.hypot(0.9, 0.1), "zero": 1 - 0.09 / math.hypot(0.09, 0.1)}
    for start, wanted in expected.items():
        selector = method(average_decay=0.9, average_start=start, size=2)
        selector.learn(outcome(RoundInfo(1, 10), [0], [dense([1.0, 0.0])]))
        selector.learn(outcome(RoundInfo(2, 10), [1], [dense([0.0, 1.0])]))
        np.testing.assert_allclose(diversity_of(selector)[0], wanted, atol=1e-6)


# Equation 6: selection ------------------------------------------------------------------------------------------------


def test_the_temperature_halves_over_the_run():
    assert temperature(RoundInfo(1, 10), 1.0) == pytest.approx(0.95)
    assert temperature(RoundInfo(5, 10), 2.0) == pytest.approx(1.5)
    assert temperature(RoundInfo(10, 10), 1.0) == 0.5
    assert temperature(RoundInfo(20, 10), 1.0) == 0.5


def test_selection_frequencies():
    # Scores [0.142640, 0, 1, 0.103669] at tau = 0.5 * (1 - 0.5 * 3 / 10) = 0.425, two without replacement.
    weights, chances = [math.exp(score / 0.425) for score in (0.142640, 0.0, 1.0, 0.103669)], Counter()
    for pair, chance in sequences(weights, 2):
        chances[tuple(sorted(pair))] += chance
    selector, roster, draws, rng = method(temperature=0.5), history(), 2500, np.random.default_rng(0)
    seen = Counter(tuple(selector.select(roster, NOW, 2, rng).clients.tolist()) for _ in range(draws))
    for pair, chance in chances.items():
        assert seen[pair] / draws == pytest.approx(chance, abs=4 * math.sqrt(chance * (1 - chance) / draws))


@pytest.mark.parametrize("clients", [2, 3, 4])
def test_two_or_three_clients_weigh_by_examples_for_their_scores_are_0_and_1(clients):
    selection = everybody(method(clients), make_roster(clients, losses=[1.0, 1.1, 1.2, 1.3][:clients]))
    assert selection.scores.min() == 0.0
    assert (selection.weights is None) == (clients < 4)


def test_score_adaptive_learning_rates_and_their_cap():
    # Round 3 of 10: 0.1 (1 - 0.15) = 0.085, times 1 + [0.142640, 0, 1, 0.103669]; 0.17 is cut to 0.15.
    selector = method(score_adaptive_lr=True, training=TrainingConfig(lr=0.1))
    expected = [0.0971244, 0.085, 0.15, 0.0938119]
    np.testing.assert_allclose(everybody(selector, history()).learning_rates, expected, rtol=1e-5)


def test_a_restored_method_goes_on_identically():
    CHECKS["round-trip"](HeteroSelect, average_decay=0.9)
