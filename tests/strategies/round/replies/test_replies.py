from dataclasses import replace

import numpy as np
import pytest

from fedsel_app.config import Settings
from fedsel_app.messages.instructions import TrainInstruction
from fedsel_app.messages.scalars import Report
from fedsel_app.wire.codec import Update, encode
from strategies.roster import Selection
from strategies.round.federation import NodeError
from strategies.round.replies.training import ReplyReader, most_work_steps
from strategies.round_record import warn_of_zero_weights
from strategies.testing.fakes import dense, make_context
from tests.support.contexts import make_roster
from tests.support.logs import logged
from tests.support.stubs import as_sent, decoded, update_reply, with_payload

SIZE, ROUND = 6, 7
SIGMA, RHO = Report.GRADIENT_DEVIATION, Report.EFFECTIVE_STEPS
SPARSE = Update(SIZE, np.array([1, 4], np.uint32), np.array([0.5, -2.0], np.float32))


def sound(client, update=SPARSE, server_round=ROUND, **numbers):
    return update_reply(update, client, server_round, **{"reports": {SIGMA: 1.0}} | numbers)


def sent(*tensors: bytes):
    """Client 1's reply with these arrays."""
    return replace(sound(1), tensors=tensors)


def raw(payload: bytes):
    return with_payload(sound(1), payload)


def without(reply, name):
    del reply.metrics[name]
    return reply


def damaged():
    payload = bytearray(encode(SPARSE, client=1, server_round=ROUND))
    payload[30] ^= 1
    return raw(bytes(payload))


WHOLE = sound(1).tensors[0]
BAD = {
    "no array": (sent(), "it sent 0 instead of 1 arrays: server and client must run the same app"),
    "two arrays": (sent(WHOLE, WHOLE), "it sent 2 instead of 1 arrays"),
    "wrong dtype": (sent(*as_sent(np.zeros(SIZE, np.float32))), "uint8 in NumPy's format"),
    "not an array": (sent(b"junk"), "in NumPy's format; 4 bytes came"),
    "truncated": (sent(WHOLE[:100]), "in NumPy's format; 100 bytes came"),
    "empty payload": (raw(b""), "The payload is cut short"),
    "damaged": (damaged(), "its CRC-32 does not match"),
    "other model": (sound(1, dense([1.0, 2.0])), "of a model of 2 entries; this one has 6"),
    "other client": (sound(0), "an update of client 0 for round 7, and client 1 was asked for round 7"),
    "other round": (sound(1, server_round=6), "an update of client 1 for round 6, and client 1 was asked for round 7"),
    "no loss": (without(sound(1), "loss"), "came without 'loss'"),
    "no work": (without(sound(1), "work_steps"), "came without 'work_steps'"),
    "no report": (sound(1, reports={}), "'gradient_deviation' must be a number"),
    "loss not a number": (sound(1, loss=float("nan")), "'loss' must be a number"),
    "endless work": (sound(1, work_steps=float("inf")), "'work_steps' must be a number"),
}


@pytest.mark.parametrize(("reply", "reason"), BAD.values(), ids=BAD)
def test_a_bad_reply_is_a_failure_with_a_reason_and_the_others_count(reply, reason):
    replies = decoded({2: sound(2), 1: reply}, np.array([1, 2]), ROUND, SIZE, {SIGMA})
    assert replies.clients.tolist() == [2]
    assert replies.updates == (SPARSE,)
    [failure] = replies.failures
    assert failure["client"] == 1
    assert reason in failure["reason"]
    np.testing.assert_array_equal(replies.failed, [1])


@pytest.mark.parametrize(
    ("settings", "left_out"),
    [
        ({"max_update_norm": 1.0}, [2]),
        ({"max_update_norm": 3.0}, [2]),
        ({"max_update_norm": 3.5}, []),
        ({"max_update_norm": 0.0}, []),
        ({"max_update_norm": 1.0, "dp_clip_norm": 1.0}, []),
    ],
)
def test_an_update_is_left_out_whose_norm_is_above_a_multiple_of_the_median(settings, left_out):
    """Norms 1, 2 and 6.5, whose median is 2."""
    sent = {client: sound(client, dense([norm, 0, 0, 0, 0, 0])) for client, norm in enumerate((1.0, 2.0, 6.5))}
    replies = decoded(sent, np.arange(3), ROUND, SIZE, [SIGMA], **settings)
    assert [failure["client"] for failure in replies.failures] == left_out
    assert replies.clients.tolist() == [client for client in range(3) if client not in left_out]
    assert all("see 'max-update-norm'" in failure["reason"] for failure in replies.failures)


@pytest.mark.parametrize(("said", "counted", "told"), [(6.9, 6.9, False), (7.0, 7.0, False), (7.1, 7.0, True)])
def test_more_work_than_the_settings_allow_is_told_and_does_not_count(said, counted, told):
    """4 steps, and 3 more for the deviation: a pass over 10 examples in batches of 4."""
    context = make_context(Settings(), size=SIZE, local_steps=4, batch_size=4, max_update_norm=0.0)
    roster = make_roster(examples=[10] * 6)
    instruction = TrainInstruction(ROUND, "run", 0.1, 1.0, 1.0, False)
    with logged() as log:
        replies = ReplyReader(context, roster, [SIGMA], 1).collect({2: sound(2, work_steps=said)}, {2: instruction})
    assert replies.work_steps.tolist() == [counted]
    assert ("reports 7.1 computed steps; 7 count" in log()) == told
    assert bool(log()) == told


@pytest.mark.parametrize(
    ("reports", "steps"),
    [((), 4.0), ((Report.EFFECTIVE_STEPS,), 4.0), ((Report.RMS_LOSS,), 6.0), ((Report.INITIAL_LOSS,), 6.0),
     ((Report.GRADIENT_DEVIATION,), 10.0), (tuple(Report), 12.0)],
)  # fmt: skip
def test_each_report_is_a_pass_over_the_examples_and_a_loss_a_third_of_one(reports, steps):
    assert most_work_steps(4, 6, reports) == steps


def test_silence_is_a_failure():
    replies = decoded({}, np.array([3, 5]), ROUND, SIZE, set())
    assert replies.failures == [{"client": client, "reason": "it sent no reply"} for client in (3, 5)]
    assert replies.clients.size == replies.losses.size == replies.uplink_bytes.size == 0
    assert replies.failed.dtype == replies.clients.dtype == np.int64


def test_of_a_client_that_failed_the_record_and_the_log_have_its_own_reason():
    with logged() as log:
        replies = decoded({2: NodeError("node", "no data\ntoday")}, np.array([2]), ROUND, SIZE)
    assert replies.failures == [{"client": 2, "reason": "no data today"}]
    assert log() == "Round 7: client 2 is left out: no data today\n"


def test_who_was_not_asked_is_not_heard():
    replies = decoded({1: sound(1), 4: sound(4)}, np.array([1]), ROUND, SIZE, set())
    assert replies.clients.tolist() == [1]
    assert replies.failures == []


def test_everything_is_in_the_order_of_ids_whatever_the_order_of_arrival():
    full = dense([1.0, 2.0, 3.0, 4.0, 5.0, 6.0])
    heard = {
        5: update_reply(full, 5, ROUND, loss=0.5, work_steps=50.0, reports={SIGMA: 5.0, RHO: 55.0}),
        0: update_reply(SPARSE, 0, ROUND, loss=0.25, work_steps=10.0, reports={SIGMA: 0.5, RHO: 5.5}),
        3: update_reply(SPARSE, 3, ROUND, loss=0.75, work_steps=30.0, reports={SIGMA: 3.0, RHO: 33.0}),
    }
    replies = decoded(heard, np.array([0, 3, 5]), ROUND, SIZE, {SIGMA, RHO})
    assert replies.clients.tolist() == [0, 3, 5]
    assert replies.updates == (SPARSE, SPARSE, full)
    assert replies.losses.tolist() == [0.25, 0.75, 0.5]
    assert replies.work_steps.tolist() == [10.0, 30.0, 50.0]
    assert {name: values.tolist() for name, values in replies.reports.items()} == {
        SIGMA: [0.5, 3.0, 5.0],
        RHO: [5.5, 33.0, 55.0],
    }
    # Header and checksum 28 bytes; the indices of 6 entries take one, and 2 values 8.
    assert replies.uplink_bytes.tolist() == [37, 37, 28 + 24]
    assert replies.uplink_value_bytes.tolist() == [8, 8, 24]


@pytest.mark.parametrize(
    ("parts", "weighting", "said"),
    [
        (
            {"weights": np.zeros(3)},
            "method",
            "method's weights of all aggregated clients are 0; their updates count equally",
        ),
        ({"weights": np.array([0.0, 9.0, 0.0])}, "method", "their updates count equally."),
        ({"weights": np.zeros(3), "normalise": False}, "method", "their updates change nothing."),
        (
            {"scores": np.zeros(3)},
            "score",
            "Round 4: the scores of all aggregated clients are 0; their updates count equally",
        ),
        ({"weights": np.array([0.0, 0.0, 1e-9])}, "method", ""),  # as DivFL leaves out those that it did not choose
        ({"scores": np.array([0.0, 0.5, 1.0])}, "score", "Round 4: 'weighting' score gives client 2 the weight 0: "),
        ({"weights": np.ones(3) - np.eye(3)[2], "scores": np.ones(3) - np.eye(3)[2]}, "method", "gives client 7 the"),
        ({"weights": np.zeros(3)}, "examples", ""),
        ({}, "method", ""),
    ],
)
def test_weights_of_zero_are_logged(parts, weighting, said):
    with logged() as log:
        warn_of_zero_weights(np.array([2, 7]), 4, Selection(np.array([2, 5, 7]), **parts), weighting)
    assert log().count("\n") == bool(said)
    assert said in log()
