"""A finished run as a table and a picture, from its files alone."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
from matplotlib import pyplot as plt
from rich.console import Console
from rich.table import Table

from fedsel_app.records.run_folder import read_rounds

AXES = (
    ("round", 1.0, "round"),
    ("time_s", 1.0, "simulated seconds"),
    ("total_uplink_bytes", 1e6, "MB sent to the server"),
)


def draw_run(rows: Sequence[Mapping[str, Any]], target: float, title: str, path: Path) -> Path:
    """Accuracy against rounds, simulated time and MB sent, as one PNG at `path`."""
    evaluated = [row for row in rows if "accuracy" in row]
    figure, panels = plt.subplots(1, len(AXES), figsize=(12, 3.6), sharey=True, layout="constrained")
    for panel, (key, unit, label) in zip(panels, AXES, strict=True):
        panel.plot([row[key] / unit for row in evaluated], [row["accuracy"] for row in evaluated], color="#0072B2")
        panel.axhline(target, color="#D55E00", linestyle="--", linewidth=1, label=f"target {target:g}")
        panel.set_xlabel(label)
        panel.grid(alpha=0.3)
    panels[0].set_ylabel("test accuracy")
    panels[0].legend(loc="lower right")
    figure.suptitle(title)
    figure.savefig(path, dpi=120)
    plt.close(figure)
    return path


def report_run(folder: Path, console: Console) -> None:
    """Print the summary of the run in `folder`, draw its picture there, and say where both are."""
    summary: dict[str, Any] = json.loads((folder / "summary.json").read_text(encoding="utf-8"))
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    title = f"{summary['strategy']} on {config['data']}, seed {summary['seed']}"
    picture = draw_run(read_rounds(folder), summary["target_accuracy"], title, folder / "accuracy.png")
    table = Table(show_header=False, box=None, pad_edge=False)
    for key, value in summary.items():
        if key != "versions":
            shown = "not reached" if value is None else f"{value:.4g}" if isinstance(value, float) else str(value)
            table.add_row(key, shown)
    console.print(table)
    console.print(f"Run folder: {folder}\nPicture:    {picture}", soft_wrap=True, highlight=False)
