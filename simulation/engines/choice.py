"""Choice of the engine: this process or Ray, before anything starts.

The setting `auto` chooses Ray for runs that only Ray can do, for runs with `workers`, and if Ray probably saves time:
it shares the local training among cores, but needs `START_S` to start, and `MESSAGE_S` for each message to a client.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch

from fedsel_app.config import ConfigError
from fedsel_app.data.dataset import load
from fedsel_app.models.device import choose_device
from fedsel_app.wiring.configuration import AppConfig
from fedsel_app.wiring.validation import validate_simulated_links
from simulation.engines.preflight import model_cost
from simulation.engines.this_process import usable_cores

START_S, MESSAGE_S = 12.0, 0.02
"""Seconds that Ray needs to start, and for a message to a client beyond those that this process needs."""
STEP_S, OPERATIONS_PER_S = 1e-4, 1.2e10
"""Seconds of a local step of the smallest model, and operations of a larger one in a second. Measured on one thread."""
PASSES = 3
"""Forward passes that are as long as one mini-batch's forward and backward pass."""


@dataclass(frozen=True)
class Choice:
    """Engine of a run, "inline" or "ray", and the reason for the choice as part of a sentence."""

    engine: str
    reason: str

    def __str__(self) -> str:
        return f"{self.engine}, as {self.reason}"

    @property
    def simulate(self) -> Callable[..., Path]:
        """The engine's function `simulate`."""
        if self.engine == "inline":
            from simulation.engines.inline_engine import simulate
        else:
            from simulation.engines.ray_engine import simulate
        return simulate


def choose(config: AppConfig, cores: int | None = None) -> Choice:
    """Choose the engine of a run that may use `cores` cores; by default all cores that this process may use.

    Raises ConfigError if the links are to be measured, and the setting is the inline engine or the server does not
    wait.
    """
    validate_simulated_links(config)
    execution, measured = config.execution, config.network.links == "measured"
    if execution.engine == "inline" and measured:
        raise ConfigError(
            "The 'engine' inline lets clients answer one after the other, so nothing can be measured of their links: "
            "set 'links' to simulated, or 'engine' to ray."
        )
    if execution.engine != "auto":
        return Choice(execution.engine, "'engine' says so")
    if execution.workers:
        return Choice("ray", "'workers' is set")
    if measured:
        return Choice("ray", "'links' is measured")
    if execution.client_gpus:
        return Choice("ray", "'client-gpus' is set")
    if choose_device(execution.device).type == "cuda" and (gpus := torch.cuda.device_count()) > 1:
        return Choice("ray", f"there are {gpus} GPUs")
    if (cores := cores or usable_cores()) == 1:
        return Choice("inline", "one core is to do the work")
    training_s, saved_s = estimate(config, cores)
    if saved_s <= 0:
        return Choice("inline", f"Ray would save too little of {training_s:,.0f} s of local training")
    return Choice("ray", f"{cores} cores share about {training_s:,.0f} s of local training")


def estimate(config: AppConfig, cores: int) -> tuple[float, float]:
    """Seconds of local training of a run on one core, and those that Ray saves on `cores`; below 0 it loses them.

    Raises ConfigError if there are no data, or no model for them.
    """
    run, training, (_, operations) = config.run, config.training, model_cost(config)
    examples = len(load(config.data, run.seed).y_train) // run.clients
    step_s = STEP_S + PASSES * training.batch_size * operations / OPERATIONS_PER_S
    updates = run.rounds * run.cohort
    training_s = updates * training.steps(max(examples, 1)) * step_s
    messages_s = MESSAGE_S * (updates + run.clients)  # each client is enrolled once
    return training_s, training_s * (1 - 1 / min(cores, run.cohort)) - messages_s - START_S
