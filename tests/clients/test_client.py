"""The client on the digits, its messages built by hand as the server would."""

import dataclasses

import numpy as np
import pytest
import torch

from clients.client import SelectionClient
from clients.state import ClientHistory, StateStore
from fedsel_app.data import client_parts
from fedsel_app.data.dataset import load
from fedsel_app.data.partition import holdout
from fedsel_app.exact_sums import CohortSum
from fedsel_app.messages.instructions import CalibrateInstruction
from fedsel_app.messages.scalars import Report
from fedsel_app.seeds import Purpose, stream
from fedsel_app.wire.codec import bits_of_values, decode
from tests.support.client_messages import (
    CLIENTS,
    NORMED,
    RUN,
    SIZE,
    changed,
    client_examples,
    enrol,
    initial,
    instruction,
    remembered,
    train,
)

ROUNDED = {"compressor": "qsgd", "error_feedback": False}


def test_label_counts_are_little_endian_int64_of_the_training_part(context):
    context = changed(context, partition={"holdout_fraction": 0.25})
    answer = enrol(context, label_counts=True)
    counts = np.frombuffer(answer.label_counts, "<i8")
    assert counts.shape == (10,)
    assert counts.sum() == answer.examples
    held = len(client_examples(context)) - answer.examples
    assert held == int(0.25 * len(client_examples(context)) + 0.5)
    whole = [
        int((load(context.data, RUN.seed).y_train[client_examples(context)] == label).sum()) for label in range(10)
    ]
    assert (counts <= whole).all()


def test_a_test_part_is_drawn_by_a_stream_of_its_own(context):
    """Round 1 of the partition's streams: the others draw the partition and the server's own examples."""
    labels, mine = load(context.data, RUN.seed).y_train, client_examples(context)
    held = dataclasses.replace(context.partition, holdout_fraction=0.25)
    found = client_parts.client_examples(context.data, held, CLIENTS, RUN.seed, context.client)
    expected = holdout(mine, labels, 0.25, stream(RUN.seed, Purpose.PARTITION, 1, context.client))
    assert [part.tolist() for part in found] == [part.tolist() for part in expected]


# Training


@pytest.mark.parametrize(
    ("reports", "passes"),
    [((), 0), ((Report.RMS_LOSS,), 1 / 3), ((Report.GRADIENT_DEVIATION,), 1), (tuple(Report), 4 / 3)],
)
def test_requested_numbers_cost_passes_over_the_examples(context, reports, passes):
    """4 steps; a pass has ceil(examples / 16) mini-batches, and without gradients each costs a third of a step."""
    answer = train(context, reports=reports)[1]
    assert answer.work_steps == pytest.approx(4 + passes * np.ceil(len(client_examples(context)) / 16))


def test_bf16_is_a_bit_class_of_its_own_with_the_same_bits_from_the_same_seed(context):
    half = changed(context, execution={"precision": "bf16"})
    (full, _), (first, _), (again, _) = train(context, kept=1.0), train(half, kept=1.0), train(half, kept=1.0)
    assert np.array_equal(first.values, again.values)
    assert not np.array_equal(first.values, full.values)
    assert np.linalg.norm(first.values - full.values) < 0.02 * np.linalg.norm(full.values)


def test_nothing_is_lost_over_several_rounds_of_new_clients(context, tmp_path):
    """With beta 1, what was sent plus what is remembered is v = delta + e, exactly, in every round."""
    arrays, kept = initial(context), np.zeros(SIZE, np.float32)
    whole = changed(context, compression={"compressor": "none"})
    for server_round in range(1, 5):
        delta = train(whole, arrays, server_round=server_round)[0].dense()
        again = dataclasses.replace(context, store=StateStore(tmp_path))
        sent = train(again, arrays, server_round=server_round, kept=0.05, beta=1.0)[0].dense()
        residual = remembered(context, server_round)["residual"]
        assert np.array_equal(sent + residual, delta + kept)
        assert np.count_nonzero(residual) > 0
        arrays, kept = [arrays[0] + sent], residual


@pytest.mark.parametrize("solver", ["sgd", "scaffold"])
@pytest.mark.parametrize("compression", [{"compressor": "none"}, {"error_feedback": False}, {}, ROUNDED])
def test_a_worker_adds_what_a_client_would_have_sent(context, tmp_path, compression, solver):
    """The update with its weight, and the change of the control variate as it is."""
    context = changed(context, compression=compression, training={"solver": solver})
    arrays, asked = initial(context), instruction(weight=0.5)
    arrays = [*arrays, np.full(arrays[0].size, 0.01, np.float32)] if solver == "scaffold" else arrays
    _, payloads = SelectionClient(context).answer(asked, arrays)
    sums, other = CohortSum(), changed(context, store=StateStore(tmp_path / "other"))
    answer, sent = SelectionClient(other).answer(asked, arrays, sums=sums)
    assert sent == []
    updates = [decode(payload.tobytes(), size=arrays[0].size).update for payload in payloads]
    for one, update, weight in zip(sums.sums, updates, [0.5, 1.0], strict=len(updates) == 2):
        np.testing.assert_allclose(one.total(), weight * update.dense())
    assert answer.payload_bytes == sum(payload.size for payload in payloads)
    assert answer.value_bits == sum(bits_of_values(update) for update in updates)
    norms = [norm for norm in (answer.norm, answer.control_norm) if norm is not None]
    assert norms == pytest.approx([update.norm() for update in updates])


def test_a_lost_reply_counts_as_if_nothing_had_been_sent(context, tmp_path):
    """After a lost round the residual is beta v, v = delta + e, whether it was lost once or twice."""
    whole = changed(context, compression={"compressor": "none"})
    deltas = [train(whole, server_round=number)[0].dense() for number in (1, 2, 3)]
    sent = train(context, server_round=1, beta=0.5)[0].dense()
    residual = np.float32(0.5) * (deltas[0] - sent)
    second = train(context, server_round=2, beta=0.5, last_aggregated=1)[0].dense()
    assert np.count_nonzero(second)
    for _ in range(2):  # the answer to round 3 does not depend on how often it is asked for
        third = train(context, server_round=3, beta=0.5, last_instructed=2, last_aggregated=1, kept=1.0)[0].dense()
        lost = np.float32(0.5) * (deltas[1] + residual)
        np.testing.assert_allclose(third, deltas[2] + lost, atol=1e-7)
    after = train(context, server_round=4, beta=0.5, last_instructed=3, last_aggregated=1, kept=1.0)[0].dense()
    fourth = train(whole, server_round=4)[0].dense()
    np.testing.assert_allclose(after, fourth + np.float32(0.5) * (deltas[2] + lost), atol=1e-7)


# Randomness


@pytest.mark.parametrize("model", ["logistic", NORMED])
def test_the_answers_do_not_depend_on_who_was_served_before(context, tmp_path, model):
    context = changed(
        context, run={"model": model}, preprocessing={"augment": "crop-flip"}, compression={"curvature_layers": 1}
    )
    answers = []
    for name, order in (("a", [0, 1, 2]), ("b", [2, 0, 1])):
        store = StateStore(tmp_path / name)
        torch.manual_seed(len(answers))
        served = {}
        for server_round in (1, 2):
            for client in order:
                one = changed(context, client=client, store=store)
                update, answer = train(one, server_round=server_round, curvature=True)
                served[client, server_round] = update.indices.tobytes(), update.values.tobytes(), answer.loss
        answers.append(served)
    assert answers[0] == answers[1]
    assert len(set(answers[0].values())) == 6


def test_torchs_global_generator_is_left_alone(context):
    context = changed(context, run={"model": NORMED})
    before = torch.get_rng_state()
    train(context)
    SelectionClient(context).answer(CalibrateInstruction(1, 2), initial(context))
    assert torch.equal(torch.get_rng_state(), before)


# Curvature


def test_curvature_changes_which_entries_are_sent_and_not_their_values(context, tmp_path):
    context = changed(context, run={"model": "cnn"}, compression={"curvature_layers": 2})
    raw = train(context, kept=1.0)[0].dense()
    plain, _ = train(context)
    scored, _ = train(changed(context, store=StateStore(tmp_path / "other")), curvature=True)
    assert plain.count == scored.count
    assert not np.array_equal(plain.indices, scored.indices)
    assert np.array_equal(scored.values, raw[scored.indices])


@pytest.mark.parametrize(("details", "signs_on"), [("text", None), ("code", range(4))])
def test_the_next_layers_are_drawn_by_the_last_mask(details, signs_on, context, monkeypatch):
    """With no exploration, and a mask that lay in layer 2 alone, only layer 2 can be drawn; at first, any."""
    monkeypatch.setattr("clients.compressors.EXPLORE", 0.0)
    choice = {"curvature_layers": 1, "details": details}
    context = changed(context, run={"model": "cnn"}, compression=choice)
    drawn = []

    def record(model, layers, x, y, rng, proximal, **options):
        assert proximal == context.training.mu
        assert options == {"training": details == "code", "signs_on": signs_on}
        drawn.append(list(layers))
        return {}

    monkeypatch.setattr("clients.curvature.hutchinson_diagonal", record)
    for server_round in range(1, 13):
        store, shares = context.store.of_run("run"), np.array([0.0, 0.0, 1.0, 0.0])
        store.save(2, 2 * server_round, {"shares": shares}, ClientHistory(2 * server_round - 1, 2 * server_round - 1))
        train(context, server_round=2 * server_round + 1, curvature=True)
    assert drawn == [[2]] * 12
    drawn.clear()
    for client in range(CLIENTS):
        train(changed(context, client=client, store=StateStore(context.store.folder / "new")), curvature=True)
    assert len({layer for [layer] in drawn}) > 1
