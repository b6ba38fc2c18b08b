"""Table of docs/clock.md: how methods fill the free places of a server that does not wait for its cohort.

`python docs/scripts/places.py` carries out the runs, in about ten minutes, and prints the table.
"""

from itertools import chain
from tempfile import TemporaryDirectory

import numpy as np

from fedsel_app.config import ConfigError
from simulation.workbench.python_interface.runs import run
from strategies import STRATEGIES

SEEDS, UPDATES, COHORT = range(1, 4), 120, 6
SETTINGS = {"clients": 24, "cohort": COHORT, "alpha": 0.1, "local-steps": 10, "compressor": "none", "engine": "inline"}
SETTINGS |= {"clock": "full", "spread": "log-normal", "weighting": "uniform", "server-optimizer": "mean"}


def measured(strategy: str, places: int) -> tuple[float, float]:
    """Distinct clients in the second half of the selections, and the accuracy of the last quarter; means over seeds."""
    waiting = {"waiting": "buffered", "buffer-size": places} if places < COHORT else {}
    values = []
    for seed in SEEDS:
        with TemporaryDirectory() as out:
            own = {"seed": seed, "out": out, "rounds": UPDATES // places, "settings": SETTINGS | waiting}
            rows = run(strategy, **own, progress=False).rounds
        selected = list(chain.from_iterable(rows["selected"]))
        values.append((len(set(selected[len(selected) // 2 :])), rows["accuracy"][-(len(rows) // 4) :].mean()))
    clients, accuracy = np.mean(values, axis=0)
    return float(clients), float(accuracy)


def main() -> None:
    """Print the rows of the table, `random` first."""
    ways = COHORT, 2, 1
    random = [measured("random", places)[1] for places in ways]
    for strategy in STRATEGIES:
        cells = []
        for places, base in zip(ways, random, strict=True):
            try:
                clients, accuracy = measured(strategy, places)
                cells.append(f"{clients:.0f}, {100 * (accuracy - base):+.1f}")
            except ConfigError:
                cells.append("refused")
        print(f"| `{strategy}` | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
