"""Trained model of a run, as a torch module, and the test set that it was scored on."""

from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor, nn

from fedsel_app.config import ConfigError, Value
from fedsel_app.data.batches import device_data
from fedsel_app.data.dataset import load
from fedsel_app.models import flat_model
from fedsel_app.models.tasks import task_of
from fedsel_app.npz import NpzError, read_arrays
from simulation.experiments.configuration import AppConfig
from simulation.flower_app.settings import OWN_APP


def trained_model(path: Path, settings: Mapping[str, Value]) -> nn.Module:
    """Build the model of a run with these `settings` and the parameters in the file `path`: on the CPU, in eval mode.

    Raises
    ------
    ConfigError
        If the file is absent or damaged, the data set cannot be had, or the model is one of a user's own Flower app.
    """
    config, device = _config(settings), torch.device("cpu")
    try:
        with path.open("rb") as file:
            arrays = read_arrays(file)
    except FileNotFoundError as error:
        raise ConfigError(f"There is no {path} yet: the run is not finished.") from error
    except (NpzError, OSError) as error:
        raise ConfigError(f"The model {path} cannot be read: {error}.") from error
    dataset = load(config.data, config.run.seed)
    module = flat_model.build(config.run.model, dataset.sample_shape, dataset.classes, config.run.seed)
    model = flat_model.FlatModel(module, device, task_of(dataset, device))
    model.load(arrays["parameters"], arrays["buffers"])
    return model.module.eval()


def test_data(settings: Mapping[str, Value]) -> tuple[Tensor, Tensor]:
    """Samples of the server's test set, normalised as the model takes them, and their targets. Raises ConfigError."""
    config, device = _config(settings), torch.device("cpu")
    examples = len(load(config.data, config.run.seed).y_test)
    [batch] = device_data(config.data, config.preprocessing, config.run.seed, device).test_batches(examples)
    return batch


def _config(settings: Mapping[str, Value]) -> AppConfig:
    if settings.get("data") == OWN_APP:
        raise ConfigError("Model and data of this run are those of a Flower app of your own: load its model.npz there.")
    return AppConfig.from_values(settings)
