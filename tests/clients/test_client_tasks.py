"""The client's other tasks: calibration, probe and test, and what it refuses."""

import numpy as np
import pytest
import torch
from torch import nn

from clients.client import SelectionClient
from clients.local_training import DivergenceError
from fedsel_app.data.batches import DeviceData, loader_order
from fedsel_app.data.dataset import load
from fedsel_app.messages.instructions import CalibrateInstruction, LocalTestInstruction, ProbeInstruction
from fedsel_app.models.building import build
from fedsel_app.seeds import Purpose, stream
from tests.support.client_messages import (
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


def asked(context, instruction, arrays=None):
    """The answer of a new client; by default with the initial model."""
    return SelectionClient(context).answer(instruction, arrays or initial(context))[0]


def test_calibration_moves_the_statistics_as_torch_does_and_nothing_else(context):
    """One batch of all examples: new = 0.9 old + 0.1 batch statistics, by hand from the first convolution."""
    context = changed(context, run={"model": NORMED}, training={"batch_size": 10_000})
    arrays = initial(context)
    answer, [buffers] = SelectionClient(context).answer(CalibrateInstruction(1, 1), arrays)
    dataset = load(context.data, RUN.seed)
    x = (dataset.x_train[client_examples(context)] / 255.0 - dataset.mean[0]) / dataset.std[0]
    kernel, bias = torch.tensor(arrays[0][:27]).view(3, 1, 3, 3), torch.tensor(arrays[0][27:30])
    maps = nn.functional.conv2d(torch.tensor(x, dtype=torch.float32), kernel, bias).double()
    mean, variance = maps.mean(dim=(0, 2, 3)), maps.var(dim=(0, 2, 3), unbiased=True)
    expected = torch.cat([0.1 * mean, 0.9 + 0.1 * variance]).numpy()
    np.testing.assert_allclose(buffers, expected, rtol=1e-4, atol=1e-5)
    assert buffers.dtype == np.float32
    assert answer.to_config() == {}


# Evaluation


def test_the_probe_measures_this_many_minibatches(context):
    """Logits of zero give log 10 whatever the examples."""
    answer, _ = SelectionClient(context).answer(ProbeInstruction(1, 8), [np.zeros(SIZE, np.float32)])
    assert answer.to_config() == {"loss": pytest.approx(np.log(10.0)), "examples": 8 * 16}


def test_the_probe_neither_augments_nor_depends_on_the_order(context):
    probe = ProbeInstruction(5, 3)
    augmented = changed(context, preprocessing={"augment": "crop-flip"})
    losses = [asked(one, probe).loss for one in (context, augmented, context)]
    assert losses[0] == losses[1] == losses[2]
    assert asked(context, ProbeInstruction(6, 3)).loss != losses[0]


def test_a_probe_restores_rounded_parameters(context):
    """Blocks of 256 parameters: the parameter of level l is l / 127 of its block's norm."""
    blocks = -(-SIZE // 256)
    levels = np.arange(SIZE, dtype=np.int64) % 255 - 127
    norms = np.linspace(0.01, 0.02, blocks, dtype=np.float32)
    parameters = levels.astype(np.float32) / np.float32(127.0) * norms[np.arange(SIZE) // 256]
    section = np.frombuffer(norms.astype("<f4").tobytes() + levels.astype(np.int8).tobytes(), np.uint8)
    rounded, probe = changed(context, evaluation={"probe_bits": 8}), ProbeInstruction(1, 8)
    assert asked(rounded, probe, [section]) == asked(rounded, probe, [parameters])
    with pytest.raises(ValueError, match=f"^{section.size - 1} bytes are not {SIZE} parameters of 8 bits"):
        asked(rounded, probe, [section[1:]])
    with pytest.raises(ValueError, match="must run the same 'model', 'data' and 'probe-bits'"):
        asked(context, probe, [section])
    with pytest.raises(ValueError, match="must be float32"):
        asked(rounded, instruction(), [section])


@pytest.mark.parametrize("beyond", [0, 3])
def test_the_authors_probe_is_the_mean_of_augmented_minibatches_in_loader_order(beyond, context):
    """Without augmentation it is the mean of the mini-batches' mean losses by torch itself, of one pass at most."""
    context = changed(context, compression={"details": "code"})
    held = len(client_examples(context))
    batches = -(-held // context.training.batch_size)
    probe = ProbeInstruction(5, batches + beyond)
    answer = asked(context, probe)
    assert answer.examples == held
    assert held % context.training.batch_size, "so that the last mini-batch is smaller"
    rng = stream(context.run.seed, Purpose.PROBE, 5, context.client)
    data = load(context.data, context.run.seed)
    module = build("logistic", data.sample_shape, data.classes, context.run.seed).eval()
    means = []
    for positions in loader_order(held, context.training.batch_size, batches, rng):
        chosen = client_examples(context)[positions]
        x, _ = DeviceData(data, context.preprocessing, torch.device("cpu")).train_batch(chosen, None)
        loss_of_batch = nn.functional.cross_entropy(module(x), torch.from_numpy(data.y_train[chosen]))
        means.append(loss_of_batch.item())
    assert answer.loss == pytest.approx(np.mean(means), rel=1e-5)
    assert asked(changed(context, preprocessing={"augment": "crop-flip"}), probe).loss != answer.loss


def test_a_probe_of_the_test_part_is_the_loss_of_the_test_and_not_of_the_training_examples(context):
    context = changed(context, partition={"holdout_fraction": 0.4})
    probed, tested = asked(context, ProbeInstruction(1, 0, test_part=True)), asked(context, LocalTestInstruction(1))
    assert (probed.loss, probed.examples) == (tested.loss, tested.examples)
    assert probed.loss != asked(context, ProbeInstruction(1, 0)).loss
    assert asked(context, ProbeInstruction(1, 2, test_part=True)).examples == 2 * 16


def test_the_test_part_is_what_training_does_not_see(context):
    context = changed(context, partition={"holdout_fraction": 0.4})
    labels = load(context.data, RUN.seed).y_train[client_examples(context)]
    # A model that always says 7 with certainty is right exactly on the sevens.
    always = np.zeros(SIZE, np.float32)
    always[640 + 7] = 50.0
    answer, enrolled = asked(context, LocalTestInstruction(1), [always]), enrol(context, label_counts=True)
    trained_sevens = np.frombuffer(enrolled.label_counts, "<i8")[7]
    assert answer.examples == len(labels) - enrolled.examples
    accuracy = answer.scores["accuracy"]
    assert accuracy * answer.examples == pytest.approx((labels == 7).sum() - trained_sevens)
    assert answer.loss == pytest.approx(50.0 * (1.0 - accuracy))


# Messages that cannot be right


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ([], "consists of parameters. Got 0 arrays"),
        ([np.zeros(SIZE, np.float32)] * 2, "Got 2 arrays"),
        ([np.zeros(SIZE - 1, np.float32)], r"float32 \(650,\). Got float32 \(649,\)"),
        ([np.zeros((SIZE, 1), np.float32)], r"Got float32 \(650, 1\)"),
        ([np.zeros(SIZE, np.float64)], "Got float64"),
        ([np.full(SIZE, np.nan, np.float32)], "not all finite"),
    ],
)
def test_a_malformed_model_is_refused(context, arrays, message):
    with pytest.raises(ValueError, match=message):
        SelectionClient(context).answer(instruction(), arrays)


def test_a_diverged_training_changes_no_state(context):
    train(context, server_round=1)
    before = remembered(context, 2)
    with pytest.raises(DivergenceError, match="learning rate"):
        train(changed(context, training={"clip_norm": 0.0, "local_steps": 20}), server_round=2, lr=1e38)
    assert remembered(context, 2)["residual"].tobytes() == before["residual"].tobytes()


# What an instruction may add to the training


def test_the_statistics_that_training_left_are_sent_where_they_are_asked_for(context):
    """One batch of all examples in one step: new = 0.9 old + 0.1 batch statistics, as calibration has them."""
    context = changed(context, run={"model": NORMED}, training={"batch_size": 10_000, "local_steps": 1})
    arrays = initial(context)
    _, [plain] = SelectionClient(context).answer(instruction(), arrays)
    _, [payload, statistics] = SelectionClient(context).answer(instruction(statistics=True), arrays)
    assert payload.tobytes() == plain.tobytes()
    assert statistics.dtype == np.float32
    _, [calibrated] = SelectionClient(context).answer(CalibrateInstruction(1, 1), arrays)
    np.testing.assert_allclose(statistics, calibrated, rtol=1e-5)


def test_work_of_the_instruction_replaces_the_clients_own(context):
    batches = int(np.ceil(len(client_examples(context)) / context.training.batch_size))
    for settings in ({}, {"local_steps": 0, "local_epochs": 1}):
        its_own = changed(context, training=settings)
        assert train(its_own, local_epochs=3)[1].work_steps == 3 * batches
        assert train(its_own, local_steps=3)[1].work_steps == 3


def several_labels(config):
    """Two labels: the first holds for every fourth example, the second for all but every fifth."""
    index = np.arange(120)
    y = np.stack([index % 4 == 0, index % 5 != 0], axis=1).astype(np.float32)
    x = np.random.default_rng(0).normal(size=(120, 3)).astype(np.float32)
    return {"x_train": x, "y_train": y, "x_test": x[:9], "y_test": y[:9], "task": "multi-label"}


@pytest.mark.parametrize("weights", ["all", "client"])
def test_positives_weigh_by_the_clients_own_examples_in_training_alone(context, weights):
    """At logits of 0 the gradient of a bias is (negatives - weight * positives) / 4n: 0 with the client's weights."""
    context = changed(
        context,
        data={"data": "tests.clients.test_client_tasks:several_labels"},
        partition={"partition": "iid"},
        training={"batch_size": 10_000, "local_steps": 1, "momentum": 0.0, "mu": 0.0, "clip_norm": 0.0},
        task={"positive_weights": weights},
    )
    y = load(context.data, RUN.seed).y_train
    mine = y[client_examples(context)]
    assert mine.any(axis=0).all()
    arrays = [np.zeros(3 * 2 + 2, np.float32)]
    update, _ = train(context, arrays, kept=1.0, lr=1.0)
    of = {"all": y, "client": mine}[weights]
    positive_weights = (1 - of).sum(axis=0) / of.sum(axis=0)
    gradient = ((1 - mine) - positive_weights * mine).sum(axis=0) / (4 * len(mine))
    np.testing.assert_allclose(update.dense()[-2:], -gradient, atol=1e-6)
    assert np.allclose(gradient, 0.0, atol=1e-6) == (weights == "client")
    # The loss of a probe is the same for both: log 2 times the weights of all examples.
    mean_weight = np.where(mine > 0, (1 - y).sum(axis=0) / y.sum(axis=0), 1.0).mean()
    assert asked(context, ProbeInstruction(1, 0), arrays).loss == pytest.approx(np.log(2.0) * mean_weight, rel=1e-6)
