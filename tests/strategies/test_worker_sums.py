"""Sums of workers: the bits of updates that are sent one by one, for any number of workers and order of replies."""

import random
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from fedsel_app.messages.instructions import TrainInstruction
from fedsel_app.records.files import RunFailed
from fedsel_app.wiring.configuration import resolve
from fedsel_app.wiring.server import run_with
from simulation.engines.inline_engine import Inline
from strategies.base import SelectionStrategy
from strategies.roster import Selection
from strategies.round.federation import ALL, NodeError, Reply
from tests.support.client_messages import NORMED
from tests.support.rounds import read_rows, without_wall

BASE = {"clients": 8, "cohort": 6, "rounds": 3, "local-steps": 3, "batch-size": 8, "device": "cpu"}
WHOLE = BASE | {"strategy": "random", "compressor": "none"}
SUMMED = {
    "random": WHOLE,
    "one data set much larger": WHOLE | {"weighting": "examples", "alpha": 0.05},
    "error feedback": BASE | {"strategy": "power-of-choice", "compressor": "top-k"},
    "seeded and rounded": BASE | {"strategy": "random", "compressor": "rand-k", "value-bits": 8},
    "common entries": BASE | {"strategy": "random", "compressor": "common-k"},
    "learns": BASE | {"strategy": "oort"},
    "aggregate alone": WHOLE
    | {"strategy": "hetero-select", "hetero-select.diversity-weight": 0.0, "weighting": "examples"},
    "scaffold": WHOLE | {"solver": "scaffold"},
    "feddyn": WHOLE | {"solver": "feddyn", "server-optimizer": "mean"},
    "fednova": WHOLE | {"solver": "fednova", "local-steps": 0, "local-epochs": 1},
    "statistics": WHOLE | {"model": NORMED, "calibration-form": "training"},
    "refused": WHOLE | {"max-update-norm": 1.0},
    "refused by scaffold": WHOLE | {"max-update-norm": 1.0, "solver": "scaffold"},
    "refused with error feedback": BASE | {"strategy": "random", "compressor": "top-k", "max-update-norm": 1.0},
    "adaptive": WHOLE | {"server-optimizer": "fedyogi", "server-lr": 0.1},
}
SINGLE = {
    "method": WHOLE | {"strategy": "adafl"},
    "last updates": WHOLE | {"strategy": "divfl"},
    "aggregation": WHOLE | {"aggregation": "median"},
    "estimates": BASE | {"strategy": "random", "compressor": "top-k", "error-feedback-scheme": "ef21"},
    "policy": WHOLE | {"participation": "isp", "isp-form": "code", "holdout-fraction": 0.2},
    "waiting": WHOLE | {"waiting": "buffered"},
    "failures": WHOLE | {"client-failure-rate": 0.3},
    "over-selection": WHOLE | {"over-selection": 0.3},
    "deadline": WHOLE | {"round-deadline-s": 9.0},
    "zero weights": WHOLE | {"strategy": "tests.strategies.test_worker_sums:Unweighted"},
}


class Unweighted(SelectionStrategy):
    """The first clients, of which the first has the weight 0."""

    name, paper = "unweighted", "none"

    def select(self, roster, round_info, count, rng):
        return Selection(roster.ids[:count], weights=np.arange(count, dtype=np.float64))


class Workers(Inline):
    """So many workers with their own sums, which reply in a random order; with none, each client sends its update."""

    def __init__(self, config, workers, rng=None):
        super().__init__(config)
        self._workers, self._rng = workers, rng or random.Random(1)
        self.added = 0

    def ask(self, messages, until=ALL):
        if not self._workers:
            return super().ask([self.alone(message) for message in messages], until)
        drawn, answers = self._rng.sample(list(messages), len(messages)), {}
        for worker in range(self._workers):
            answers |= super().ask(drawn[worker :: self._workers], until)
        self.added += sum(isinstance(answer, Reply) and answer.sums is not None for answer in answers.values())
        return dict(self._rng.sample(list(answers.items()), len(answers)))

    def alone(self, message):
        asked = message.instruction
        return (
            replace(message, instruction=replace(asked, weight=0.0)) if isinstance(asked, TrainInstruction) else message
        )


def played(folder: Path, settings, federation=Workers, *, workers):
    """The rounds of a run, its final arrays, and the number of updates that came in sums."""
    config = resolve(settings | {"out": str(folder), "state-dir": str(folder / "state")})
    clients = federation(config, workers)
    run_with(clients, config, lambda row: None)
    with np.load(folder / "model.npz") as arrays:
        return without_wall(read_rows(folder)), {name: array.tobytes() for name, array in arrays.items()}, clients.added


@pytest.mark.parametrize("name", SUMMED)
def test_workers_add_up_to_the_same_bits(name, tmp_path):
    *single, none = played(tmp_path / "single", SUMMED[name], workers=0)
    assert none == 0
    *found, added = played(tmp_path / "workers", SUMMED[name], workers=3)
    assert found == single
    assert added == sum(len(row["selected"]) for row in single[0])
    assert any(row["failures"] for row in single[0]) == name.startswith("refused")


@pytest.mark.parametrize("name", SINGLE)
def test_a_round_that_needs_single_updates_gets_them(name, tmp_path):
    _, _, added = played(tmp_path, SINGLE[name], workers=2)
    assert added == 0


class Forgetful(Workers):
    """Workers that cannot repeat a training."""

    def ask(self, messages, until=ALL):
        answers = super().ask(messages, until)
        trained = [message for message in messages if isinstance(message.instruction, TrainInstruction)]
        again = [message.node for message in trained if not message.instruction.weight]
        return answers | {node: NodeError(node, "it forgot") for node in again}


def test_a_refused_update_that_cannot_be_subtracted_ends_the_run(tmp_path):
    with pytest.raises(RunFailed, match=r"Resume the run. Client . was left out of round 1 .* it forgot"):
        played(tmp_path, SUMMED["refused"], Forgetful, workers=2)
