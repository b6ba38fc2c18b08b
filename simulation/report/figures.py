"""Figures of a report, one function each: matplotlib figures with captions.

Colours are Okabe and Ito's, which the colour-blind can tell apart; line style and marker tell the variants apart too,
so the figures also work in grey.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import ListedColormap
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from fedsel_app.records.schema import schedule_round
from simulation.comparison.outcomes import (
    ROUNDS,
    SECONDS,
    UPLINK_MB,
    UPLINK_VALUE_MB,
    Numbers,
    client_accuracies,
    component_means,
    cumulative,
    score_name,
    selection_counts,
    selection_matrix,
)
from simulation.comparison.results import Group, Run
from simulation.comparison.statistics import Floats, step_values, worst_tenth

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#000000", "#E69F00", "#56B4E9")
LINES = ("-", "--", "-.", ":")
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*", "<")
GRID_POINTS = 400
WIDTH = 12.0
SELECTED, FAILED = "#0072B2", "#D55E00"
BAND = "the line is the mean over the seeds, the band reaches from the lowest to the highest seed"


@dataclass(frozen=True)
class Plot:
    """Figure with its name in the page, its title and its caption."""

    name: str
    title: str
    caption: str
    figure: Figure


def accuracy_plot(group: Group) -> Plot:
    """Figure of the score against rounds, seconds, uplink bytes and exchanges."""
    seconds = "measured seconds" if group.all_runs[0].config.get("links") == "measured" else "simulated seconds"
    axes: tuple[tuple[str, tuple[str, ...]], ...] = (
        ("round", ()),
        (seconds, ("round_s",)),
        ("uplink, MB", ("uplink_bytes",)),
        ("exchanges (updates received)", ("exchanges",)),
    )
    figure, panels = _panels(2, 2, 7.2)
    for panel, (label, keys) in zip(panels, axes, strict=True):
        unit = 1e6 if label.endswith("MB") else 1.0
        for position, runs in enumerate(group.runs.values()):
            curves = [_curve(run, keys, unit) for run in runs if run.evaluated]
            if curves:
                _band(panel, curves, position)
        for target in {float(run.config["target"]) for run in group.all_runs}:
            panel.axhline(target, color="#555555", linestyle=(0, (1, 1)), linewidth=1)
        panel.set_xlabel(label)
        panel.set_xlim(left=0)
    score = score_name(group.all_runs[0])
    for panel in panels[::2]:
        panel.set_ylabel(f"test {score}")
    _legend(figure, panels[0], list(group.runs))
    caption = (
        f"Test {score} of the global model against rounds, {seconds}, bytes sent to the server and exchanges: "
        f"{BAND}. Between evaluations a run keeps its last value, as it does after its end; no band is shown before "
        "every seed has been evaluated once. The dotted line is the target."
    )
    return Plot("accuracy", f"{score[0].upper()}{score[1:]} and what it cost", caption, figure)


def target_plot(group: Group, numbers: Numbers) -> Plot:
    """Figure of rounds, seconds and bytes to target: a mark for every run, and the mean."""
    names = list(group.runs)
    figure, panels = _panels(1, 3, 1.3 + 0.5 * len(names), sharey=True)
    series = (((ROUNDS, "o", 0.0),), ((SECONDS, "o", 0.0),), ((UPLINK_MB, "o", -0.15), (UPLINK_VALUE_MB, "D", 0.15)))
    for panel, marks in zip(panels, series, strict=True):
        for measure, marker, offset in marks:
            for position, name in enumerate(names):
                values, y = numbers.reached(name, measure.key), position + offset
                colour = COLOURS[position % len(COLOURS)]
                face = colour if marker == "o" else "none"
                panel.plot(values, np.full(values.size, y), marker, mfc=face, mec=colour, alpha=0.6, markersize=6)
                if values.size:
                    panel.plot([values.mean()], [y], "|", color=colour, markersize=16, markeredgewidth=2.5)
        panel.margins(x=0.08)
        panel.set_xlim(left=0)
        panel.xaxis.set_major_locator(MaxNLocator(5))
        panel.set_xlabel(marks[0][0].name if len(marks) == 1 else "MB to target")
    reached = [f"{name}\n{numbers.reached(name, ROUNDS.key).size} of {len(group.runs[name])}" for name in names]
    panels[0].set_yticks(range(len(names)), reached)
    panels[0].set_ylim(len(names) - 0.5, -0.5)
    caption = (
        "What each run needed until its first evaluation at or above the target; the bar is the mean over the runs "
        "that reached it, and below each name stands how many did (the others have no mark). In the right panel filled "
        "circles are uplink bytes and hollow diamonds the uplink's values alone, 32 bits a kept value."
    )
    return Plot("target", "Rounds, seconds and bytes to target", caption, figure)


def participation_plot(group: Group, covered: Mapping[str, Sequence[Floats]]) -> Plot:
    """Figure of the selection counts from most to least, and of the cohorts' label coverage by round."""
    figure, panels = _panels(1, 2 if covered else 1, 4.0)
    for position, (name, runs) in enumerate(group.runs.items()):
        counts = [np.sort(selection_counts(run) / len(run.rows))[::-1] for run in runs]
        x = np.arange(1, counts[0].size + 1)
        same = [one for one in counts if one.size == x.size]
        _band(panels[0], [(x, one) for one in same], position, steps=False)
        if covered:
            rounds = [np.arange(1, one.size + 1) for one in covered[name]]
            _band(panels[1], list(zip(rounds, covered[name], strict=True)), position)
    panels[0].set_xlabel("clients, the most selected first")
    panels[0].set_ylabel("share of rounds selected in")
    panels[0].set_ylim(bottom=0)
    panels[0].xaxis.set_major_locator(MaxNLocator(integer=True))
    if covered:
        panels[1].set_ylim(0, 1.05)
        panels[1].set_xlabel("round")
        panels[1].set_ylabel("label coverage of the cohort")
    _legend(figure, panels[0], list(group.runs))
    caption = f"How often each client was selected, clients ordered by it in each run: {BAND}. A flat line is even."
    if covered:
        caption += " Right: the share of all labels that the round's cohort holds training examples of."
    return Plot("participation", "How evenly clients took part", caption, figure)


def selection_plot(group: Group) -> Plot:
    """Figure of the selections, clients by rounds, one run of each variant."""
    figure, panels = _grid(group, 2.6)
    colours = ListedColormap(["#FFFFFF", SELECTED, FAILED])
    for panel, (name, runs) in zip(panels, group.runs.items(), strict=False):
        chosen = selection_matrix(runs[0])
        clients, rounds = chosen.shape
        panel.imshow(
            chosen,
            cmap=colours,
            vmin=0,
            vmax=2,
            aspect="auto",
            interpolation="antialiased",
            interpolation_stage="rgba",
            extent=(0.5, rounds + 0.5, clients - 0.5, -0.5),
        )
        panel.set_title(f"{name}, seed {runs[0].seed}", fontsize=10)
        panel.set_xlabel("round")
        panel.set_ylabel("client")
        panel.grid(visible=False)
        panel.yaxis.set_major_locator(MaxNLocator(integer=True))
    caption = (
        "Clients from top to bottom, rounds from left to right, the first seed of each variant: blue is selected, "
        "orange is selected but not aggregated, white is not selected. Empty rows are clients that were "
        "never asked."
    )
    return Plot("selection", "Who was selected when", caption, figure)


def component_plot(group: Group) -> Plot | None:
    """Figure of the parts of the selection scores over the rounds; None where no method records any."""
    parts = {name: [component_means(run) for run in runs] for name, runs in group.runs.items()}
    parts = {name: runs for name, runs in parts.items() if any(runs)}
    if not parts:
        return None
    figure, panels = _grid(parts, 3.0)
    for panel, (name, runs) in zip(panels, parts.items(), strict=False):
        for position, component in enumerate(dict.fromkeys(key for run in runs for key in run)):
            curves = [run[component] for run in runs if component in run]
            _band(panel, curves, position, label=component)
        panel.set_title(name, fontsize=10)
        panel.set_xlabel("round")
        panel.set_ylabel("mean over the selected")
        panel.legend(fontsize=8)
    caption = (
        f"What the scores of the selected clients were made of, averaged over each round's cohort: {BAND}. Methods "
        "without a score of parts are not shown."
    )
    return Plot("components", "Score components", caption, figure)


def client_plot(group: Group) -> Plot | None:
    """Figure of the accuracies on the clients' own test parts; None where no run measured them."""
    measured = {name: [one for run in runs if (one := client_accuracies(run))] for name, runs in group.runs.items()}
    measured = {name: runs for name, runs in measured.items() if runs}
    if not measured:
        return None
    names = list(group.runs)
    figure, (spread, worst) = _panels(1, 2, 4.2)
    spread.boxplot(
        [np.concatenate([run[max(run)] for run in runs]) for runs in measured.values()],
        orientation="horizontal",
        tick_labels=list(measured),
        whis=(0, 100),
        medianprops={"color": "#D55E00"},
    )
    spread.invert_yaxis()
    spread.set_xlabel("accuracy on a client's own test part, after the last evaluation")
    for name, runs in measured.items():
        curves = [(np.array(list(run)), np.array([worst_tenth(one) for one in run.values()])) for run in runs]
        _band(worst, curves, names.index(name), label=name)
    worst.set_xlabel("round")
    worst.set_ylabel("worst tenth of the clients")
    worst.legend(fontsize=8)
    caption = (
        "Left: the clients of all seeds at the end; the box holds the middle half, its line is the median, the "
        f"whiskers reach the worst and the best client. Right: mean of the worst tenth of the clients: {BAND}."
    )
    return Plot("clients", "Accuracy by client", caption, figure)


def plots(group: Group, numbers: Numbers, covered: Mapping[str, Sequence[Floats]]) -> list[Plot]:
    """Figures of a group that its records allow."""
    drawn = [accuracy_plot(group), target_plot(group, numbers), participation_plot(group, covered)]
    drawn += [plot for plot in (selection_plot(group), component_plot(group), client_plot(group)) if plot]
    return drawn


def _curve(run: Run, keys: Sequence[str], unit: float) -> tuple[Floats, Floats]:
    """Curve of the score against the running total of the fields `keys`, or against the round if there are none."""
    x = cumulative(run, *keys) / unit if keys else np.array([float(schedule_round(row)) for row in run.evaluated])
    return x, np.array([row["accuracy"] for row in run.evaluated])


def _band(
    panel: Axes,
    curves: Sequence[tuple[Any, Any]],
    position: int,
    *,
    steps: bool = True,
    label: str | None = None,
) -> None:
    """Mean, lowest and highest of step curves, in the colour, line style and marker of `position`."""
    points = np.unique(np.concatenate([x for x, _ in curves]))
    if points.size > GRID_POINTS:
        points = np.linspace(points[0], points[-1], GRID_POINTS)
    values = np.stack([step_values(x, y, points) for x, y in curves])
    shown = np.isfinite(values).all(axis=0)
    points, values = points[shown], values[:, shown]
    colour, every = COLOURS[position % len(COLOURS)], max(1, points.size // 8)
    panel.plot(
        points,
        values.mean(axis=0),
        color=colour,
        linestyle=LINES[position % len(LINES)],
        marker=MARKERS[position % len(MARKERS)],
        markevery=(position * every // 5 % every, every),
        markersize=5,
        linewidth=1.6,
        drawstyle="steps-post" if steps else "default",
        label=label,
    )
    if len(curves) > 1:
        low, high = values.min(axis=0), values.max(axis=0)
        panel.fill_between(points, low, high, step="post" if steps else None, color=colour, alpha=0.15, linewidth=0)


def _panels(rows: int, columns: int, height: float, *, sharey: bool = False) -> tuple[Figure, list[Axes]]:
    figure = Figure(figsize=(WIDTH, height), layout="constrained")
    panels = [panel for row in figure.subplots(rows, columns, sharey=sharey, squeeze=False) for panel in row]
    for panel in panels:
        panel.grid(alpha=0.3)
        panel.set_axisbelow(True)
    return figure, panels


def _grid(variants: Group | Mapping[str, object], height: float) -> tuple[Figure, list[Axes]]:
    """Two panels a row, one for each variant; a spare one is removed."""
    count = len(variants.runs if isinstance(variants, Group) else variants)
    columns = min(2, count)
    rows = -(-count // columns)
    figure, panels = _panels(rows, columns, height * rows + 0.4)
    for spare in panels[count:]:
        spare.remove()
    return figure, panels[:count]


def _legend(figure: Figure, panel: Axes, names: Sequence[str]) -> None:
    """The variants' names above the panels."""
    if len(names) > 1:
        figure.legend(panel.get_lines()[: len(names)], names, loc="outside upper center", ncols=min(len(names), 5))
