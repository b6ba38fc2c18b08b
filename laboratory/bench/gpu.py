"""Bench `gpu`: what one GPU could do otherwise, and fedsel beside pfl-research on it.

The first table has a cohort of a small model, client by client and as one batch (`torch.func.vmap`), and top-k with a
residual, on the host and on the device. Both ways must have the same numbers. The second is that of
bench `peers` with several workers on the card. It fits into ten minutes. `--device cpu` does the same
without a GPU.
"""

import argparse
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table
from torch import Tensor
from torch.func import functional_call, grad, vmap
from torch.nn import functional

from clients.compressors import top_indices
from clients.local_training import train
from fedsel_app.config import TrainingConfig
from fedsel_app.data.inputs import Inputs
from fedsel_app.models.building import build
from fedsel_app.models.device import choose_device, prepare
from fedsel_app.models.flat_model import FlatModel
from fedsel_app.wire.indices import kept_count
from laboratory.bench import peers
from simulation.operations.deployment.flower_cli import DeploymentError

MODELS = {"logistic": (1, 28, 28), "laboratory.bench.peer_tasks:lenet": (3, 32, 32)}
"""Small models, and the images that they take."""
CLASSES, BATCH, LR, KEPT = 10, 32, 0.05, 0.1
TOLERANCE = 1e-3
"""Share of the change of the weights by which the batch may differ from the loop after a step: float32 sums in another
order. Later steps magnify it."""

Vector = NDArray[np.float32]


def batches_of(shape: tuple[int, ...], clients: int, steps: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """Mini-batches of each client: images (clients, steps, BATCH, ...) and classes, on the device."""
    drawn = torch.Generator().manual_seed(1)
    x = torch.randn((clients, steps, BATCH, *shape), generator=drawn)
    y = torch.randint(CLASSES, (clients, steps, BATCH), generator=drawn)
    return x.to(device), y.to(device)


def by_loop(model: FlatModel, start: Vector, x: Tensor, y: Tensor) -> Vector:
    """Weights of each client after its steps of SGD, one client after the other as fedsel trains: (clients, N)."""
    config, ends = TrainingConfig(momentum=0.0, clip_norm=0.0, solver="sgd"), list[Vector]()
    for inputs, labels in zip(x, y, strict=True):
        model.load(start, np.zeros(0, np.float32))
        steps: list[tuple[Inputs, Tensor]] = list(zip(inputs, labels, strict=True))
        train(model, steps, config, LR)
        ends.append(model.export())
    return np.stack(ends)


def by_vmap(model: FlatModel, start: Vector, x: Tensor, y: Tensor) -> Vector:
    """The same for all clients as one batch: each weight has a first axis for the clients."""
    model.load(start, np.zeros(0, np.float32))
    model.module.train()
    names = [name for name, weight in model.module.named_parameters() if weight.requires_grad]
    weights = [dict(model.module.named_parameters())[name] for name in names]
    stacked = {
        name: each.detach().expand(len(x), *each.shape).clone() for name, each in zip(names, weights, strict=True)
    }

    def loss(weights: dict[str, Tensor], inputs: Tensor, labels: Tensor) -> Tensor:
        return functional.cross_entropy(functional_call(model.module, weights, (inputs,)), labels)

    gradients = vmap(grad(loss), randomness="different")
    for step in range(x.shape[1]):
        found = gradients(stacked, x[:, step], y[:, step])
        stacked = {name: weight - LR * found[name] for name, weight in stacked.items()}
    ends: Vector = torch.cat([weight.reshape(len(x), -1) for weight in stacked.values()], 1).cpu().numpy()
    return ends


def on_host(vector: Tensor, residual: Tensor) -> tuple[NDArray[Any], Vector]:
    """Places of the largest entries, and the residual, as clients compute them after a copy to the host."""
    whole = (vector + residual).cpu().numpy()
    kept = top_indices(np.square(whole), kept_count(KEPT, whole.size))
    rest = whole.copy()
    rest[kept] = 0.0
    return kept, rest


def on_device(vector: Tensor, residual: Tensor) -> tuple[NDArray[Any], Vector]:
    """The same on the device."""
    whole = vector + residual
    kept = torch.topk(whole.square(), kept_count(KEPT, whole.numel()), sorted=False).indices.sort().values
    whole[kept] = 0.0
    return kept.cpu().numpy(), whole.cpu().numpy()


def seconds(device: torch.device, repeats: int, call: Callable[[], Any]) -> float:
    """Shortest wall time of `repeats` calls after a first one, in which the device ends its work."""
    times = []
    for _ in range(repeats + 1):
        began = time.perf_counter()
        call()
        if device.type == "cuda":
            torch.cuda.synchronize()
        times.append(time.perf_counter() - began)
    return min(times[1:])


def cohort_row(name: str, clients: int, steps: int, repeats: int, device: torch.device) -> dict[str, Any]:
    """Seconds of a cohort by the loop and as one batch. Raises DeploymentError if their weights differ."""
    shape = MODELS[name]
    model = FlatModel(build(name, shape, CLASSES, seed=1), device)
    start, (x, y) = model.export(), batches_of(shape, clients, steps, device)
    looped, batched = (way(model, start, x[:, :1], y[:, :1]) for way in (by_loop, by_vmap))
    share = float(np.linalg.norm(looped - batched) / np.linalg.norm(looped - start))
    if not share <= TOLERANCE:
        raise DeploymentError(f"{name} as one batch differs from the loop by {share:.1e} of the change of its weights.")
    loop_s, batch_s = (seconds(device, repeats, partial(way, model, start, x, y)) for way in (by_loop, by_vmap))
    what = f"{name.rpartition(':')[2]}, {clients} clients: loop, one batch"
    return {"what": what, "first_s": loop_s, "second_s": batch_s}


def compression_row(size: int, repeats: int, device: torch.device) -> dict[str, Any]:
    """Seconds of top-k with a residual on the host and on the device. Raises DeploymentError if they differ."""
    drawn = torch.Generator().manual_seed(1)
    vector, residual = (torch.randn(size, generator=drawn).to(device) for _ in range(2))
    found = [way(vector, residual) for way in (on_host, on_device)]
    if not all(np.array_equal(one, other) for one, other in zip(*found, strict=True)):
        raise DeploymentError("Top-k on the device keeps other entries than on the host.")
    host_s, device_s = (seconds(device, repeats, partial(way, vector, residual)) for way in (on_host, on_device))
    return {"what": f"top-k of {size:,} entries: on the host, on the device", "first_s": host_s, "second_s": device_s}


def run(arguments: argparse.Namespace, console: Console) -> list[dict[str, Any]]:
    """Print both tables, and return their rows. Raises ConfigError if this machine lacks the device."""
    device, repeats = choose_device(arguments.device), arguments.repeats
    prepare(device, threads=1)
    rows = [cohort_row(name, arguments.clients, arguments.steps, repeats, device) for name in MODELS]
    rows.append(compression_row(arguments.size, repeats, device))
    table = Table("what", title=f"ms on {device}, the fastest of {repeats}")
    for heading in ("first", "second", "second of first"):
        table.add_column(heading, justify="right")
    for row in rows:
        first_s, second_s = row["first_s"], row["second_s"]
        table.add_row(row["what"], f"{1e3 * first_s:.1f}", f"{1e3 * second_s:.1f}", f"{second_s / first_s:.2f}")
    console.print(table)
    return rows + (peers.run(arguments, console) if arguments.tasks else [])
