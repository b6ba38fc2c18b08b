"""Tasks of bench `peers`: model, data, partition and local work, which all contenders share."""

import json
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from fedsel_app.config import DataConfig, PartitionConfig, PreprocessingConfig
from fedsel_app.data.batches import device_data
from fedsel_app.data.dataset import load
from fedsel_app.data.inputs import Inputs
from fedsel_app.data.partition import split
from fedsel_app.models.building import build, channels_last
from fedsel_app.models.tasks import CLASSIFICATION
from fedsel_app.seeds import Purpose, stream

SEED = 1
CPU = torch.device("cpu")
GENERATED = "laboratory.bench.baselines:cifar10"
FORWARD_BATCH = 256


@dataclass(frozen=True)
class PeerTask:
    """Task: K IID clients, of which a cohort takes epochs of plain SGD a round; the server takes the mean.

    fedsel's contender has `model` with `channels_last`, by the name of the function with that suffix. The model without
    dropout is that of the rounds in which nothing is drawn (`laboratory.bench.peers.compare_models`).
    """

    name: str
    source: str
    model: str
    model_without_dropout: str
    clients: int
    cohort: int
    epochs: int
    batch: int
    lr: float


def two_convolutions(sample_shape: tuple[int, ...], outputs: int) -> nn.Module:
    """CNN of the benchmarks of pfl-research (`simple_cnn`); 1,626,442 parameters for CIFAR-10."""
    channels, height, width = sample_shape
    flat = 64 * ((height - 4) // 2) * ((width - 4) // 2)
    model = nn.Sequential(
        *(nn.Conv2d(channels, 32, 3), nn.ReLU(), nn.Conv2d(32, 64, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Dropout(0.25)),
        *(nn.Flatten(), nn.Linear(flat, 128), nn.ReLU(), nn.Dropout(0.5), nn.Linear(128, outputs)),
    )
    for module in model:
        if isinstance(module, nn.Conv2d | nn.Linear):
            nn.init.xavier_uniform_(module.weight)
    return model


def two_convolutions_without_dropout(sample_shape: tuple[int, ...], outputs: int) -> nn.Module:
    """The same CNN with the same weights, whose dropout layers drop nothing."""
    model = two_convolutions(sample_shape, outputs)
    for module in model.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.0
    return model


def lenet(sample_shape: tuple[int, ...], outputs: int) -> nn.Module:
    """Small CNN of Flower's PyTorch quickstart; 62,006 parameters for CIFAR-10."""
    channels, height, width = sample_shape
    flat = 16 * (((height - 4) // 2 - 4) // 2) * (((width - 4) // 2 - 4) // 2)
    return nn.Sequential(
        *(nn.Conv2d(channels, 6, 5), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(6, 16, 5), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Flatten(), nn.Linear(flat, 120), nn.ReLU(), nn.Linear(120, 84), nn.ReLU(), nn.Linear(84, outputs)),
    )


def two_convolutions_channels_last(sample_shape: tuple[int, ...], outputs: int) -> nn.Module:
    """The same CNN as users of fedsel would have it."""
    return channels_last(two_convolutions(sample_shape, outputs))


def two_convolutions_without_dropout_channels_last(sample_shape: tuple[int, ...], outputs: int) -> nn.Module:
    """The same CNN as users of fedsel would have it."""
    return channels_last(two_convolutions_without_dropout(sample_shape, outputs))


def lenet_channels_last(sample_shape: tuple[int, ...], outputs: int) -> nn.Module:
    """The same CNN as users of fedsel would have it."""
    return channels_last(lenet(sample_shape, outputs))


PEER_TASKS = {
    "50-of-1000": PeerTask(
        "CIFAR-10 IID, 50 of 1,000 clients, 1 epoch of batch 10",
        "Granqvist et al. 2024 (pfl-research), arXiv:2404.06430: CIFAR10-IID",
        f"{__name__}:{two_convolutions.__name__}",
        f"{__name__}:{two_convolutions_without_dropout.__name__}",
        *(1000, 50, 1, 10, 0.1),
    ),
    "100-of-100": PeerTask(
        "CIFAR-10 IID, 100 of 100 clients, 5 epochs of batch 50",
        "Flower's PyTorch quickstart: its small CNN",
        f"{__name__}:{lenet.__name__}",
        f"{__name__}:{lenet.__name__}",
        *(100, 100, 5, 50, 0.01),
    ),
}


@dataclass(frozen=True)
class PeerRun:
    """Run of one contender, as the file that says so to its process.

    Attributes
    ----------
    task : what is trained
    data_path : npz file with CIFAR-10's arrays; empty for generated images
    rounds, threads, workers : rounds to train; torch threads of each of the worker processes
    device : device on which all workers train
    """

    task: PeerTask
    data_path: str
    rounds: int
    threads: int
    workers: int
    device: str = "cpu"

    @property
    def data(self) -> DataConfig:
        """Settings of the data set."""
        return DataConfig(data="npz", data_path=self.data_path) if self.data_path else DataConfig(data=GENERATED)

    def initial_model(self) -> nn.Module:
        """The model that every contender starts from."""
        dataset = load(self.data, SEED)
        return build(self.task.model, dataset.sample_shape, dataset.classes, SEED)

    def training_set(self) -> tuple[Tensor, Tensor, list[NDArray[np.int64]]]:
        """Normalised images, float32 (n, C, H, W), their classes, int64 (n,), and each client's examples, shuffled.

        pfl-research takes them in this order. A file may have its images by class, and each mini-batch would be of one.
        """
        data, labels = device_data(self.data, PreprocessingConfig(), SEED, CPU), load(self.data, SEED).y_train
        x, y = data.train_batch(np.arange(len(labels)), None)
        if not isinstance(x, Tensor):
            raise TypeError(f"The data set {self.data.data} has inputs of several names.")
        parts = split(PartitionConfig(partition="iid"), labels, self.task.clients, SEED)
        rngs = (stream(SEED, Purpose.TRAIN, 0, client) for client in range(self.task.clients))
        return x, y, [rng.permutation(part) for rng, part in zip(rngs, parts, strict=True)]

    def test_loss(self, parameters: list[NDArray[np.float32]]) -> float:
        """Mean loss on the test set of the model with these parameters, one array a tensor."""
        model = self.initial_model().eval()
        with torch.no_grad():
            for tensor, values in zip(model.parameters(), parameters, strict=True):
                tensor.copy_(torch.tensor(values).view(tensor.shape))
            losses = [CLASSIFICATION.losses(model(x), y) for x, y in self._test_batches()]
        return float(torch.cat(losses).mean())

    def _test_batches(self) -> list[tuple[Inputs, Tensor]]:
        return list(device_data(self.data, PreprocessingConfig(), SEED, CPU).test_batches(FORWARD_BATCH))


@dataclass(frozen=True)
class PeerResult:
    """Result of a contender's process.

    Attributes
    ----------
    seconds, examples : wall seconds of each round, and the examples that it trained on
    loss : test loss after the last round
    parameters : model after the last round, float32 (N,)
    """

    seconds: list[float]
    examples: list[int]
    loss: float
    parameters: NDArray[np.float32]


def result_of(
    run: PeerRun, seconds: list[float], examples: list[int], parameters: list[NDArray[np.float32]]
) -> PeerResult:
    """Result of a run that ends with these parameters, one array a tensor."""
    return PeerResult(
        seconds, examples, run.test_loss(parameters), np.concatenate([part.ravel() for part in parameters])
    )


def read_run(path: Path) -> PeerRun:
    """Read the run that a contender's process carries out."""
    values = json.loads(path.read_text(encoding="utf-8"))
    return PeerRun(**values | {"task": PeerTask(**values["task"])})


def write_run(path: Path, run: PeerRun) -> None:
    """Write a run for a contender's process."""
    path.write_text(json.dumps(asdict(run)), encoding="utf-8")


def read_result(path: Path) -> PeerResult:
    """Read the result of a contender's process."""
    with np.load(path, allow_pickle=False) as arrays:
        return PeerResult(
            arrays["seconds"].tolist(), arrays["examples"].tolist(), float(arrays["loss"]), arrays["parameters"]
        )


def write_result(path: Path, result: PeerResult) -> None:
    """Write a result for the bench."""
    with path.open("wb") as file:
        np.savez(file, allow_pickle=False, **vars(result))
