"""Layers that stay with the clients: FedPer and FedBN beside a loop of plain PyTorch, and what else holds for them.

M. G. Arivazhagan et al., "Federated Learning with Personalization Layers", arXiv 1912.00818 (FedPer: the head stays);
X. Li et al., "FedBN", ICLR 2021, arXiv 2102.07623 (all of BatchNorm stays); M. Andreux et al., "Siloed Federated
Learning for Multi-Centric Histopathology Datasets", 2020, arXiv 2008.07424 (SiloBN: its statistics stay).
"""

import copy

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch import nn

from fedsel_app.config import ConfigError
from fedsel_app.data.batches import DeviceData
from fedsel_app.data.client_parts import client_examples
from fedsel_app.data.dataset import load
from fedsel_app.models.building import build
from fedsel_app.wiring.configuration import resolve
from simulation.engines.inline_engine import simulate
from simulation.workbench.cli import main
from simulation.workbench.python_interface.runs import load_run
from tests.support.engines import inline
from tests.support.in_process import Killed
from tests.support.logs import logged
from tests.support.rounds import assert_same, read_rows

BATCH, STEPS, LR, ROUNDS, CLIENTS = 2000, 2, 0.1, 3, 3
OWN = {"client-eval": True, "holdout-fraction": 0.2}
PLAIN = OWN | {
    "strategy": "full",
    "clients": CLIENTS,
    "cohort": CLIENTS,
    "rounds": ROUNDS,
    "batch-size": BATCH,
    "local-steps": STEPS,
    "lr": LR,
    "lr-decay": 0.0,
    "momentum": 0.0,
    "clip-norm": 0.0,
    "solver": "sgd",
    "compressor": "none",
    "server-optimizer": "mean",
    "weighting": "examples",
    "example-clip": 0.0,
}
"""FedAvg with full batches, so that the order of the examples does not matter."""


def head_model(shape, classes):
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 16), nn.ReLU(), nn.Linear(16, classes))


def normed_model(shape, classes):
    return nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(144, classes))


MODELS = {"FedPer": (head_model, "3.*", "3."), "FedBN": (normed_model, "norms", "1.")}
"""Method -> its model, its `local-layers`, and the beginning of the names that stay."""


def settings_of(method, folder, **others):
    function, local, _ = MODELS[method]
    named = {"model": f"{__name__}:{function.__name__}", "local-layers": local, "out": str(folder)}
    return PLAIN | named | others


def loop(config, local):
    """State dicts of the clients after FedAvg of all arrays but those whose names begin with `local`."""
    dataset = load(config.data, config.run.seed)
    data = DeviceData(dataset, config.preprocessing, torch.device("cpu"))
    first = build(config.run.model, dataset.sample_shape, dataset.classes, config.run.seed)
    models = [copy.deepcopy(first) for _ in range(CLIENTS)]
    shared = {name: array for name, array in first.state_dict().items() if not name.startswith(local)}
    parts = [
        client_examples(config.data, config.partition, CLIENTS, config.run.seed, client)[0] for client in range(CLIENTS)
    ]
    for _ in range(ROUNDS):
        for model, part in zip(models, parts, strict=True):
            model.load_state_dict(shared, strict=False)
            optimizer = torch.optim.SGD(model.parameters(), LR)
            for _ in range(STEPS):
                x, y = data.train_batch(part, None)
                optimizer.zero_grad()
                nn.functional.cross_entropy(model.train()(x), y).backward()
                optimizer.step()
        weights = np.array([part.size for part in parts]) / sum(part.size for part in parts)
        states = [model.state_dict() for model in models]
        shared = {name: sum(w * each[name] for w, each in zip(weights, states, strict=True)) for name in shared}
    return [model.state_dict() | shared for model in models]


@pytest.mark.parametrize("method", MODELS)
def test_they_are_the_loop_of_a_page_of_torch(tmp_path, method):
    settings = settings_of(method, tmp_path / "run")
    inline(settings)
    result = load_run(tmp_path / "run")
    by_hand = loop(resolve(settings), MODELS[method][2])
    for client, state in enumerate(by_hand):
        own = result.client_model(client).state_dict()
        assert own.keys() == state.keys()
        for name, array in state.items():
            torch.testing.assert_close(own[name], array, rtol=1e-4, atol=1e-5, msg=f"{client} {name}")
    names = [name for name in by_hand[0] if name.startswith(MODELS[method][2])]
    assert any(not torch.equal(by_hand[0][name], by_hand[1][name]) for name in names)
    rows = read_rows(tmp_path / "run")
    shared = sum(array.numel() for name, array in by_hand[0].items() if name not in names)
    assert {row["downlink_bytes"] for row in rows} == {4 * shared * CLIENTS}
    assert {row["calibration_bytes"] for row in rows} == {0}
    assert all(4 * shared < row["uplink_bytes"] / CLIENTS < 4 * shared + 50 for row in rows)
    assert rows[-1]["accuracy"] == rows[-1]["client_accuracy"] > 0.3
    with logged() as log:
        assert not result.model.training
    assert f"This model lacks {names[0]}" in log()


def test_a_killed_run_that_compresses_and_probes_goes_on_with_the_same_layers(tmp_path):
    others = {"strategy": "power-of-choice", "cohort": 2, "clients": 5, "rounds": 4, "compressor": "top-k"}
    others |= {"batch-size": 32, "checkpoint-every": 1}

    def kill(row):
        if row["round"] == 2:
            raise Killed

    inline(settings_of("FedBN", tmp_path / "whole", **others))
    with pytest.raises(Killed):
        simulate(resolve(settings_of("FedBN", tmp_path / "killed", **others)), kill)
    inline(settings_of("FedBN", tmp_path / "killed", **others, resume=True))
    assert_same(tmp_path / "killed", tmp_path / "whole")
    trained = {client for row in read_rows(tmp_path / "whole") for client in row["selected"]}
    for client in range(5):
        if client not in trained:
            with pytest.raises(ConfigError, match=f"Client {client} has no state in .* it never trained"):
                load_run(tmp_path / "whole").client_model(client)
            continue
        first, second = (load_run(tmp_path / name).client_model(client) for name in ("whole", "killed"))
        assert all(map(torch.equal, first.state_dict().values(), second.state_dict().values()))


def test_statistics_alone_stay_with_silobn(tmp_path):
    code, given = f"{__name__}:normed_model", {"calibration-form": "local", "local-layers": ""}
    inline(settings_of("FedBN", tmp_path / "run", **given))
    sizes = sum(parameter.numel() for parameter in normed_model((), 10).parameters())
    assert {row["downlink_bytes"] for row in read_rows(tmp_path / "run")} == {4 * sizes * CLIENTS}
    file = tmp_path / "one.safetensors"
    assert main(["model", str(tmp_path / "run"), "--client", "1", "--allow-code", code, "--out", str(file)]) == 0
    one = load_file(file)
    assert one["1.running_mean"].any()
    assert one["1.num_batches_tracked"] == STEPS * ROUNDS


@pytest.mark.parametrize("local", ["3.*, nothing", "*"])
def test_names_of_nothing_and_of_everything_are_refused(tmp_path, local):
    with pytest.raises(ConfigError, match=r"and not all: 1\.weight, 1\.bias, 3\.weight"):
        inline(settings_of("FedPer", tmp_path / "run", **{"local-layers": local}))
