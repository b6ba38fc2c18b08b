"""Model of a user: built by the function that the setting `model` names, and tried on two samples before training."""

import torch
from torch import Tensor, nn

from fedsel_app.config import ConfigError, plugins


def user_model(name: str, sample_shape: tuple[int, ...], classes: int) -> nn.Module:
    """Model that the function `name` ("package.module:function") builds for these samples and outputs.

    Raises
    ------
    ConfigError
        Where the function raises or returns no module, or the module does not fit the data.
    """
    model = plugins.call(name, "model", sample_shape, classes)
    if not isinstance(model, nn.Module):
        raise ConfigError(f"The function '{name}' must return a torch.nn.Module. Got {type(model).__name__}.")
    _refuse_misfit(model, name, sample_shape, classes)
    return model


def _refuse_misfit(model: nn.Module, name: str, sample_shape: tuple[int, ...], classes: int) -> None:
    """Raise ConfigError where a user's model does not take two samples, or has not `classes` outputs for each."""
    training = model.training
    try:
        with torch.no_grad():
            outputs = model.eval()(torch.zeros(2, *sample_shape))
    except Exception as error:
        raise ConfigError(
            f"The model '{name}' does not take samples of shape {sample_shape}, as this data set's are: "
            f"{plugins.described(error)}."
        ) from error
    model.train(training)
    shape = tuple(outputs.shape) if isinstance(outputs, Tensor) else ()
    if shape != (2, classes) and (shape, classes) != ((2,), 1):
        given = f"outputs of shape {shape}" if shape else f"a {type(outputs).__name__}"
        raise ConfigError(
            f"The model '{name}' gives {given} for two samples. This data set needs (2, {classes}): "
            f"{classes} outputs for each."
        )
