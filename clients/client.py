"""The Flower client: thin wiring of data, local training, compression and state.

Flower builds it anew for every message; what outlives a message is in the `StateStore`.
"""

import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import torch
from flwr.client import NumPyClient
from flwr.common import NDArrays, Scalar
from numpy.typing import NDArray
from torch import Tensor

from clients import compression
from clients.curvature import hutchinson_diagonal
from clients.local_training import train
from clients.state import StateStore
from fedsel_app import wire
from fedsel_app.batches import DeviceData, batch_order, device_data, epoch_order
from fedsel_app.config import CompressionConfig, ConfigError, RunConfig, TrainingConfig
from fedsel_app.data import DataConfig, load
from fedsel_app.device import choose_device
from fedsel_app.models import FlatModel, build, evaluate
from fedsel_app.partition import PartitionConfig, holdout, split
from fedsel_app.seeds import Purpose, stream, torch_seed

EVALUATION_BATCH = 500


@dataclass(frozen=True)
class ClientSetup:
    """All that a client is built from. `client` is its partition id, `clients` the number K of all."""

    client: int
    clients: int
    run: RunConfig
    data: DataConfig
    partition: PartitionConfig
    training: TrainingConfig
    compression: CompressionConfig
    store: StateStore


class SelectionClient(NumPyClient):
    """Trains, compresses, probes, calibrates and tests as instructed; `config["task"]` says which."""

    def __init__(self, setup: ClientSetup) -> None:
        self._setup = setup
        run = setup.run
        if not 0 <= setup.client < setup.clients:
            raise ConfigError(f"The partition id {setup.client} must be in [0, {setup.clients}), the 'clients' of the run.")
        torch.set_num_threads(run.threads)
        self._device = choose_device(run.device)
        parts = _partitions(setup.data, setup.partition, setup.clients, run.seed)
        self._train_part, self._test_part = parts[setup.client]

    def get_properties(self, config: dict[str, Scalar]) -> dict[str, Scalar]:
        """Partition id, examples, local steps a round, and, where asked, examples per class as int64 bytes."""
        dataset = load(self._setup.data, self._setup.run.seed)
        properties: dict[str, Scalar] = {
            "client": self._setup.client,
            "clients": self._setup.clients,
            "examples": int(self._train_part.size),
            "steps": len(self._order(stream(0, Purpose.TRAIN))),
        }
        if config.get("label-counts"):
            counts = np.bincount(dataset.y_train[self._train_part], minlength=dataset.classes)
            properties["label-counts"] = counts.astype("<i8").tobytes()
        return properties

    def fit(self, parameters: NDArrays, config: dict[str, Scalar]) -> tuple[NDArrays, int, dict[str, Scalar]]:
        """Train and return the compressed update, or calibrate and return BatchNorm statistics."""
        if config["task"] == "calibrate":
            return self._calibrate(parameters, config)
        return self._train(parameters, config)

    def evaluate(self, parameters: NDArrays, config: dict[str, Scalar]) -> tuple[float, int, dict[str, Scalar]]:
        """Loss on a few training batches (task probe), or on the client's own test part (task test)."""
        model, data = self._model(parameters), self._data()
        if config["task"] == "probe":
            batches = self._batches(Purpose.PROBE, config, model, augment=False)
        elif self._test_part.size:
            cuts = np.arange(EVALUATION_BATCH, self._test_part.size, EVALUATION_BATCH)
            batches = (data.train_batch(part, None) for part in np.split(self._test_part, cuts))
        else:
            raise ConfigError(f"Client {self._setup.client} has no test part; set 'holdout-fraction' above 0.")
        loss, correct, examples = evaluate(model, batches)
        return loss, examples, {"client": self._setup.client, "accuracy": correct / examples}

    def _train(self, parameters: NDArrays, config: dict[str, Scalar]) -> tuple[NDArrays, int, dict[str, Scalar]]:
        setup, server_round = self._setup, int(config["round"])
        model = self._model(parameters)
        started_s = time.perf_counter()
        generator = self._generator(server_round)
        order = self._order(self._stream(Purpose.TRAIN, server_round))
        data = self._data()
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(self._torch_seed(Purpose.TRAIN, server_round))
            batches = (data.train_batch(self._train_part[batch], generator) for batch in order)
            report = train(model, batches, setup.training, float(config["lr"]))
        update, state, kept = self._compress(model, parameters[0], config)
        compute_s = time.perf_counter() - started_s
        payload = wire.encode(update, client=setup.client, server_round=server_round)
        setup.store.save(setup.client, server_round, state)
        metrics: dict[str, Scalar] = {
            "client": setup.client,
            "loss": report.loss,
            "steps": report.steps,
            "compute_s": compute_s,
            "kept": kept,
        }
        return [np.frombuffer(payload, np.uint8)], int(self._train_part.size), metrics

    def _compress(
        self, model: FlatModel, initial: NDArray[np.float32], config: dict[str, Scalar]
    ) -> tuple[wire.Update, dict[str, NDArray[np.float32]], int]:
        """The compressed update and the state that is left: residual and layer shares (Eq. 10, Alg. 1, lines 8-10)."""
        setup, server_round = self._setup, int(config["round"])
        settings = setup.compression
        state = setup.store.load(setup.client, server_round)
        vector = model.export() - initial
        if settings.error_feedback and "residual" in state:
            vector += state["residual"]
        if settings.compressor == "none":
            return wire.Update(vector.size, None, vector), {}, vector.size
        curvature = {}
        if settings.curvature_layers and config["curvature"]:
            rng = self._stream(Purpose.COMPRESS, server_round)
            shares = state.get("shares", np.ones(len(model.layers)))
            drawn = compression.draw_layers(shares, settings.curvature_layers, settings.curvature_explore, rng)
            batch = batch_order(self._train_part.size, setup.training.batch_size, 1, rng)[0]
            x, y = self._data().train_batch(self._train_part[batch], None)
            curvature = hutchinson_diagonal(model, drawn.tolist(), x, y, rng)
        scores = compression.coordinate_scores(
            vector, curvature, model.layers, settings.curvature_scale, settings.curvature_floor
        )
        count = compression.kept_count(float(config["kept-fraction"]), vector.size, settings.kept_rounding)
        update, residual = compression.compress(vector, count, scores)
        state = {"shares": compression.layer_shares(update.indices, model.layers, settings.layer_importance)}
        if settings.error_feedback:
            state["residual"] = residual * np.float32(config["residual-decay"])
        return update, state, count

    def _calibrate(self, parameters: NDArrays, config: dict[str, Scalar]) -> tuple[NDArrays, int, dict[str, Scalar]]:
        """BatchNorm statistics after mini-batches in train mode, weights untouched (Alg. 1, line 13)."""
        model = self._model(parameters)
        model.module.train()
        with torch.no_grad():
            for x, _ in self._batches(Purpose.CALIBRATE, config, model, augment=True):
                model.module(x)
        return [model.buffers_vector()], int(self._train_part.size), {"client": self._setup.client}

    def _model(self, parameters: NDArrays) -> FlatModel:
        """The process's model, holding `parameters`: [float32 (N,)] or [float32 (N,), float32 (B,)]."""
        setup = self._setup
        dataset = load(setup.data, setup.run.seed)
        model = _model(setup.run.model, dataset.sample_shape, dataset.classes, setup.run.seed, self._device)
        if not 1 <= len(parameters) <= 2 or not all(np.isfinite(array).all() for array in parameters):
            raise ValueError("The server must send one or two arrays of finite numbers.")
        model.load(parameters[0], parameters[1] if len(parameters) > 1 else np.zeros(0, np.float32))
        return model

    def _data(self) -> DeviceData:
        return device_data(self._setup.data, self._setup.run.seed, self._device)

    def _order(self, rng: np.random.Generator) -> list[NDArray[np.int64]]:
        """Positions of each local step's examples in a round."""
        training, examples = self._setup.training, self._train_part.size
        if training.local_epochs:
            return epoch_order(examples, training.batch_size, training.local_epochs, rng)
        return batch_order(examples, training.batch_size, training.local_steps, rng)

    def _batches(
        self, purpose: Purpose, config: dict[str, Scalar], model: FlatModel, *, augment: bool
    ) -> Iterator[tuple[Tensor, Tensor]]:
        """`config["batches"]` mini-batches of the training part."""
        server_round = int(config["round"])
        rng = self._stream(purpose, server_round)
        generator = self._generator(server_round) if augment else None
        size = self._setup.training.batch_size
        for batch in batch_order(self._train_part.size, size, int(config["batches"]), rng):
            yield self._data().train_batch(self._train_part[batch], generator)

    def _stream(self, purpose: Purpose, server_round: int) -> np.random.Generator:
        return stream(self._setup.run.seed, purpose, server_round, self._setup.client)

    def _torch_seed(self, purpose: Purpose, server_round: int) -> int:
        return torch_seed(self._setup.run.seed, purpose, server_round, self._setup.client)

    def _generator(self, server_round: int) -> torch.Generator:
        return torch.Generator().manual_seed(self._torch_seed(Purpose.DATA, server_round))


@lru_cache(maxsize=2)
def _model(name: str, sample_shape: tuple[int, ...], classes: int, seed: int, device: torch.device) -> FlatModel:
    return FlatModel(build(name, sample_shape, classes, seed), device)


@lru_cache(maxsize=2)
def _partitions(
    data: DataConfig, partition: PartitionConfig, clients: int, seed: int
) -> list[tuple[NDArray[np.int64], NDArray[np.int64]]]:
    """Every client's training and own test part."""
    labels = load(data, seed).y_train
    parts = split(partition, labels, clients, seed)
    return [
        holdout(part, labels, data.holdout_fraction, stream(seed, Purpose.PARTITION, 0, client + 1))
        for client, part in enumerate(parts)
    ]
