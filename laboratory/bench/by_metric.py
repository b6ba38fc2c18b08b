"""Selection by F1 (FLAD, the example of docs/method.md) beside random and Power-of-Choice, on a generated table.

``python -m laboratory.bench.by_metric SEEDS`` carries out the missing runs of `by_metric.csv`, SEEDS as in 1-10, and
prints the means. The table is `data_sets.traffic` with 12 sites. `rounds` is the first round after which the F1 of
the worst site on its own test part is at the target; FLAD selects on the same parts. `steps` and `seconds` are those up
to then, or of all rounds. FLAD gives 1 to 5 epochs, the others one; Power-of-Choice draws from all sites. Target,
rounds, learning rate and momentum were set after pilots on seed 0, and one on seed 1, which is among the ten.
"""

import csv
import json
import logging
import re
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from fedsel_app.wiring.configuration import resolve
from fedsel_app.wiring.server import run_with
from simulation.engines.inline_engine import Inline

OUT = Path(__file__).with_suffix(".csv")
PAGE = Path(__file__).parents[2] / "docs/method.md"
FIELDS = ("side", "seed", "rounds", "steps", "seconds", "worst", "mean")
SITES, TARGET, ROUNDS = 12, 0.7, 40
BASE: dict[str, Any] = {
    "data": "laboratory.data_sets.traffic:traffic",
    "model": "mlp",
    "partition": "natural",
    "clients": SITES,
}
BASE |= {"cohort": 6, "local-steps": 0, "local-epochs": 1, "holdout-fraction": 0.25, "client-eval": True}
BASE |= {"metrics": "f1-each", "compressor": "none", "server-optimizer": "mean", "solver": "sgd", "lr-decay": 0.0}
BASE |= {"lr": 0.1, "momentum": 0.0, "weighting": "uniform", "device": "cpu", "threads": 1, "checkpoint-every": 0}
BASE |= {"rounds": ROUNDS, "curvature-layers": 0}
SIDES: dict[str, dict[str, Any]] = {
    "flad": {"strategy": "flad:FLAD", "flad.metric": "f1-1"},
    "random": {"strategy": "random"},
    "power-of-choice": {"strategy": "power-of-choice", "power-of-choice.candidates": SITES},
}


def measured(side: str, seed: int, folder: Path) -> dict[str, Any]:
    """Rounds, local steps and seconds until the worst site reaches the target, or of the whole run."""
    own = {"seed": seed, "data-arguments": f"seed={seed}", "out": str(folder / "run"), "state-dir": str(folder / "s")}
    config = resolve(BASE | SIDES[side] | own)
    rows: list[dict[str, Any]] = []
    run_with(Inline(config), config, rows.append)
    lines = [json.loads(line) for line in (folder / "run" / "clients.jsonl").read_text(encoding="utf-8").splitlines()]
    passes = {row["client"]: config.training.passes(row["examples"]) for row in lines if "examples" in row}
    f1 = [
        [row["metrics"]["f1_1"] for row in lines if "metrics" in row and row["round"] == number]
        for number in range(1, ROUNDS + 1)
    ]
    reached = next((number for number, values in enumerate(f1, 1) if min(values) >= TARGET), None)
    needed = rows[: reached or ROUNDS]
    steps = [row.get("local_steps") or [passes[client] for client in row["selected"]] for row in needed]
    return {
        "rounds": reached,
        "steps": sum(map(sum, steps)),
        "seconds": f"{needed[-1]['time_s']:.1f}",
        "worst": f"{min(f1[-1]):.4f}",
        "mean": f"{np.mean(f1[-1]):.4f}",
    }


def table(rows: list[dict[str, str]]) -> str:
    """Means of each side over the seeds; a run without the target counts with all its rounds."""
    lines = ["| side | seeds | reached | rounds | local steps | seconds | worst F1 at the end | mean F1 at the end |"]
    lines.append("|---|" + "---|" * 7)
    for side in SIDES:
        runs = [row | {"rounds": row["rounds"] or str(ROUNDS)} for row in rows if row["side"] == side]
        means = [np.mean([float(row[name]) for row in runs]) for name in FIELDS[2:]]
        reached = sum(bool(row["rounds"]) for row in rows if row["side"] == side)
        shown = " | ".join(f"{mean:.1f}" for mean in means[:3]) + f" | {means[3]:.3f} | {means[4]:.3f}"
        lines.append(f"| {side} | {len(runs)} | {reached} | {shown} |")
    return "\n".join(lines)


def main(seeds: str) -> None:
    """Carry out the missing runs, and print the table."""
    logging.disable(logging.WARNING)
    first, last = map(int, seeds.split("-"))
    code = re.search(r'```python\n("""FLAD.*?)```', PAGE.read_text(encoding="utf-8"), re.DOTALL)
    with tempfile.TemporaryDirectory() as module:
        (Path(module) / "flad.py").write_text(code[1] if code else "", encoding="utf-8")
        sys.path.insert(0, module)
        for seed, side in ((seed, side) for seed in range(first, last + 1) for side in SIDES):
            if any((row["side"], row["seed"]) == (side, str(seed)) for row in read_rows()):
                continue
            with tempfile.TemporaryDirectory() as folder:
                row = {"side": side, "seed": seed} | measured(side, seed, Path(folder))
            begun = OUT.exists()
            with OUT.open("a", newline="", encoding="utf-8") as file:
                writer = csv.DictWriter(file, FIELDS, lineterminator="\n")
                if not begun:
                    writer.writeheader()
                writer.writerow(row)
    sys.stdout.write(table(read_rows()) + "\n")


def read_rows() -> list[dict[str, str]]:
    """The measured runs."""
    if not OUT.exists():
        return []
    with OUT.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


if __name__ == "__main__":
    main(*sys.argv[1:])
