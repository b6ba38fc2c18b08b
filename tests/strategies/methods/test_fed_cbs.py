"""Fed-CBS: the imbalance degree in both its forms, and the conditional laws of the draws."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.special import softmax

from strategies.methods.fed_cbs import FedCBS, FedCBSConfig, exploration_bonus, joined_qcid, log_weights, qcid
from strategies.testing.fakes import make_context
from tests.support.contexts import make_roster
from tests.support.selecting import frequencies, select

COUNTS = np.array([[5] * 6, [6, 6, 6, 6, 6, 0], [0, 0, 0, 10, 10, 10], [10, 10, 10, 0, 0, 0]])


def counted_roster(counts=COUNTS, **arguments):
    roster = make_roster(len(counts), **arguments)
    roster.label_counts = np.asarray(counts)
    return roster


def build(clients=4, classes=6, **settings):
    return FedCBS(make_context(FedCBSConfig(**settings), clients=clients, classes=classes, size=20))


@pytest.mark.parametrize(
    ("members", "expected"),
    [
        ([0], 0), ([1], 0.033333), ([2], 0.166667), ([3], 0.166667),
        ([0, 1], 0.008333), ([2, 3], 0), ([0, 1, 2], 0.014815), ([0, 2, 3], 0),
    ],
)  # fmt: skip
def test_the_reference_imbalances(members, expected):
    """Label counts over their sum, less 1/6, squared and summed: {1} has 5 (1/5 - 1/6)^2 + (1/6)^2 = 1/30, {2} and {3}
    6 (1/6)^2 = 1/6, {0, 1} 5 (11/60 - 1/6)^2 + (5/60 - 1/6)^2 = 1/120; {0, 1, 2} holds (11, 11, 11, 21, 21, 15) of 90:
    (3 x 4^2 + 2 x 6^2) / 90^2 = 2/135. The others are balanced."""
    assert qcid(COUNTS[members].sum(axis=0)) == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize("labels", [1, 2, 5])
def test_one_label_is_balanced_and_no_examples_are_as_far_as_they_can_be(labels):
    """Shares 0 are 1/B from 1/B, B times: 1/B. A single label has its whole share."""
    counts = np.zeros((2, labels))
    counts[1] = 7
    np.testing.assert_allclose(qcid(counts), [1 / labels, 1e-20])
    joined = joined_qcid(np.zeros(labels), counts, counts.sum(axis=1), np.square(counts).sum(axis=1))
    np.testing.assert_allclose(joined, [1 / labels, 1e-20])


def test_one_example_has_a_share_of_one():
    """(1 - 1/2)^2 + (0 - 1/2)^2."""
    one = np.array([[1.0, 0.0]])
    assert qcid(one) == 0.5
    assert joined_qcid(np.zeros(2), one, np.ones(1), np.ones(1)) == 0.5


@given(arrays(np.int64, (4, 5), elements=st.integers(0, 50)))
def test_the_degree_is_the_servers_form_over_inner_products(counts):
    """sum_ij q_i q_j <a_i, a_j> / (sum q)^2 - 1/B."""
    total = counts.sum()
    if total:
        products = sum(int(a @ b) for a in counts for b in counts)
        assert qcid(counts.sum(axis=0)) == pytest.approx(products / total**2 - 1 / 5, abs=1e-9)


def test_the_second_draw_has_the_reference_probabilities():
    """With S = {1} and exponent b_2 = 2, {1, 0}, {1, 2} and {1, 3} have QCID 1/120, 1/30 and 1/15: weights 14400, 900
    and 225, over their sum 15525."""
    logits = log_weights(qcid(COUNTS[1] + COUNTS), 2, np.zeros(4))[[0, 2, 3]]
    np.testing.assert_allclose(softmax(logits), [0.927536, 0.057971, 0.014493], atol=1e-6)


def test_the_third_draw_has_exponent_three():
    """{1, 2} and then 0 or 3: QCID .014815 and .011111 to the power of -3."""
    logits = log_weights(qcid(COUNTS[1] + COUNTS[2] + COUNTS), 3, np.zeros(4))[[0, 3]]
    with_0, with_3 = (
        np.square(row / row.sum() - 1 / 6).sum() for row in (COUNTS[[1, 2, 0]].sum(0), COUNTS[[1, 2, 3]].sum(0))
    )
    assert softmax(logits)[0] == pytest.approx(with_0**-3 / (with_0**-3 + with_3**-3))


def test_the_first_draw_adds_the_exploration_bonus():
    """Round 3, selected (never, once, 3 times), so T = 1, 2, 4: 2 sqrt(1.5 ln 3 / T)."""
    bonus = exploration_bonus(np.array([0, 1, 3]), 3, 2.0)
    root = 1.6479184  # ln 3 x 1.5
    np.testing.assert_allclose(bonus, 2 * np.sqrt([root, root / 2, root / 4]), rtol=1e-6)
    logits = log_weights(qcid(COUNTS[1:]), 1, bonus)
    np.testing.assert_allclose(np.exp(logits), 1 / np.array([1 / 30, 1 / 6, 1 / 6]) + bonus)
    assert exploration_bonus(np.array([0, 7]), 1, 10.0).tolist() == [0, 0]


def test_first_picks_follow_their_law():
    found = frequencies(build(), counted_roster(COUNTS[[2, 1, 3, 1]]), 1, 1, 1500)
    np.testing.assert_allclose(found, np.array([6, 30, 6, 30]) / 72, atol=0.04)


def test_a_perfectly_balanced_set_is_picked():
    """The trap of third-party code, which turns 1/0 into 1e-6: 3 completes {2}, and 0 is balanced alone."""
    third_first = softmax(log_weights(qcid(COUNTS[2] + COUNTS), 2, np.zeros(4))[[0, 1, 3]])
    assert third_first[2] > 1 - 1e-12
    method = build()
    assert all(select(method, counted_roster(), 1, 1, seed).clients.tolist() == [0] for seed in range(30))


def test_a_place_is_filled_beside_those_under_way():
    """Client 2 has the last three labels, so 3, with the first three, is drawn; 0 is balanced only alone."""
    roster = counted_roster(available=[0, 1, 3])
    roster.under_way[2] = True
    assert all(select(build(), roster, 1, 1, seed).clients.tolist() == [3] for seed in range(30))


@pytest.mark.parametrize("scale", [1, 1000, 10**9])
def test_the_imbalance_with_each_client_is_that_of_the_joined_labels(scale):
    rng = np.random.default_rng(5)
    counts = rng.integers(0, 50, (30, 4)) * float(scale)
    counts[7] = 0.0
    for held in (np.zeros(4), counts[3] + counts[9], counts.max() - counts[11]):
        found = joined_qcid(held, counts, counts.sum(axis=1), np.square(counts).sum(axis=1))
        share = (held + counts) / np.maximum((held + counts).sum(axis=1, keepdims=True), 1.0)
        np.testing.assert_allclose(found, np.maximum(((share - 0.25) ** 2).sum(axis=1), 1e-20), rtol=1e-9, atol=1e-15)
    balanced = joined_qcid(counts.max() - counts[11], counts, counts.sum(axis=1), np.square(counts).sum(axis=1))
    assert balanced[11] == 1e-20


def test_draws_do_not_depend_on_how_many_are_weighed_at_a_time(monkeypatch):
    rng = np.random.default_rng(6)
    method = FedCBS(make_context(FedCBSConfig(), clients=23, cohort=6, classes=4))
    roster = make_roster(23)
    roster.label_counts = rng.integers(0, 20, (23, 4))
    whole = select(method, roster, 2, 6, 1).clients
    monkeypatch.setattr("strategies.methods.fed_cbs.BLOCK", 5)
    np.testing.assert_array_equal(select(method, roster, 2, 6, 1).clients, whole)
