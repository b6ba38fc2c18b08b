"""Preparation of a warm server: imports everything that a run in one process needs, and loads its data set."""

from collections.abc import Mapping
from contextlib import suppress

import torch

# `fedsel run` imports these only when it needs them.
import simulation.engines.inline_engine
import simulation.report.progress
import simulation.report.run_report  # noqa: F401
from fedsel_app.config import ConfigError, Value
from fedsel_app.data.dataset import LOADERS, load
from fedsel_app.wiring.configuration import resolve

# Child processes do not inherit the threads of a pool, and would wait for them forever.
torch.set_num_threads(1)


def prepare(values: Mapping[str, Value]) -> None:
    """Load the data set of the settings `values`; not a user's own data set, whose code may start threads."""
    config = resolve(values)
    if config.data.data in LOADERS:
        with suppress(ConfigError):  # the run reports the error
            load(config.data, config.run.seed)
