"""Active federated learning: the three alphas and stale valuations."""

import numpy as np

from fedsel_app.messages.scalars import Report
from strategies.methods.active_fl import ActiveFL, ActiveFLConfig, draw, eligible, valuations
from strategies.roster import RoundInfo
from strategies.testing.fakes import dense, make_context, outcome
from tests.support.contexts import make_roster
from tests.support.selecting import select, sequences

NAN = np.nan


def build(clients=4, **settings):
    return ActiveFL(make_context(ActiveFLConfig(**settings), clients=clients))


def outcome_of(number, clients, losses):
    return outcome(
        RoundInfo(number, 10),
        clients,
        [dense([0.0] * 12)] * len(clients),
        reports={Report.INITIAL_LOSS: np.array(losses, float)},
    )


def test_the_reference_valuations_and_probabilities():
    """Valuations are 10 x 1, 20 x 0.5, 5 x 2 and 15 x 1.2; e^1 = 2.718282 and e^1.8 = 6.049647 over their sum
    3 x 2.718282 + 6.049647 = 14.204493 are .191368 and .425896. With alpha_1 = .75 three of four are left out."""
    values = valuations(np.array([1, 0.5, 2, 1.2]), np.array([100, 400, 25, 225]))
    np.testing.assert_allclose(values, [10, 10, 10, 18])
    config, rng = ActiveFLConfig(excluded=0.0, sharpness=0.1), np.random.default_rng(0)
    found = np.bincount([draw(values, 1, config, rng)[0] for _ in range(4000)], minlength=4)
    np.testing.assert_allclose(found / 4000, [0.191368, 0.191368, 0.191368, 0.425896], atol=0.03)
    assert eligible(np.array([1.0, 5, 3, 9]), 0.75).tolist() == [False, False, False, True]


def test_who_is_left_out():
    """Of equals the later; the unknown before all others, and always."""
    assert eligible(np.array([2.0, 1, 2, 2]), 0.5).tolist() == [True, False, True, False]
    assert eligible(np.array([NAN, 1, 2, NAN]), 0.5).tolist() == [False, True, True, False]
    assert eligible(np.array([NAN, 1, 2, NAN]), 0.0).tolist() == [False, True, True, False]
    assert not eligible(np.array([1.0, 2]), 1.0).any()


def test_draws_equal_enumeration():
    """n = 4, alpha_1 leaves out the lowest, 2 of m = 3 are active, one is uniform from the rest."""
    values, sharpness = np.array([1.0, 2.0, 4.0, 3.0]), 0.7
    config = ActiveFLConfig(excluded=0.25, sharpness=sharpness, uniform=0.4)
    expected = np.zeros(4)
    for active, probability in sequences(np.exp(sharpness * values[1:]), 2):
        expected[[1 + position for position in active]] += probability
        expected[[k for k in range(4) if k - 1 not in active]] += probability / 2
    rng, draws = np.random.default_rng(0), 4000
    found = sum(np.bincount(draw(values, 3, config, rng), minlength=4) for _ in range(draws))
    np.testing.assert_allclose(found / draws, expected, atol=0.04)


def test_everybody_is_asked_once_and_participants_refresh():
    method, roster = build(excluded=0.75), make_roster(4, losses=[1, 2, 3, NAN], available=[0, 1, 2])
    method.whole_roster = roster
    rng = np.random.default_rng(0)
    assert method.candidates(roster, RoundInfo(1, 10), 1, rng).tolist() == [0, 1, 2]
    assert select(method, roster, 1, 1).clients.tolist() == [2]
    roster.fit_losses[:] = 99.0
    method.update(outcome_of(1, [2], [0.5]))
    later = make_roster(4)
    assert method.candidates(later, RoundInfo(2, 10), 1, rng).tolist() == [3]
    later.losses[3] = 1.5
    assert select(method, later, 2, 1).clients.tolist() == [1]
    np.testing.assert_allclose(method.state()["valuations"], [10, 20, 5, NAN])


def test_the_plain_valuation_leaves_out_the_root_of_the_examples():
    """n = (100, 400), losses (1, .5): sqrt(n) gives (10, 10), the mean (1, .5), and participants refresh theirs so."""
    np.testing.assert_allclose(valuations(np.array([1, 0.5]), np.array([100, 400]), "mean"), [1, 0.5])
    method = build(valuation="mean", excluded=0.75)
    roster = make_roster(4, losses=[1, 2, 3, 4], examples=[10**6, 100, 100, 100])
    method.whole_roster = roster
    assert select(method, roster, 1, 1).clients.tolist() == [3]
    method.update(outcome_of(1, [3], [0.5]))
    np.testing.assert_allclose(method.state()["valuations"], [1, 2, 3, 0.5])


def test_the_current_valuation_asks_every_client_in_every_round():
    """With alpha_1 = .75 the largest of this round's losses wins, whatever an earlier part measured."""
    config = ActiveFLConfig(valuation="current")
    assert ActiveFL.needs(config).loss_probe
    assert ActiveFL.needs(config).probe_batches == 0
    assert not ActiveFL.needs(config).reports
    method, picked = build(valuation="current", excluded=0.75), []
    for number, losses in enumerate([[1, 2, 3, 4], [9, 2, 3, 4], [1, 2, 5, 4]], start=1):
        roster = make_roster(4, losses=losses, examples=[100, 1, 100, 10**6])
        method.whole_roster = roster
        everybody = method.candidates(roster, RoundInfo(number, 10), 1, np.random.default_rng(0))
        assert everybody.tolist() == [0, 1, 2, 3]
        picked += select(method, roster, number, 1).clients.tolist()
        method.update(outcome(RoundInfo(number, 10), [picked[-1]], [dense([0.0] * 12)]))
    assert picked == [3, 0, 2]
