"""What both engines do around a simulated run: checks before it starts, its folders, and the end of its states."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from fedsel_app.wiring.configuration import AppConfig
from fedsel_app.wiring.server import run_folder
from simulation.engines.preflight import refuse_unrunnable
from simulation.engines.run_folders import discard_states


@contextmanager
def simulated_run(config: AppConfig, *, verbose: bool) -> Iterator[tuple[AppConfig, Path]]:
    """Check a run before anything starts; give its configuration and its run folder, where its clients keep their
    states. The states of a finished run are removed, unless they have layers of the model. Without `verbose`, Flower
    logs critical lines only.

    Raises ConfigError if the run would fail later.
    """
    refuse_unrunnable(config)
    if not verbose:
        logging.getLogger("flwr").setLevel(logging.CRITICAL)
    folder = run_folder(config)
    yield replace(config, records=replace(config.records, out=str(folder), state_dir=str(folder))), folder
    if not config.calibration.local:
        discard_states(folder)
