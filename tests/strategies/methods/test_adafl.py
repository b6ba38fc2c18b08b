"""AdaFL's attention."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from fedsel_app.wire.codec import Update
from strategies.methods.adafl import AdaFL, distance, refreshed
from strategies.roster import RoundInfo
from strategies.testing.fakes import dense, make_context, outcome
from tests.support.contexts import make_roster
from tests.support.selecting import frequencies, select


def build(**own):
    return AdaFL(make_context(AdaFL.Config(**own), clients=4, size=2))


def sized_roster(**arguments):
    return make_roster(4, examples=[40, 30, 20, 10], **arguments)


@pytest.mark.parametrize("unit", [1.0, 0.01])
def test_the_reference_vector(unit):
    """a_S = (.4, .2) sums to .6, d = (1, 3), alpha = .9: .9 x .4 + .1 x 1/4 x .6 and .9 x .2 + .1 x 3/4 x .6."""
    np.testing.assert_allclose(refreshed(np.array([0.4, 0.2]), unit * np.array([1.0, 3.0]), 0.9), [0.375, 0.225])


@given(st.lists(st.tuples(st.floats(0, 1e6), st.floats(0, 1e6)), min_size=1, max_size=8), st.floats(0, 1))
@example([(1.0, 5e-324)], 0.5)
def test_the_attention_of_a_cohort_is_only_moved(pairs, decay):
    attention, distances = (np.array(column) for column in zip(*pairs, strict=True))
    found = refreshed(attention, distances, decay)
    assert found.sum() == pytest.approx(attention.sum(), rel=1e-9, abs=1e-9)
    assert (found >= 0).all()


def test_distance_is_that_of_the_two_models_sparse_or_dense():
    sparse = Update(3, np.array([1], np.uint32), np.array([2.0], np.float32))
    aggregate = np.array([3.0, 2.0, -4.0])
    assert distance(sparse, aggregate) == 5.0
    assert distance(dense([3.0, 2.0, -4.0]), aggregate) == 0.0
    assert aggregate.tolist() == [3.0, 2.0, -4.0]


def test_a_round_by_hand():
    """Updates (0, 0), (1, 0) and (2, 0) average to (1, 0): distances 1, 0, 1 of clients 0, 1 and 3."""
    method = build()
    method.whole_roster = sized_roster()
    method.update(outcome(RoundInfo(1, 10), [0, 1, 3], [dense([0, 0]), dense([1, 0]), dense([2, 0])]))
    # a = (.4, .3, .2, .1): .8 is shared out, nine tenths as before and one tenth (.5, 0, .5).
    expected = np.array([0.36 + 0.04, 0.27, 0.2, 0.09 + 0.04])
    selection = select(method, sized_roster(), 2, 4)
    np.testing.assert_allclose(selection.components["attention"], expected)
    np.testing.assert_allclose(selection.scores, expected)


def test_distances_by_norms_have_the_mean_of_the_true_squares():
    """Updates (0, 2), (2, 0) and (0, 1) have the mean (2/3, 1): d^2 = 4 - 13/9, the same, and 0 in place of -4/9."""
    method = build(distance="norm")
    method.whole_roster = sized_roster()
    updates = [dense([0, 2]), dense([2, 0]), dense([0, 1])]
    method.update(replace(outcome(RoundInfo(1, 10), [0, 1, 3], updates), updates=()))
    np.testing.assert_allclose(method.attention(sized_roster()), [36 + 4, 27 + 4, 20, 9])


def test_draws_follow_attention_among_the_available():
    found = frequencies(build(), sized_roster(available=[1, 2, 3]), 1, 1, 3000)
    np.testing.assert_allclose(found, [0, 3 / 6, 2 / 6, 1 / 6], atol=0.04)


@pytest.mark.parametrize("result", [([], []), ([2], [dense([1, 1])]), ([0, 1], [dense([0, 0]), dense([0, 0])])])
def test_attention_stays_where_nobody_is_farther_than_the_others(result):
    method = build()
    method.whole_roster = sized_roster()
    method.update(outcome(RoundInfo(1, 10), *result, failed=[3]))
    np.testing.assert_allclose(select(method, sized_roster(), 2, 4).scores, [0.4, 0.3, 0.2, 0.1])


def test_a_late_client_enters_with_its_share():
    method = build()
    early = sized_roster()
    early.examples[3] = 0
    method.whole_roster = early
    method.update(outcome(RoundInfo(1, 10), [0, 1], [dense([0, 0]), dense([2, 0])]))
    scores = select(method, sized_roster(), 2, 4).scores
    assert scores.sum() == pytest.approx(1.0)
    assert scores[3] == pytest.approx(0.1)
