"""The client on the digits, its messages built by hand as the server would."""

import dataclasses
import json

import numpy as np
import pytest
import torch
from torch import nn

from clients.client import ClientSetup, SelectionClient
from clients.local_training import DivergenceError
from clients.state import StateStore
from fedsel_app.config import CompressionConfig, ConfigError, RunConfig, TrainingConfig
from fedsel_app.data import DataConfig, load
from fedsel_app.models import build
from fedsel_app.partition import PartitionConfig, split
from fedsel_app.wire import decode

CLIENTS = 6
RUN = RunConfig(device="cpu", clients=CLIENTS, cohort=2, seed=3)
SIZE = 64 * 10 + 10
NORMED = "tests.clients.test_client:normed"


def normed(sample_shape, classes):
    """A little network with BatchNorm and dropout."""
    return nn.Sequential(
        *(nn.Conv2d(sample_shape[0], 3, 3), nn.BatchNorm2d(3), nn.ReLU(), nn.Dropout(0.3)),
        *(nn.Flatten(), nn.Linear(3 * 6 * 6, classes)),
    )


@pytest.fixture
def setup(tmp_path):
    return ClientSetup(
        client=2,
        clients=CLIENTS,
        run=RUN,
        data=DataConfig(),
        partition=PartitionConfig(),
        training=TrainingConfig(local_steps=4, batch_size=16),
        compression=CompressionConfig(curvature_layers=0),
        store=StateStore(tmp_path),
    )


def changed(setup, *, client=None, store=None, **groups):
    """`setup` with some fields of its settings groups replaced."""
    new = {name: dataclasses.replace(getattr(setup, name), **values) for name, values in groups.items()}
    new |= {name: value for name, value in (("client", client), ("store", store)) if value is not None}
    return dataclasses.replace(setup, **new)


def initial(setup):
    """The global model of round 1: parameters, and statistics where there are any."""
    dataset = load(setup.data, setup.run.seed)
    module = build(setup.run.model, dataset.sample_shape, dataset.classes, setup.run.seed)
    groups = [list(module.parameters()), [b for b in module.buffers() if b.is_floating_point()]]
    return [torch.cat([t.detach().flatten() for t in tensors]).numpy() for tensors in groups if tensors]


def instruction(server_round=1, kept=0.1, beta=0.9, curvature=False, lr=0.1):
    return {
        "task": "train",
        "round": server_round,
        "lr": lr,
        "kept-fraction": kept,
        "residual-decay": beta,
        "curvature": curvature,
    }


def train(setup, arrays=None, **keys):
    """A client made for this one message: its update, and everything else that it answered."""
    arrays = arrays or initial(setup)
    [payload], examples, metrics = SelectionClient(setup).fit(arrays, instruction(**keys))
    assert payload.dtype == np.uint8
    packet = decode(payload.tobytes(), size=arrays[0].size)
    assert (packet.client, packet.server_round) == (setup.client, keys.get("server_round", 1))
    return packet.update, examples, metrics


def own_examples(setup):
    labels = load(setup.data, RUN.seed).y_train
    return split(setup.partition, labels, CLIENTS, RUN.seed)[setup.client]


# What it says of itself


def test_properties(setup):
    properties = SelectionClient(setup).get_properties({})
    assert properties == {"client": 2, "clients": 6, "examples": len(own_examples(setup)), "steps": 4}


def test_label_counts_are_little_endian_int64_of_the_training_part(setup):
    setup = changed(setup, data={"holdout_fraction": 0.25})
    properties = SelectionClient(setup).get_properties({"label-counts": True})
    counts = np.frombuffer(properties["label-counts"], "<i8")
    assert counts.shape == (10,)
    assert counts.sum() == properties["examples"]
    held = len(own_examples(setup)) - properties["examples"]
    assert held == int(0.25 * len(own_examples(setup)) + 0.5)
    whole = [int((load(setup.data, RUN.seed).y_train[own_examples(setup)] == label).sum()) for label in range(10)]
    assert (counts <= whole).all()


def test_the_steps_of_epochs_are_those_that_it_takes(setup):
    setup = changed(setup, training={"local_steps": 0, "local_epochs": 2, "batch_size": 32})
    steps = SelectionClient(setup).get_properties({})["steps"]
    assert steps == 2 * int(np.ceil(len(own_examples(setup)) / 32))
    assert train(setup)[2]["work-steps"] == steps


# Training


def test_metrics_are_what_flower_can_carry(setup):
    update, examples, metrics = train(setup, kept=0.1)
    assert examples == len(own_examples(setup))
    assert metrics["client"] == 2
    assert metrics["work-steps"] == 4
    assert update.count == 65
    assert 0.0 < metrics["compute_s"] < 60.0
    assert {key: type(value) for key, value in metrics.items()} == {
        "client": int,
        "loss": float,
        "work-steps": float,
        "compute_s": float,
    }
    json.dumps(metrics)


def test_everything_kept_is_the_raw_update_dense(setup):
    sent, _, _ = train(setup, kept=1.0)
    raw, _, _ = train(changed(setup, compression={"compressor": "none"}), kept=0.1)
    assert sent.indices is None
    assert raw.indices is None
    assert sent.values.tobytes() == raw.values.tobytes()
    assert np.abs(raw.values).max() > 0


def test_training_lowers_the_loss_and_the_update_leads_there(setup):
    probe = {"task": "probe", "round": 1, "batches": 8}
    arrays = initial(setup)
    update, _, metrics = train(changed(setup, training={"local_steps": 40}), kept=1.0)
    before, _, _ = SelectionClient(setup).evaluate(arrays, probe)
    after, _, _ = SelectionClient(setup).evaluate([arrays[0] + update.dense()], probe)
    assert after < metrics["loss"] < before


def test_the_largest_entries_are_sent_and_the_rest_is_remembered(setup):
    raw = train(setup, kept=1.0)[0].dense()
    update, _, _ = train(setup, kept=0.1, beta=0.5)
    smallest_sent = np.abs(update.values).min()
    left_out = np.delete(raw, update.indices)
    assert np.array_equal(update.values, raw[update.indices])
    assert np.abs(left_out).max() <= smallest_sent
    residual = setup.store.load(2, before=2)["residual"]
    assert np.array_equal(residual, np.float32(0.5) * (raw - update.dense()))


def test_nothing_is_lost_over_several_rounds_of_new_clients(setup, tmp_path):
    """With beta 1, what was sent plus what is remembered is v = delta + e, exactly, in every round."""
    arrays, remembered = initial(setup), np.zeros(SIZE, np.float32)
    whole = changed(setup, compression={"compressor": "none"})
    for server_round in range(1, 5):
        delta = train(whole, arrays, server_round=server_round)[0].dense()
        again = dataclasses.replace(setup, store=StateStore(tmp_path))
        sent = train(again, arrays, server_round=server_round, kept=0.05, beta=1.0)[0].dense()
        residual = setup.store.load(2, before=server_round + 1)["residual"]
        assert np.array_equal(sent + residual, delta + remembered)
        assert np.count_nonzero(residual) > 0
        arrays, remembered = [arrays[0] + sent], residual


@pytest.mark.parametrize("beta", [0.0, 0.25, 0.97])
def test_the_residual_decays_by_the_number_in_the_message(setup, tmp_path, beta):
    train(setup, beta=1.0)
    full = setup.store.load(2, before=2)["residual"]
    other = changed(setup, store=StateStore(tmp_path / "other"))
    train(other, beta=beta)
    assert np.array_equal(other.store.load(2, before=2)["residual"], full * np.float32(beta))


def test_a_dense_round_sends_the_residual_too_and_leaves_none(setup):
    raw = train(changed(setup, compression={"compressor": "none"}), server_round=2)[0].dense()
    train(setup, server_round=1, kept=0.1)
    residual = setup.store.load(2, before=2)["residual"]
    update, _, _ = train(setup, server_round=2, kept=1.0)
    assert np.array_equal(update.dense(), raw + residual)
    assert "residual" not in setup.store.load(2, before=3)


def test_without_error_feedback_nothing_is_remembered(setup):
    setup = changed(setup, compression={"error_feedback": False})
    raw = train(setup, server_round=2, kept=1.0)[0].dense()
    train(setup, server_round=1, kept=0.1)
    update, _, _ = train(setup, server_round=2, kept=0.1)
    assert np.array_equal(update.values, raw[update.indices])


def test_without_compression_no_state_is_written(setup, tmp_path):
    train(changed(setup, compression={"compressor": "none"}))
    assert not list(tmp_path.iterdir())


def test_a_round_sent_again_gets_the_same_answer(setup):
    train(setup, server_round=1)
    first, _, _ = train(setup, server_round=2)
    second, _, _ = train(setup, server_round=2)
    assert first == second


# Randomness


@pytest.mark.parametrize("model", ["logistic", NORMED])
def test_the_answers_do_not_depend_on_who_was_served_before(setup, tmp_path, model):
    setup = changed(setup, run={"model": model}, data={"augment": "crop-flip"}, compression={"curvature_layers": 1})
    answers = []
    for name, order in (("a", [0, 1, 2]), ("b", [2, 0, 1])):
        store = StateStore(tmp_path / name)
        torch.manual_seed(len(answers))
        served = {}
        for server_round in (1, 2):
            for client in order:
                one = changed(setup, client=client, store=store)
                update, _, metrics = train(one, server_round=server_round, curvature=True)
                served[client, server_round] = update.indices.tobytes(), update.values.tobytes(), metrics["loss"]
        answers.append(served)
    assert answers[0] == answers[1]
    assert len(set(answers[0].values())) == 6


def test_the_run_seed_and_the_round_change_the_minibatches(setup):
    arrays = initial(setup)
    losses = {train(setup, arrays, server_round=number)[2]["loss"] for number in (1, 2, 3)}
    assert len(losses) == 3


def test_torchs_global_generator_is_left_alone(setup):
    setup = changed(setup, run={"model": NORMED})
    before = torch.get_rng_state()
    train(setup)
    SelectionClient(setup).fit(initial(setup), {"task": "calibrate", "round": 1, "batches": 2})
    assert torch.equal(torch.get_rng_state(), before)


# Curvature


def test_curvature_changes_which_entries_are_sent_and_not_their_values(setup, tmp_path):
    setup = changed(setup, run={"model": "cnn"}, compression={"curvature_layers": 2})
    raw = train(setup, kept=1.0)[0].dense()
    plain, _, _ = train(setup)
    scored, _, _ = train(changed(setup, store=StateStore(tmp_path / "other")), curvature=True)
    assert plain.count == scored.count
    assert not np.array_equal(plain.indices, scored.indices)
    assert np.array_equal(scored.values, raw[scored.indices])


def test_curvature_layers_0_ignores_the_instruction(setup, tmp_path):
    plain, _, _ = train(setup)
    told, _, _ = train(changed(setup, store=StateStore(tmp_path / "other")), curvature=True)
    assert plain == told


def test_the_next_layers_are_drawn_by_the_last_mask(setup, monkeypatch):
    """With no exploration, and a mask that lay in layer 2 alone, only layer 2 can be drawn; at first, any."""
    setup = changed(setup, run={"model": "cnn"}, compression={"curvature_layers": 1, "curvature_explore": 0.0})
    drawn = []

    def record(model, layers, x, y, rng):
        drawn.append(list(layers))
        return {}

    monkeypatch.setattr("clients.client.hutchinson_diagonal", record)
    for server_round in range(1, 13):
        setup.store.save(2, 2 * server_round, {"shares": np.array([0.0, 0.0, 1.0, 0.0])})
        train(setup, server_round=2 * server_round + 1, curvature=True)
    assert drawn == [[2]] * 12
    drawn.clear()
    for client in range(CLIENTS):
        train(changed(setup, client=client, store=StateStore(setup.store.folder / "new")), curvature=True)
    assert len({layer for [layer] in drawn}) > 1


def test_the_layers_shares_of_the_mask_are_remembered(setup):
    setup = changed(setup, run={"model": "cnn"}, compression={"curvature_layers": 1})
    update, _, _ = train(setup, kept=0.1)
    module = build("cnn", (1, 8, 8), 10, RUN.seed)
    sizes = [sum(p.numel() for p in layer.parameters()) for layer in module if list(layer.parameters())]
    edges = np.cumsum([0, *sizes])
    expected = np.histogram(update.indices, edges)[0] / update.count
    assert setup.store.load(2, before=2)["shares"].tolist() == expected.tolist()


# BatchNorm


def test_calibration_moves_the_statistics_as_torch_does_and_nothing_else(setup):
    """One batch of all examples: new = 0.9 old + 0.1 batch statistics, by hand from the first convolution."""
    setup = changed(setup, run={"model": NORMED}, training={"batch_size": 10_000})
    arrays = initial(setup)
    client = SelectionClient(setup)
    [buffers], examples, metrics = client.fit(arrays, {"task": "calibrate", "round": 1, "batches": 1})
    dataset = load(setup.data, RUN.seed)
    x = (dataset.x_train[own_examples(setup)] / 255.0 - dataset.mean[0]) / dataset.std[0]
    kernel, bias = torch.tensor(arrays[0][:27]).view(3, 1, 3, 3), torch.tensor(arrays[0][27:30])
    maps = nn.functional.conv2d(torch.tensor(x, dtype=torch.float32), kernel, bias).double()
    mean, variance = maps.mean(dim=(0, 2, 3)), maps.var(dim=(0, 2, 3), unbiased=True)
    expected = torch.cat([0.1 * mean, 0.9 + 0.1 * variance]).numpy()
    np.testing.assert_allclose(buffers, expected, rtol=1e-4, atol=1e-5)
    assert buffers.dtype == np.float32
    assert (examples, metrics) == (len(own_examples(setup)), {"client": 2})


def test_calibration_starts_from_the_statistics_that_came(setup):
    setup = changed(setup, run={"model": NORMED})
    arrays = initial(setup)
    order = {"task": "calibrate", "round": 1, "batches": 2}
    [near], _, _ = SelectionClient(setup).fit(arrays, order)
    [far], _, _ = SelectionClient(setup).fit([arrays[0], arrays[1] + np.float32(1000.0)], order)
    np.testing.assert_allclose(far - near, 0.9**2 * 1000.0, rtol=1e-4)
    [again], _, _ = SelectionClient(setup).fit(arrays, order)
    assert near.tobytes() == again.tobytes()


# Evaluation


def test_the_probe_measures_this_many_minibatches(setup):
    """Logits of zero give log 10 whatever the examples."""
    client = SelectionClient(setup)
    loss, probed, metrics = client.evaluate([np.zeros(SIZE, np.float32)], {"task": "probe", "round": 1, "batches": 8})
    assert loss == pytest.approx(np.log(10.0))
    assert probed == 8 * 16
    assert metrics == {"client": 2}


def test_the_probe_neither_augments_nor_depends_on_the_order(setup):
    probe = {"task": "probe", "round": 5, "batches": 3}
    augmented = changed(setup, data={"augment": "crop-flip"})
    losses = [SelectionClient(one).evaluate(initial(setup), probe)[0] for one in (setup, augmented, setup)]
    assert losses[0] == losses[1] == losses[2]
    other_round = SelectionClient(setup).evaluate(initial(setup), probe | {"round": 6})[0]
    assert other_round != losses[0]


def test_the_test_part_is_what_training_does_not_see(setup):
    setup = changed(setup, data={"holdout_fraction": 0.4})
    labels = load(setup.data, RUN.seed).y_train[own_examples(setup)]
    # A model that always says 7 with certainty is right exactly on the sevens.
    always = np.zeros(SIZE, np.float32)
    always[640 + 7] = 50.0
    loss, tested, metrics = SelectionClient(setup).evaluate([always], {"task": "test", "round": 1})
    properties = SelectionClient(setup).get_properties({"label-counts": True})
    trained_sevens = np.frombuffer(properties["label-counts"], "<i8")[7]
    assert tested == len(labels) - properties["examples"]
    assert metrics["client"] == 2
    assert metrics["accuracy"] * tested == pytest.approx((labels == 7).sum() - trained_sevens)
    assert loss == pytest.approx(50.0 * (1.0 - metrics["accuracy"]))


def test_without_a_test_part_the_test_is_refused(setup):
    with pytest.raises(ValueError, match="Client 2 has no test part"):
        SelectionClient(setup).evaluate(initial(setup), {"task": "test", "round": 1})


# Messages that cannot be right


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ([], "comes as parameters. Got 0 arrays"),
        ([np.zeros(SIZE, np.float32)] * 2, "Got 2 arrays"),
        ([np.zeros(SIZE - 1, np.float32)], r"float32 \(650,\). Got float32 \(649,\)"),
        ([np.zeros((SIZE, 1), np.float32)], r"Got float32 \(650, 1\)"),
        ([np.zeros(SIZE, np.float64)], "Got float64"),
        ([np.full(SIZE, np.nan, np.float32)], "not all finite"),
    ],
)
def test_a_malformed_model_is_refused(setup, arrays, message):
    with pytest.raises(ValueError, match=message):
        SelectionClient(setup).fit(arrays, instruction())


def test_a_model_with_statistics_must_bring_them(setup):
    setup = changed(setup, run={"model": NORMED})
    with pytest.raises(ValueError, match="parameters and buffers"):
        SelectionClient(setup).fit(initial(setup)[:1], instruction())


def test_an_unknown_task_is_refused(setup):
    client = SelectionClient(setup)
    with pytest.raises(ValueError, match="train or calibrate"):
        client.fit(initial(setup), {"task": "probe"})
    with pytest.raises(ValueError, match="probe or test"):
        client.evaluate(initial(setup), {})


def test_a_diverged_training_changes_no_state(setup):
    train(setup, server_round=1)
    before = setup.store.load(2, before=3)
    with pytest.raises(DivergenceError, match="learning rate"):
        train(changed(setup, training={"clip_norm": 0.0, "local_steps": 20}), server_round=2, lr=1e38)
    assert setup.store.load(2, before=3)["residual"].tobytes() == before["residual"].tobytes()


def test_a_device_that_is_absent_is_refused(setup, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(ConfigError, match="device"):
        train(changed(setup, run={"device": "cuda"}))
