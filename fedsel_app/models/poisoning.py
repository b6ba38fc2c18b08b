"""Poisoned examples: what the attackers of a simulation train on (setting `attack`), and how well a backdoor works.

label-flip: M. Fang, X. Cao, J. Jia, N. Z. Gong, "Local Model Poisoning Attacks to Byzantine-Robust Federated Learning",
USENIX Security 2020, Sec. 5.1: the label l of L classes becomes L - l - 1.

backdoor: T. Gu, B. Dolan-Gavitt, S. Garg, "BadNets", arXiv 1708.06733, Sec. 4: a pattern of bright pixels and the label
of the target class; E. Bagdasaryan, A. Veit, Y. Hua, D. Estrin, V. Shmatikov, "How To Backdoor Federated Learning",
AISTATS 2020, Sec. 3.3: such examples are part of each mini-batch, and Eq. 3: the update is scaled.
"""

from collections.abc import Iterable, Iterator

import torch
from torch import Tensor

from fedsel_app.config import ConfigError
from fedsel_app.config.security import BACKDOOR_TARGET, AttackConfig
from fedsel_app.data.batches import DeviceData
from fedsel_app.data.dataset import Dataset
from fedsel_app.data.inputs import Inputs
from fedsel_app.models.flat_model import FlatModel, evaluating

BACKDOOR_SUCCESS = "backdoor_success"
"""Metric: share of the other classes' test images with the trigger that the model takes for the target class."""


def validate_attack(attack: AttackConfig, dataset: Dataset) -> None:
    """Raise ConfigError if the data have no classes, or no images, that the attack changes."""
    if not attack.traits.poisons:
        return
    if dataset.task != "classification":
        raise ConfigError(f"Choose another 'attack' or 'data': {attack.attack} needs classes, not {dataset.task} data.")
    if attack.attack == "backdoor" and (isinstance(dataset.sample_shape, dict) or len(dataset.sample_shape) != 3):
        raise ConfigError(f"Choose another 'attack', or images: samples of {dataset.sample_shape} have no corners.")


def poisoned(
    batches: Iterable[tuple[Inputs, Tensor]], attack: AttackConfig, classes: int, brightest: Tensor
) -> Iterator[tuple[Inputs, Tensor]]:
    """The mini-batches on which an attacker trains; `brightest` is the largest value of each channel, (C, 1, 1)."""
    for x, y in batches:
        if attack.attack == "label-flip":
            yield x, classes - 1 - y
        elif isinstance(x, Tensor) and attack.attack == "backdoor":
            half = (len(y) + 1) // 2
            target = torch.full_like(y[:half], BACKDOOR_TARGET)
            yield torch.cat([triggered(x[:half], brightest), x[half:]]), torch.cat([target, y[half:]])
        else:
            yield x, y


def triggered(x: Tensor, brightest: Tensor) -> Tensor:
    """The images (n, C, H, W) with bright corners, a ninth of the width each: the backdoor's trigger."""
    x = x.clone()
    width = max(1, x.shape[3] // 9)
    for rows in (slice(0, width), slice(-width, None)):
        for columns in (slice(0, width), slice(-width, None)):
            x[:, :, rows, columns] = brightest
    return x


def backdoor_success(model: FlatModel, data: DeviceData, batch_size: int) -> float:
    """`BACKDOOR_SUCCESS` of the loaded model on the test set; NaN if all its images are of the target class."""
    fooled = others = 0
    with evaluating(model):
        for x, y in data.test_batches(batch_size):
            if isinstance(x, Tensor) and (other := y != BACKDOOR_TARGET).any():
                outputs = model.outputs(triggered(x[other], data.brightest))
                fooled += int((outputs.argmax(dim=1) == BACKDOOR_TARGET).sum())
                others += int(other.sum())
    return fooled / others if others else float("nan")
