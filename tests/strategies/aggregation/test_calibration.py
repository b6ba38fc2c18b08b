from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from fedsel_app.config import EnrolmentConfig
from fedsel_app.messages.instructions import CalibrateInstruction
from strategies.aggregation.calibration import BufferAverages
from strategies.round.clients import ConnectedClients
from strategies.run_context import Model
from tests.support.contexts import context_of
from tests.support.stubs import StubClient, StubFederation, as_sent, train_reply

PARAMETERS = np.arange(5, dtype=np.float32)
BUFFERS = np.array([0.0, 1.0], np.float32)
"""A mean, and a variance, which is above 0 at first."""


def statistics(*values, examples=10, dtype=np.float32):
    return train_reply(as_sent(np.array(values, dtype)), examples=examples)


def calibrate(replies, trained, examples=(), initial=BUFFERS, sent=(), variances=None, **settings):
    stubs = [StubClient(client, lambda client, message, reply=reply: reply) for client, reply in enumerate(replies)]
    clients = ConnectedClients(len(stubs), EnrolmentConfig())
    clients.enrol(StubFederation(stubs), wait=True)
    context = context_of(clients=len(replies), cohort=1, buffers=initial, **settings)
    context = context if variances is None else replace(context, variances=np.array(variances))
    examples = np.array(examples or [70] * len(replies))
    replies = SimpleNamespace(clients=np.array(trained), statistics=sent)
    buffers, sent_bytes, failures = BufferAverages(context).take(
        clients, replies, Model(PARAMETERS, initial), 4, examples
    )
    assert all(failure["reason"].startswith("calibration: ") for failure in failures)
    return stubs, buffers, sent_bytes


def test_statistics_are_averaged_by_examples():
    stubs, buffers, sent = calibrate([statistics(1.0, 2.0), statistics(5.0, 4.0)], [0, 1], [10, 30])
    # (10 * 1 + 30 * 5) / 40 and (10 * 2 + 30 * 4) / 40
    np.testing.assert_array_equal(buffers, np.array([4.0, 3.5], np.float32))
    assert buffers.dtype == np.float32
    # Two clients: the model with its statistics down, two float32 up.
    assert sent == 2 * (PARAMETERS.nbytes + BUFFERS.nbytes + 8)
    [message] = stubs[0].messages("train")
    assert message.instruction == CalibrateInstruction(4, 20)
    assert message.model.tensors == as_sent(PARAMETERS, BUFFERS)


def test_no_entry_is_further_from_the_median_than_that_of_a_typical_client():
    """Medians 3 and 5; distances 2, 1, 0, 1, 97 and 3, 1, 0, 95, 2: the lower medians are 1 and 2."""
    columns = zip([1.0, 2.0, 3.0, 4.0, 100.0], [2.0, 4.0, 5.0, 100.0, 7.0], strict=True)
    _, buffers, _ = calibrate([statistics(*pair) for pair in columns], list(range(5)), [10, 10, 20, 10, 10])
    # (2 + 2 + 2 x 3 + 4 + 4) / 6 and (3 + 4 + 2 x 5 + 7 + 7) / 6
    np.testing.assert_allclose(buffers, [3.0, 31 / 6], rtol=1e-6)


BAD = {
    "exception": ValueError("gone"),
    "too few": statistics(1.0),
    "too many": statistics(1.0, 2.0, 3.0),
    "wrong type": statistics(1.0, 2.0, dtype=np.float64),
    "absurd": statistics(1e30, 2.0),
    "a negative variance": statistics(1.0, -2.0),
    "not finite": statistics(1.0, np.nan),
    "junk": train_reply([b"junk"]),
    "nothing": train_reply([]),
    "two arrays": train_reply(as_sent(*[np.ones(2, np.float32)] * 2)),
}


@pytest.mark.parametrize("reply", BAD.values(), ids=BAD)
def test_a_client_that_fails_is_left_out(reply):
    """A variance of 0 is one."""
    _, buffers, _ = calibrate([reply, *[statistics(3.0, 0.0)] * 3], [0, 1, 2, 3])
    np.testing.assert_array_equal(buffers, [3.0, 0.0])


def test_with_too_few_others_to_compare_with_the_statistics_stay():
    _, buffers, _ = calibrate([statistics(3.0, 6.0)] * 3, [0, 1])
    np.testing.assert_array_equal(buffers, BUFFERS)


def test_if_all_fail_the_statistics_stay():
    _, buffers, _ = calibrate(list(BAD.values()), list(range(len(BAD))))
    np.testing.assert_array_equal(buffers, BUFFERS)


def test_a_model_without_statistics_asks_nobody_and_costs_nothing():
    [stub], buffers, sent = calibrate([statistics()], [0], initial=BUFFERS[:0])
    assert buffers.size == sent == 0
    assert "train" not in stub.kinds


def test_where_aggregation_is_robust_one_client_cannot_move_the_statistics_far():
    replies = [statistics(1.0, 2.0), statistics(-1e9, 1e9, examples=10**9), statistics(3.0, 4.0, examples=1)]
    _, buffers, _ = calibrate(replies, [0, 1, 2], aggregation="median")
    np.testing.assert_array_equal(buffers, [1.0, 4.0])


def test_sequential_calibration_goes_from_client_to_client_until_its_batches_are_used():
    """70 examples make three batches of 32: of 5 batches client 1 runs three, client 2 two, and client 3 none."""
    replies = [statistics(9.0, 9.0), statistics(1.0, 2.0), statistics(3.0, 4.0), statistics(9.0, 9.0)]
    settings = {"calibration_form": "sequential", "calibration_batches": 5, "batch_size": 32}
    stubs, buffers, sent = calibrate(replies, [1, 2, 3], **settings)
    assert buffers.tolist() == [3.0, 4.0]
    assert [stub.kinds.count("train") for stub in stubs] == [0, 1, 1, 0]
    [first], [second] = stubs[1].messages("train"), stubs[2].messages("train")
    batches = [(each.instruction.batches, each.instruction.earlier_batches) for each in (first, second)]
    assert batches == [(3, 0), (2, 3)]
    assert first.model.tensors == as_sent(PARAMETERS, BUFFERS)
    assert second.model.tensors == as_sent(PARAMETERS, np.array([1.0, 2.0], np.float32))
    assert sent == 2 * (PARAMETERS.nbytes + BUFFERS.nbytes + 8)


def test_three_clients_calibrate_one_after_another_drawn_from_those_that_trained():
    asked = set()
    for seed in range(30):
        settings = {"calibration_form": "sequential", "calibration_batches": 9, "seed": seed, "max_update_norm": 0.0}
        stubs, _, _ = calibrate([statistics(1.0, 2.0)] * 5, [1, 2, 3, 4], **settings)
        asked.add(tuple(client for client, stub in enumerate(stubs) if "train" in stub.kinds))
    assert asked == {(1, 2, 3), (1, 2, 4), (1, 3, 4), (2, 3, 4)}


def test_sequential_calibration_passes_over_a_client_that_fails():
    replies = [ValueError("gone"), statistics(3.0, 4.0)]
    _, buffers, _ = calibrate(replies, [0, 1], calibration_form="sequential", calibration_batches=5)
    assert buffers.tolist() == [3.0, 4.0]


def test_changing_buffers_are_averaged_beside_calibrated_statistics():
    """A mean, a variance and a vector of spectral norm; the replies of the training also bring statistics, unused."""
    initial = np.array([0.0, 1.0, 9.0], np.float32)
    trained = [np.array([7.0, 7.0, 2.0]), np.array([7.0, 7.0, 6.0])]
    answers = [statistics(1.0, 2.0), statistics(5.0, 4.0)]
    stubs, buffers, sent = calibrate(answers, [0, 1], [10, 30], initial=initial, sent=trained, variances=[False, True])
    # (10 * 2 + 30 * 6) / 40 = 5, with which the clients calibrate.
    assert buffers.tolist() == [4.0, 3.5, 5.0]
    assert stubs[0].messages("train")[0].model.tensors == as_sent(PARAMETERS, np.array([0, 1, 5], np.float32))
    # Up three float32 after training; then the model down and two float32 up, twice each.
    assert sent == 2 * 12 + 2 * (PARAMETERS.nbytes + 12 + 8)


def test_changing_buffers_without_statistics_ask_nobody():
    trained = [np.array([2.0]), np.array([6.0])]
    [first, _], buffers, sent = calibrate(
        [statistics(), statistics()], [0, 1], [10, 30], initial=BUFFERS[:1], sent=trained, variances=np.zeros(0, bool)
    )
    assert buffers.tolist() == [5.0]
    assert sent == 2 * 4
    assert "train" not in first.kinds
