"""Figure of a report: the metric of each variant against rounds, seconds, bytes and client updates.

A method looks the same in every figure. Colour-blind readers can distinguish the colours, which are those of Okabe and
Ito. Methods also differ in line style and marker, so the figures work in grey.
"""

import io
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from fedsel_app.records.fedsel_folder import make_fedsel_folder
from fedsel_app.records.files import whole_file
from simulation.workbench.comparison.measures import EvaluatedMetric, Numbers
from simulation.workbench.comparison.results import Group
from simulation.workbench.comparison.runs import RecordedRun
from simulation.workbench.comparison.statistics import Floats, step_values
from simulation.workbench.report.tables import capital

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#000000", "#E69F00", "#56B4E9")
LINES = ("-", "--", "-.", ":")
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*", "<")
ORDER = (
    *("hetero-select", "power-of-choice", "oort", "fedcg", "random", "fed-cbs", "fedcor"),
    *("terraform", "divfl", "delta", "hetero-select-stable", "random-weighted", "active-fl", "flexcom"),
    *("fedcvr-bolt", "adasample", "optrate", "hics-fl", "full", "clustered-sampling", "adafl"),
)
"""Methods in the order of their looks. Those of one line have different colours, and are often compared."""
TICKS = 6
"""Largest number of intervals between the ticks of a panel."""
NOTEBOOK_DOTS = 100
"""Resolution in a notebook, in dots per inch."""
FILE_DOTS = 300
"""Resolution of a PNG file, in dots per inch."""
UPDATES = "client updates received"
FOLDER = "report-figures"


class Picture(Figure):
    """Figure that a notebook shows as the result of a cell, without pyplot and its backends."""

    def _repr_png_(self) -> bytes:
        """PNG of the figure, for IPython."""
        png = io.BytesIO()
        self.savefig(png, format="png", dpi=NOTEBOOK_DOTS)
        return png.getvalue()


@dataclass(frozen=True)
class Plot:
    """Figure with its name in the page, its title and its caption."""

    name: str
    title: str
    caption: str
    figure: Figure


def plot_metric(group: Group, metric: EvaluatedMetric) -> Plot:
    """Figure of the metric against rounds, seconds, uplink bytes and client updates."""
    seconds = "measured seconds" if group.all_runs[0].config.get("links") == "measured" else "simulated seconds"
    axes = {"round": "", seconds: "round_s", "uplink, MB": "uplink_bytes", UPDATES: "client_updates"}
    positions = look_positions(group.methods)
    # A dollar in the name of a method begins no formula.
    with matplotlib.rc_context({"text.parse_math": False}):
        figure = Picture(figsize=(12.0, 7.2), layout="constrained")
        for panel, (label, key) in zip(figure.subplots(2, 2).flat, axes.items(), strict=True):
            panel.grid(alpha=0.3)
            panel.set_axisbelow(True)
            unit = 1e6 if label.endswith("MB") else 1.0
            for name, runs in group.runs.items():
                curves = [_curve(run, metric, key, unit) for run in runs if metric.values(run).size]
                if curves:
                    draw_band(panel, curves, positions[name], name)
            if metric.is_score:
                for target in {float(run.config["target"]) for run in group.all_runs}:
                    panel.axhline(target, color="#555555", linestyle=(0, (1, 1)), linewidth=1)
            panel.set_xlabel(label)
            panel.xaxis.set_major_locator(MaxNLocator(TICKS, integer=label in ("round", UPDATES)))
            panel.set_xlim(left=0)
        for panel in figure.axes[::2]:
            panel.set_ylabel(metric.axis)
        lines, names = figure.axes[0].get_legend_handles_labels()
        if len(group.runs) > 1 and names:
            figure.legend(lines, names, loc="outside upper center", ncols=min(len(names), 5))
    caption = "The line is the mean over the seeds, and the band reaches from the lowest to the highest seed."
    caption += " The dotted line is the target." if metric.is_score else ""
    return Plot(metric.key, f"{capital(metric.name)} against its costs", caption, figure)


def plot_cells(groups: Sequence[Group], metric: EvaluatedMetric) -> Plot:
    """Figure of the metric of each variant in each cell of a grid."""
    positions = look_positions({name: method for group in groups for name, method in group.methods.items()})
    with matplotlib.rc_context({"text.parse_math": False}):
        height = min(1.2 + len(groups) * (0.3 + 0.12 * len(positions)), 9.0)
        figure = Picture(figsize=(5.5, height), layout="constrained")
        panel = figure.subplots()
        panel.grid(axis="x", alpha=0.3)
        measured = {place: Numbers(group, metric).frame[metric.stable.key] for place, group in enumerate(groups)}
        seeds = pd.concat(measured, names=["cell"])
        cells = seeds[np.isfinite(seeds)].groupby(["variant", "cell"], sort=False).agg(["min", "mean", "max"])
        for number, (name, of) in enumerate(cells.groupby("variant", sort=False), start=1):
            places = of.index.get_level_values("cell") + number / (len(positions) + 1) - 0.5
            looks = look(positions[str(name)]) | {"linestyle": "none", "label": name}
            panel.errorbar(of["mean"], places, xerr=(of["mean"] - of["min"], of["max"] - of["mean"]), **looks)
        panel.set_yticks(range(len(groups)), [group.title for group in groups])
        panel.set_ylim(len(groups) - 0.5, -0.5)
        panel.set_xlabel(metric.stable.name)
        figure.legend(loc="outside upper center", ncols=min(len(positions), 3))
    caption = "The point is the mean over the seeds, and the bar reaches from the lowest to the highest seed."
    return Plot(f"{metric.key} cells", f"{capital(metric.name)} in each cell of the grid", caption, figure)


def draw_band(panel: Axes, curves: Sequence[tuple[Floats, Floats]], position: int, label: str) -> None:
    """Draw the mean of `curves` and the band between them; `position` determines colour, line and marker."""
    points = np.unique(np.concatenate([x for x, _ in curves]))
    values = np.stack([step_values(x, y, points) for x, y in curves])
    finite = np.isfinite(values).all(axis=0)
    points, values = points[finite], values[:, finite]
    looks, every = look(position), max(1, points.size // 8)
    marks = (position * every // 5 % every, every)
    panel.plot(points, values.mean(axis=0), **looks, markevery=marks, markersize=5, drawstyle="steps-post", label=label)
    if len(curves) > 1:
        low, high = values.min(axis=0), values.max(axis=0)
        panel.fill_between(points, low, high, step="post", color=looks["color"], alpha=0.15, linewidth=0)


def _curve(run: RecordedRun, metric: EvaluatedMetric, key: str, unit: float) -> tuple[Floats, Floats]:
    """Curve of a metric against the running total of the field `key`, or against the round if there is none."""
    x = run.cumulative(key) / unit if key else run.schedule
    values = metric.values(run)
    return x[values.index], values.to_numpy()


def look_positions(methods: Mapping[str, str]) -> dict[str, int]:
    """Position of each variant for `look`: of its method in `ORDER`, for the first variant of a known method.

    All others get the first positions whose colours are free or, if there are none, the first free positions.
    `methods` are the methods of the variants.
    """
    positions: dict[str, int] = {}
    for name, method in methods.items():
        if method in ORDER and ORDER.index(method) not in positions.values():
            positions[name] = ORDER.index(method)
    for name in (name for name in methods if name not in positions):
        taken = {position % len(COLOURS) for position in positions.values()}
        free = [position for position in range(len(methods) + len(ORDER)) if position not in positions.values()]
        positions[name] = next((position for position in free if position % len(COLOURS) not in taken), free[0])
    return positions


def look(position: int) -> dict[str, Any]:
    """Colour, line style and marker of the variant at `position`."""
    return {
        "color": COLOURS[position % len(COLOURS)],
        "linestyle": LINES[position % len(LINES)],
        "marker": MARKERS[position % len(MARKERS)],
    }


def write_figures(folder: Path, plots: Iterable[tuple[str, Plot]], ending: str) -> None:
    """Write all `plots`, pairs of a section's name and a figure, in the format `ending` into report-figures/."""
    target = folder / FOLDER
    make_fedsel_folder(target)
    # Publishers ask for outlines in SVG, which are matplotlib's default, and for TrueType in PDF.
    with matplotlib.rc_context({"pdf.fonttype": 42}):
        for section, plot in plots:
            name = re.sub(r"[^\w.+-]+", "-", f"{section} {plot.name}".strip())
            with whole_file(target / f"{name}.{ending}") as file:
                plot.figure.savefig(file, format=ending, dpi=FILE_DOTS)
