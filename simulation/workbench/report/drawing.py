"""Drawing of a report's figures: panels, curves with bands, colours, and files of the figures for publications.

A method looks the same in every figure. Colour-blind readers can distinguish the colours, which are those of Okabe and
Ito. Methods also differ in line style and marker, so the figures work in grey.
"""

import io
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.backend_bases import RendererBase
from matplotlib.figure import Figure
from matplotlib.text import Text
from matplotlib.ticker import MaxNLocator

from fedsel_app.config import ConfigError
from fedsel_app.records.fedsel_folder import make_fedsel_folder
from fedsel_app.records.files import whole_file
from simulation.workbench.comparison.statistics import step_values

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
GRID_POINTS = 400
NOTEBOOK_DOTS = 100
"""Resolution in a notebook, in dots per inch."""
WIDTH = 12.0
"""Width of figures in inches."""
FOLDER = "report-figures"
FORMATS: dict[str, dict[str, Any]] = {
    "svg": {"metadata": {"Date": None}},
    "pdf": {"metadata": {"CreationDate": None}},
    "png": {"dpi": 300},
}
"""Format -> options of `savefig`. The files have no date, so that equal figures give equal files."""


class Picture(Figure):
    """Figure that a notebook shows as the result of a cell, without pyplot and its backends.

    Its texts are shown as they are: a dollar in the name of a method begins no formula.
    """

    def draw(self, renderer: RendererBase) -> None:
        """Draw the figure."""
        with matplotlib.rc_context({"text.parse_math": False}):
            for text in self.findobj(Text):
                text.set_parse_math(False)
            super().draw(renderer)

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


@dataclass(frozen=True)
class Style:
    """Style of figures; `per_seed`: curves have a thin line for each seed instead of the band."""

    per_seed: bool = False

    @property
    def seeds(self) -> str:
        """Sentence on how curves show the seeds."""
        if self.per_seed:
            return "thick lines are means over the seeds, each thin line is a seed"
        return "the line is the mean over the seeds, the band reaches from the lowest to the highest seed"

    def panels(self, rows: int, columns: int, height: float, *, sharey: bool = False) -> tuple[Figure, list[Axes]]:
        """Figure with `rows` x `columns` panels; `height` of all rows in inches."""
        figure = Picture(figsize=(WIDTH, height), layout="constrained")
        panels = [panel for row in figure.subplots(rows, columns, sharey=sharey, squeeze=False) for panel in row]
        for panel in panels:
            panel.grid(alpha=0.3)
            panel.set_axisbelow(True)
        return figure, panels

    def grid(self, count: int, height: float) -> tuple[Figure, list[Axes]]:
        """Figure with `count` panels of `height` inches, two per row."""
        columns = min(2, count)
        rows = -(-count // columns)
        figure, panels = self.panels(rows, columns, height * rows + 0.4)
        for spare in panels[count:]:
            spare.remove()
        return figure, panels[:count]

    def legend(self, figure: Figure, names: Sequence[str]) -> None:
        """Add a legend above the panels: those of `names` that are the label of something drawn in them."""
        if len(names) > 1:
            artists = [one for panel in figure.axes for one in (*panel.get_lines(), *panel.collections)]
            artist_of = {str(one.get_label()): one for one in artists}
            labels = [name for name in names if name in artist_of]
            columns = min(len(labels), 5)
            if labels:
                figure.legend([artist_of[name] for name in labels], labels, loc="outside upper center", ncols=columns)

    def band(
        self, panel: Axes, curves: Sequence[tuple[Any, Any]], position: int, label: str, *, steps: bool = True
    ) -> None:
        """Draw the mean of `curves`, and their band or each curve; `position` determines colour, line and marker."""
        points = np.unique(np.concatenate([x for x, _ in curves]))
        if points.size > GRID_POINTS:
            points = np.linspace(points[0], points[-1], GRID_POINTS)
        values = np.stack([step_values(x, y, points) for x, y in curves])
        finite = np.isfinite(values).all(axis=0)
        points, values = points[finite], values[:, finite]
        looks, every = look(position), max(1, points.size // 8)
        drawstyle = "steps-post" if steps else "default"
        panel.plot(
            points,
            values.mean(axis=0),
            **looks,
            markevery=(position * every // 5 % every, every),
            markersize=5,
            linewidth=2.0 if self.per_seed else 1.6,
            drawstyle=drawstyle,
            label=label,
        )
        if len(curves) > 1 and self.per_seed:
            for y in values:
                panel.plot(points, y, color=looks["color"], linewidth=0.6, alpha=0.7, drawstyle=drawstyle)
        elif len(curves) > 1:
            low, high = values.min(axis=0), values.max(axis=0)
            band = panel.fill_between if not steps else partial(panel.fill_between, step="post")
            band(points, low, high, color=looks["color"], alpha=0.15, linewidth=0)


def label_x(panel: Axes, label: str, *, whole: bool = False) -> None:
    """Label the x axis of a panel, with so few ticks that their numbers do not overlap; `whole`: only integers."""
    panel.set_xlabel(label)
    panel.xaxis.set_major_locator(MaxNLocator(TICKS, integer=whole))


def label_rounds(panel: Axes) -> None:
    """Label the x axis of a panel over the rounds, with whole ticks."""
    label_x(panel, "round", whole=True)


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
    return {name: positions[name] for name in methods}


def look(position: int) -> dict[str, Any]:
    """Colour, line style and marker of the variant at `position`."""
    return {
        "color": COLOURS[position % len(COLOURS)],
        "linestyle": LINES[position % len(LINES)],
        "marker": MARKERS[position % len(MARKERS)],
    }


def parse_formats(text: str) -> list[str]:
    """Formats in `text`, separated by commas. Raises ConfigError for an unknown one."""
    formats = [name.strip() for name in text.split(",") if name.strip()]
    for name in formats:
        if name not in FORMATS:
            raise ConfigError(f"--figures takes {', '.join(FORMATS)}, separated by commas. Got {name!r}.")
    return formats


def write_figures(folder: Path, plots: Sequence[tuple[str, Plot]], formats: Sequence[str]) -> None:
    """Write all `plots`, pairs of a section's name and a figure, in all `formats` into report-figures/."""
    target = folder / FOLDER
    make_fedsel_folder(target)
    # Publishers ask for outlines in SVG and for TrueType in PDF. The salt makes the ids in an SVG reproducible.
    with matplotlib.rc_context({"svg.hashsalt": "fedsel", "svg.fonttype": "path", "pdf.fonttype": 42}):
        for section, plot in plots:
            name = re.sub(r"[^\w.+-]+", "-", f"{section} {plot.name}".strip())
            for ending in formats:
                with whole_file(target / f"{name}.{ending}") as file:
                    plot.figure.savefig(file, format=ending, **FORMATS[ending])
