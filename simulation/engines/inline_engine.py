"""Inline engine: one simulated run in this process, whose clients answer one after the other; no Ray, no workers."""

import logging
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from simulation.experiments.configuration import AppConfig
from simulation.federations.inline import Inline
from simulation.wiring.folders import INTERRUPTED, discard_states, run_folder, stop_sentence
from simulation.wiring.preflight import refuse_unrunnable
from simulation.wiring.server import run_with


def simulate(config: AppConfig, on_round: Callable[[dict[str, Any]], None], *, verbose: bool = False) -> Path:
    """Simulate a run to its end, or with `resume` go on from its last checkpoint; return the run folder.

    `on_round` is called with the record of each finished round. Ctrl-C ends the run between two steps of a client, and
    raises SystemExit after a sentence that says how to go on. Errors of the server are raised here.
    """
    refuse_unrunnable(config)
    if not verbose:
        logging.getLogger("flwr").setLevel(logging.CRITICAL)
    folder = run_folder(config)
    config = replace(config, records=replace(config.records, out=str(folder), state_dir=str(folder)))
    try:
        run_with(Inline(config), config, on_round)
    except KeyboardInterrupt:
        sys.stderr.write(stop_sentence("Interrupted", folder))
        raise SystemExit(INTERRUPTED) from None
    discard_states(folder)
    return folder
