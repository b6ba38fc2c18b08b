"""The wait for the answers to one question, and the model as it is sent."""

import numpy as np
import pytest

from fedsel_app.messages.instructions import EnrolInstruction
from fedsel_app.network.reply_timeout import ReplyTimeout
from strategies.round.federation import ALL, Message, NodeError, Reply, Until, Wait, rounded_model, sent_model

QUESTION = [Message(node, EnrolInstruction()) for node in "abc"]


def waiting(until=ALL, timeout_s=None):
    return Wait(QUESTION, until, None if timeout_s is None else ReplyTimeout(timeout_s))


@pytest.mark.parametrize(
    ("until", "timeout_s", "left_s", "reason"),
    [
        (Until(deadline_s=50.0), None, 50.0, "it did not reply within 50 s"),
        (Until(deadline_s=50.0), 50.0, 50.0, "it did not reply within 50 s"),
        (Until(deadline_s=50.0), 20.0, 20.0, "it did not answer within 20 s: see 'reply-timeout-s'"),
        (ALL, 20.0, 20.0, "it did not answer within 20 s: see 'reply-timeout-s'"),
        (ALL, None, np.inf, None),
    ],
)
def test_a_wait_ends_at_the_deadline_or_the_timeout(until, timeout_s, left_s, reason):
    wait = waiting(until, timeout_s)
    assert wait.left_s == pytest.approx(left_s, abs=1.0)
    wait.add("b", Reply())
    if reason is not None:
        assert {node: str(error) for node, error in wait.result().items() if node != "b"} == {"a": reason, "c": reason}


def test_a_timeout_learns_from_replies_alone():
    """Ten times the slowest answer."""
    wait = Wait(QUESTION, ALL, timeouts := ReplyTimeout(1000.0))
    wait.add("a", Reply(arrived_s=30.0))
    wait.add("b", NodeError("b", "no"))
    wait.result()
    assert timeouts.longest_wait_s("query") == 300.0


def test_a_model_is_sent_with_its_statistics_if_it_has_any_and_in_few_bits():
    parameters, statistics = np.array([4.0, -2.0, 0.0], np.float32), np.ones(2, np.float32)
    assert [array.tolist() for array in sent_model(parameters, statistics[:0]).arrays] == [[4, -2, 0]]
    model = sent_model(parameters, statistics)
    assert model.nbytes == 20
    assert rounded_model(model, 32) is model
    rounded = rounded_model(model, 8)
    assert rounded.arrays[0].tobytes() == np.array(4.0, "<f4").tobytes() + bytes([127, 192, 0])
    assert rounded.arrays[1] is statistics
    assert rounded.nbytes == 7 + 8
    parameters[2] = np.nan
    assert rounded_model(model, 8) is model
