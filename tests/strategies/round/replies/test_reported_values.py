import numpy as np
import pytest

from fedsel_app.config import Settings
from fedsel_app.messages.answers import EvaluateAnswer
from strategies.round.federation import Reply
from strategies.round.replies.values import LastReported, read_probes, read_tests
from strategies.round.replies.values import tested_loss as loss_of_tests
from strategies.testing.fakes import make_context
from tests.support.logs import logged

EVERYBODY, NAN = np.arange(4), float("nan")


def test_a_claim_is_bounded_by_the_median_of_what_all_said_last():
    values = LastReported(4, ["loss"], 2.0)
    assert values.bounded("loss", EVERYBODY, np.array([1.0, 2.0, 3.0, 90.0])).tolist() == [1.0, 2.0, 3.0, 4.0]
    # The cohort's own median would be 80; that of 1, 2, 80 and 90 is 2.
    assert values.bounded("loss", np.array([2, 3]), np.array([80.0, 90.0])).tolist() == [4.0, 4.0]
    np.testing.assert_array_equal(values.bounded("loss", EVERYBODY, np.array([NAN, NAN, 3.0, NAN])), [NAN, NAN, 3, NAN])


def test_values_go_on_from_their_state():
    values, again = LastReported(4, ["loss"], 2.0), LastReported(4, ["loss"], 2.0)
    values.bounded("loss", EVERYBODY, np.array([1.0, 2.0, 3.0, 90.0]))
    again.load_state(values.state())
    assert again.bounded("loss", np.array([3]), np.array([90.0])).tolist() == [4.0]
    with pytest.raises(ValueError, match="values of"):
        LastReported(3, ["loss"], 2.0).load_state(values.state())
    with pytest.raises(KeyError):
        LastReported(4, ["other"], 2.0).load_state(values.state())


def test_without_a_bound_nothing_is_kept():
    values = LastReported(4, ["loss"], 0.0)
    assert values.bounded("loss", EVERYBODY, np.array([1.0, 2.0, 3.0, 1e30])).tolist() == [1.0, 2.0, 3.0, 1e30]
    assert values.state() == {}


def test_the_tested_loss_is_over_the_examples_of_those_who_tested():
    """(10 x 1 + 30 x 2) / 40; a client without examples is left out, and an unknown loss makes the mean infinite."""
    answers = {1: EvaluateAnswer(1.0, 10), 4: EvaluateAnswer(2.0, 30), 6: EvaluateAnswer(9.0, 0)}
    loss, clients = loss_of_tests(answers)
    assert (loss, clients.tolist()) == (1.75, [1, 4])
    assert loss_of_tests(answers | {7: EvaluateAnswer(NAN, 1)})[0] == float("inf")
    assert loss_of_tests({6: EvaluateAnswer(9.0, 0)}) == (float("inf"), pytest.approx([]))


@pytest.mark.parametrize(
    ("reply", "loss"),
    [
        (Reply(loss=0.5, examples=1), 0.5),
        (Reply(loss=0.0, examples=10**9), 0.0),
        (Reply(loss=0.5, examples=0), None),
        (Reply(loss=0.5, examples=10**9 + 1), None),
        (Reply(loss=-0.5, examples=1), -0.5),
        (Reply(loss=-1e300, examples=1), None),
        (Reply(loss=NAN, examples=1), None),
    ],
)
def test_a_probed_loss_is_over_at_least_one_example(reply, loss):
    answers, failures = read_probes({3: reply}, 1)
    losses = {client: answer.loss for client, answer in answers.items()}
    assert losses == ({} if loss is None else {3: loss})
    assert [failure["client"] for failure in failures] == ([] if losses else [3])


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, {1: (4.0, 10), 3: (NAN, 20), 5: (1.0, 900), 8: (2.0, 0)}),
        ({"example_clip": 2.0}, {1: (4.0, 10), 3: (NAN, 20), 5: (1.0, 40), 8: (2.0, 0)}),
        ({"loss_clip": 1.5}, {1: (3.0, 10), 3: (3.0, 20), 5: (1.0, 900), 8: (2.0, 0)}),
    ],
)
def test_tests_of_clients_are_bounded_by_multiples_of_the_medians(settings, expected):
    """The examples 10, 20 and 900 have the median 20, and the losses 4, 1 and 2 the median 2."""
    told = {5: (1.0, 900), 1: (4.0, 10), 3: (NAN, 20), 8: (2.0, 0)}
    answers = {client: Reply(loss=loss, examples=examples) for client, (loss, examples) in told.items()}
    found = read_tests(answers, 1, make_context(Settings(), **{"example_clip": 0.0, "loss_clip": 0.0} | settings))
    assert list(found) == [1, 3, 5, 8]
    for client, (loss, examples) in expected.items():
        np.testing.assert_array_equal([found[client].loss, found[client].examples], [loss, examples])


def test_a_single_example_counts_for_the_median():
    """The lower median of 1 and 900 is 1. The test without examples is left out, and the log says so."""
    answers = {client: Reply(loss=1.0, examples=examples) for client, examples in ((1, 1), (5, 900), (8, 0))}
    with logged() as log:
        found = read_tests(answers, 1, make_context(Settings(), example_clip=2.0))
    assert "the tests of clients [8] have no possible loss or number of examples" in log()
    assert [answer.examples for answer in found.values()] == [1, 2, 0]
