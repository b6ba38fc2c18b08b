"""Common entries: common-k beside top-k at equal bytes and beside no compression, for docs/methods.md.

``python -m laboratory.bench.common_entries TASK FILE.npz SEEDS [SIDE]`` carries out the runs of one task that are
missing in `common_entries.csv`, and then prints the table of all tasks. TASK is digits, fashion or cifar10; FILE.npz
has x_train, y_train, x_test, y_test ("-" for the digits), of which 10,000 and 2,000 images are drawn; SEEDS are as in
1-10; SIDE is a part of the names of the sides to run.

20 clients, Dirichlet 0.3, 10 uniform ones a round, plain SGD with batches of 32, the server takes the mean by examples.
The accuracy at the end is the mean of the last three evaluations, which are five rounds apart.
"""

import csv
import logging
import sys
import tempfile
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from torch import nn

from fedsel_app.records.files import read_arrays
from fedsel_app.seeds import Purpose, stream
from fedsel_app.wiring.configuration import resolve
from fedsel_app.wiring.server import run_with
from simulation.engines.inline_engine import Inline

OUT = Path(__file__).with_suffix(".csv")
FIELDS = ("task", "side", "seed", "parameters", "rounds", "bytes", "middle", "end")
TRAIN, TEST, LAST = 10_000, 2_000, 3
BASE: dict[str, Any] = {"strategy": "random", "clients": 20, "cohort": 10, "alpha": 0.3, "server-optimizer": "mean"}
BASE |= {"batch-size": 32, "solver": "sgd", "momentum": 0.0, "lr-decay": 0.0, "weight-decay": 0.0, "clip-norm": 0.0}
BASE |= {"device": "cpu", "threads": 1, "eval-every": 5, "checkpoint-every": 0}
TASKS: dict[str, dict[str, Any]] = {
    "digits": {"data": "digits", "model": "mlp", "local-steps": 10, "lr": 0.1, "rounds": 60},
    "fashion": {"data": "npz", "model": "mlp", "local-steps": 10, "lr": 0.1, "rounds": 60},
    "cifar10": {
        "data": "npz",
        "model": "laboratory.bench.common_entries:small",
        "local-steps": 10,
        "lr": 0.1,
        "rounds": 80,
    },
}
CONSTANT: dict[str, Any] = {"kept-warmup-rounds": 0, "kept-cosine": 0.0, "kept-floor": 0.0}
OWN = CONSTANT | {"allocation": "uniform", "link-cap": "none"}
COMMON = CONSTANT | {"compressor": "common-k"}
SIDES: dict[str, dict[str, Any]] = {
    "none": {"compressor": "none"},
    "top-k 5.9%, 16 bits": OWN
    | {"compressor": "top-k", "kept-fraction": 0.059, "value-bits": 16, "curvature-layers": 0},
    "common-k 8%, 16 bits": COMMON | {"kept-fraction": 0.08},
    "common-k 16%, 8 bits": COMMON | {"kept-fraction": 0.16, "ring-bits": 8},
    "common-k 21%, 6 bits": COMMON | {"kept-fraction": 0.213, "ring-bits": 6},
    "common-k 16%, residual x 0.8": COMMON
    | {"kept-fraction": 0.16, "ring-bits": 8, "residual-decay": "static", "residual-decay-static": 0.8},
    "common-k all, 8 bits": COMMON | {"kept-fraction": 1.0, "ring-bits": 8},
}


def small(sample_shape: tuple[int, ...], outputs: int) -> nn.Module:
    """Two convolutions with a stride of 2, and a linear layer: 22,058 parameters for CIFAR-10."""
    convolutions = nn.Conv2d(sample_shape[0], 16, 5, 2), nn.ReLU(), nn.Conv2d(16, 32, 5, 2), nn.ReLU()
    return nn.Sequential(*convolutions, nn.Flatten(), nn.Linear(32 * 5 * 5, outputs))


def drawn(source: Path, folder: Path) -> Path:
    """A file with some of the images of `source`, always the same."""
    rng = stream(0, Purpose.DATA)
    with source.open("rb") as file:
        arrays: dict[str, Any] = read_arrays(file)
    for part, count in (("train", TRAIN), ("test", TEST)):
        places = np.sort(rng.choice(len(arrays[f"y_{part}"]), count, replace=False))
        arrays |= {f"{name}_{part}": arrays[f"{name}_{part}"][places] for name in "xy"}
    np.savez(folder / "drawn.npz", **arrays)
    return folder / "drawn.npz"


def measured(settings: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """Numbers of a run: bytes that a client sends for each parameter, and accuracies."""
    config = resolve(dict(settings) | {"out": str(folder / "run"), "state-dir": str(folder / "states")})
    rows: list[dict[str, Any]] = []
    run_with(Inline(config), config, rows.append)
    scores = [row["accuracy"] for row in rows if row.get("accuracy") is not None]
    with np.load(folder / "run" / "model.npz") as model:
        size = sum(model[name].size for name in model)
    sent = sum(row["uplink_bytes"] for row in rows) / sum(row["client_updates"] for row in rows) / size
    middle, end = (np.mean(part[-LAST:]) for part in (scores[: len(scores) // 2], scores))
    return {
        "parameters": size,
        "rounds": len(rows),
        "bytes": f"{sent:.4f}",
        "middle": f"{middle:.4f}",
        "end": f"{end:.4f}",
    }


def read_rows() -> list[dict[str, str]]:
    """The measured runs."""
    if not OUT.exists():
        return []
    with OUT.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def table() -> str:
    """Mean accuracies of each task and side, with the differences from no compression, paired by seed."""
    runs: dict[tuple[str, str], dict[str, dict[str, str]]] = defaultdict(dict)
    for row in read_rows():
        runs[row["task"], row["side"]][row["seed"]] = row
    lines = [
        "| task | sent | seeds | bytes a parameter | in the middle | at the end | points less than none |",
        "|---|" + "---|" * 6,
    ]
    for task, side in ((task, side) for task in TASKS for side in SIDES if (task, side) in runs):
        rows, whole = runs[task, side], runs[task, "none"]
        pairs = np.array([float(whole[seed]["end"]) - float(row["end"]) for seed, row in rows.items() if seed in whole])
        sent, middle, end = (
            np.mean([float(row[name]) for row in rows.values()]) for name in ("bytes", "middle", "end")
        )
        lost = "" if side == "none" or not pairs.size else f"{100 * pairs.mean():.1f}"
        if lost and pairs.size > 1:
            lost += f" ± {100 * pairs.std(ddof=1) / np.sqrt(pairs.size):.1f}"
        lines.append(f"| {task} | {side} | {len(rows)} | {sent:.2f} | {middle:.3f} | {end:.3f} | {lost} |")
    return "\n".join(lines)


def main(task: str, source: str, seeds: str, part: str = "") -> None:
    """Carry out the missing runs of a task, and print the table."""
    logging.disable(logging.WARNING)
    first, last = map(int, seeds.split("-"))
    with tempfile.TemporaryDirectory() as name:
        own = {} if source == "-" else {"data-path": str(drawn(Path(source), Path(name)))}
        for seed in range(first, last + 1):
            for side, settings in ((side, settings) for side, settings in SIDES.items() if part in side):
                if any((row["task"], row["side"], row["seed"]) == (task, side, str(seed)) for row in read_rows()):
                    continue
                with tempfile.TemporaryDirectory() as folder:
                    found = measured(BASE | TASKS[task] | settings | own | {"seed": seed}, Path(folder))
                begun = OUT.exists()
                with OUT.open("a", newline="", encoding="utf-8") as file:
                    writer = csv.DictWriter(file, FIELDS, lineterminator="\n")
                    if not begun:
                        writer.writeheader()
                    writer.writerow({"task": task, "side": side, "seed": seed} | found)
    sys.stdout.write(table() + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
