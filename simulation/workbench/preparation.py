"""Preparation of a warm starter: imports everything that a run in one process needs, and loads its data set."""

from collections.abc import Mapping
from contextlib import suppress

import torch

# `fedsel run` imports these only when it needs them.
from fedsel_app.config import ConfigError, DataConfig, Value
from fedsel_app.data.dataset import load

# Child processes do not inherit the threads of a pool, and would wait for them forever.
torch.set_num_threads(1)


def prepare(data: Mapping[str, Value], seed: int) -> None:
    """Load a data set of fedsel. Others are loaded by code that may start threads."""
    config = DataConfig.from_values(data)
    if ":" not in config.data and not config.from_datasets:
        with suppress(ConfigError):  # the run reports the error
            load(config, seed)
