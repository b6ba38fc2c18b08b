"""Choice of the engine: this process or Ray, from the settings alone, before anything starts.

The setting `auto` chooses Ray for runs that only Ray can do, for runs with `workers`, and if several cores share at
least `MANY_UPDATES` client updates (rounds x cohort) and at least one per client. Every other run is inline.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch

from fedsel_app.config import ConfigError
from fedsel_app.models.device import choose_device
from fedsel_app.wiring.configuration import AppConfig
from fedsel_app.wiring.validation import validate_simulated_links
from simulation.engines.cores import usable_cores

MANY_UPDATES = 500
"""Number of client updates from which a run probably saves more than the dozen seconds that Ray needs to start."""


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
    updates, cores = config.run.rounds * config.run.cohort, cores or usable_cores()
    if updates < max(MANY_UPDATES, config.run.clients):
        return Choice("inline", f"{updates:,} client updates are too few to start Ray for")
    if cores == 1:
        return Choice("inline", "one core is to do the work")
    return Choice("ray", f"{cores} cores share {updates:,} client updates")
