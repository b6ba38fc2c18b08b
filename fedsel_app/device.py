"""Where tensors live."""

import torch

from fedsel_app.config import ConfigError


def choose_device(name: str) -> torch.device:
    """The device that the `device` setting asks for; `auto` takes CUDA, else MPS, else the CPU.

    Raises
    ------
    ConfigError
        If this machine does not have it.
    """
    present = {"cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available(), "cpu": True}
    if name == "auto":
        return torch.device(next(kind for kind, there in present.items() if there))
    if not present[name]:
        raise ConfigError(f"The 'device' parameter asks for {name}, which this machine does not have; set it to auto.")
    return torch.device(name)
