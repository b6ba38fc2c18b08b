"""Class distribution: a picture of the training examples of each class at each client, as stacked bars.

Masud, Jahin and Hasan, "Stabilizing Federated Learning under Extreme Heterogeneity with HeteRo-Select", Fig. 2.
"""

import itertools
from collections.abc import Mapping, Sequence
from pathlib import Path

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import BoundaryNorm, Colormap
from matplotlib.figure import Figure
from numpy.typing import NDArray

from fedsel_app.config import ConfigError, Value
from fedsel_app.data.dataset import load
from fedsel_app.wiring.configuration import resolve
from simulation.workbench.comparison.labels import client_label_counts, client_sizes
from simulation.workbench.comparison.plan import refuse_set_and_in_grid
from simulation.workbench.report.data_description import label_words
from simulation.workbench.report.drawing import Style, label_x
from simulation.workbench.report.run_report import data_name

FORMATS = (".pdf", ".png", ".svg")
DOTS_PER_INCH = 144
BAR_WIDTH = 0.85

Ints = NDArray[np.int64]


def draw_class_distribution(
    settings: Mapping[str, Value], grid: Mapping[str, Sequence[Value]], picture: Path
) -> list[str]:
    """Draw the class distribution under `settings` into the file `picture`, one panel per cell of `grid`.

    Returns one sentence per panel.

    Raises ConfigError for invalid settings or one that is also in the grid, data that are not available or have no
    classes, or a file of another format.
    """
    if picture.suffix not in FORMATS:
        raise ConfigError(f"The --out of a picture must end in {', '.join(FORMATS)}. Got {picture.name}.")
    refuse_set_and_in_grid(settings, grid)
    panels: dict[str, Ints] = {}
    sentences, words = [], set()
    for values in itertools.product(*grid.values()):
        cell = dict(zip(grid, values, strict=True))
        config = resolve({**settings, **cell})
        title = (
            ", ".join(f"{key}={value}" for key, value in cell.items())
            or f"{data_name(config.values())}, seed {config.run.seed}"
        )
        arguments = config.data, config.partition, config.run.clients, config.run.seed
        try:
            panels[title] = client_label_counts(*arguments)
        except ConfigError as error:
            raise ConfigError(f"The class distribution cannot be drawn: {error}") from error
        word, several = label_words(load(config.data, config.run.seed))
        words.add(word)
        sentences.append(_sentence(title, panels[title], client_sizes(*arguments), several))
    picture.parent.mkdir(parents=True, exist_ok=True)
    class_distribution_figure(panels, " or ".join(sorted(words))).savefig(picture, dpi=DOTS_PER_INCH)
    return sentences


def class_distribution_figure(panels: Mapping[str, Ints], word: str = "class") -> Figure:
    """Figure with one panel per title: stacked bars of the examples of each client by class, `panels` int64 (K, L).

    `word` says what the colours are.
    """
    figure, axes = Style().grid(len(panels), 3.6)
    classes = max(counts.shape[1] for counts in panels.values())
    colours = matplotlib.colormaps["tab10" if classes <= 10 else "turbo"].resampled(classes)
    for axis, (title, counts) in zip(axes, panels.items(), strict=True):
        _stack(axis, counts, colours)
        axis.set_title(title, fontsize=10)
    scale = ScalarMappable(BoundaryNorm(np.arange(classes + 1) - 0.5, classes), colours)
    ticks = np.arange(0, classes, -(-classes // 10))
    figure.colorbar(scale, ax=axes, label=word, ticks=ticks.tolist())
    return figure


def _stack(axis: Axes, counts: Ints, colours: Colormap) -> None:
    """Draw the stacked bars as one patch per class. Its value is NaN between two clients."""
    clients, classes = counts.shape
    edges = (np.arange(clients)[:, None] + np.array([-BAR_WIDTH / 2, BAR_WIDTH / 2])).ravel()
    tops = np.full((classes + 1, 2 * clients - 1), np.nan)
    tops[:, ::2] = np.concatenate([np.zeros((1, clients)), counts.T.cumsum(axis=0)])
    for label in range(classes):
        axis.stairs(tops[label + 1], edges, baseline=tops[label], fill=True, color=colours(label))
    axis.set_xlim(-0.6, clients - 0.4)
    axis.set_ylim(bottom=0)
    label_x(axis, "client", whole=True)
    axis.set_ylabel("training examples")


def _sentence(title: str, counts: Ints, sizes: Ints, words: str) -> str:
    held = (counts > 0).sum(axis=1)
    return (
        f"{title}: {len(sizes)} clients have {sizes.min():,} to {sizes.max():,} training examples "
        f"of {held.min()} to {held.max()} of {counts.shape[1]} {words}."
    )
