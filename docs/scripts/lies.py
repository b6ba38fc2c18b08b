"""Table of docs/security.md: what one liar costs where its numbers have a bound.

`python docs/scripts/lies.py DATA.npz` (Fashion-MNIST; without it digits) carries out the runs from a checkout, in about
ten minutes for each data set, and prints the table.
"""

import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from torch import nn

from fedsel_app.messages.instructions import CalibrateInstruction
from tests.attacks.test_moving_bounds import accuracies
from tests.attacks.test_robust_rules import lying, scaled
from tests.support.in_process import ReplyHook
from tests.support.stubs import as_sent, round_of

SEEDS, ROUNDS, LIAR = range(1, 6), 12, 0
HIDDEN = 64
SETTINGS = {"strategy": "random", "rounds": ROUNDS, "local_steps": 10, "eval_every": ROUNDS, "device": "cpu"}
NORMED = {"model": "docs.scripts.lies:normed"}


def normed(sample_shape: tuple[int, ...], classes: int) -> nn.Module:
    """A perceptron with BatchNorm."""
    layers = nn.Linear(int(np.prod(sample_shape)), HIDDEN), nn.BatchNorm1d(HIDDEN), nn.ReLU()
    return nn.Sequential(nn.Flatten(), *layers, nn.Linear(HIDDEN, classes))


def false_statistics(values: np.ndarray) -> ReplyHook:
    """The liar sends these `values` as its statistics, in calibrations and beside its updates."""

    def on_fit(client: int, message: Any, reply: Any) -> Any:
        calibrates = isinstance(message.instruction, CalibrateInstruction)
        if client != LIAR or not (calibrates or len(reply.tensors) > 1):
            return reply
        return replace(reply, tensors=[*reply.tensors[:-1], *as_sent(values.astype(np.float32))])

    return on_fit


def alone(client: int, message: Any, reply: Any) -> Any:
    """Only the liar replies in round 3, and since then its update is x -1e6."""
    lost = client != LIAR and round_of(message) == 3
    return replace(reply, metrics={}) if lost else lying(scaled(-1e6), {LIAR}, since=3)(client, message, reply)


SIGNS = np.random.default_rng(0).choice([-1e6, 1e6], HIDDEN)
FALSE = [false_statistics(np.full(2 * HIDDEN, 1e6)), false_statistics(np.append(SIGNS, np.zeros(HIDDEN)))]
ROWS: Mapping[str, tuple[Mapping[str, object], list[ReplyHook]]] = {
    "calibrated statistics": (NORMED, FALSE),
    "statistics of local training": (NORMED | {"calibration_form": "training"}, FALSE),
    "its update": ({"model": "logistic"}, [lying(scaled(-1e6), {LIAR})]),
    "its update, alone in round 3": ({"model": "logistic"}, [alone]),
}


def last(settings: Mapping[str, object], hook: ReplyHook | None) -> float:
    """Accuracy at the end of a run."""
    with TemporaryDirectory() as folder:
        scores, _ = accuracies(Path(folder), hook or (lambda client, message, reply: reply), **settings)
    return float(scores[-1])


def main() -> None:
    """Print the rows."""
    data = {"data": "npz", "data_path": sys.argv[1]} if sys.argv[1:] else {}
    for name, (own, lies) in ROWS.items():
        for clients in (5, 10):
            settings = [SETTINGS | data | own | {"clients": clients, "cohort": clients, "seed": seed} for seed in SEEDS]
            honest = np.array([last(each, None) for each in settings])
            lied = np.array([[last(each, lie) for each in settings] for lie in lies])
            worst = 100.0 * (honest - lied).max()
            print(
                f"| {name} | {clients} | {honest.mean():.3f}, {lied.mean(axis=1).min():.3f} ({worst:.1f}) |", flush=True
            )


if __name__ == "__main__":
    main()
