"""Figures of a report on the clients: their participation, selections, score components and scores."""

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.colors import ListedColormap
from matplotlib.ticker import MaxNLocator

from simulation.workbench.comparison.measures import EvaluatedMetric, client_metric
from simulation.workbench.comparison.results import Group
from simulation.workbench.comparison.statistics import Floats
from simulation.workbench.report.drawing import Plot, Style, label_rounds, label_x, look_positions
from simulation.workbench.report.tables import capital

SELECTED, FAILED = "#0072B2", "#D55E00"
SCALES = 20.0
"""Ratio of components from which they have different axes."""


def participation_plot(group: Group, style: Style, covered: Mapping[str, Sequence[Floats]]) -> Plot:
    """Figure of the sorted selection counts, and of the cohorts' label coverage by round."""
    figure, panels = style.panels(1, 2 if covered else 1, 4.0)
    positions = look_positions(group.methods)
    for name, runs in group.runs.items():
        counts = [np.sort(run.selection_counts / len(run.rows))[::-1] for run in runs]
        curves = [(np.arange(1, one.size + 1), one) for one in counts]
        style.band(panels[0], curves, positions[name], name, steps=False)
        if covered:
            rounds = [np.arange(1, one.size + 1) for one in covered[name]]
            style.band(panels[1], list(zip(rounds, covered[name], strict=True)), positions[name], name)
    label_x(panels[0], "clients, the most selected first", whole=True)
    panels[0].set_ylabel("share of rounds with the client")
    panels[0].set_ylim(bottom=0)
    if covered:
        panels[1].set_ylim(0, 1.05)
        label_rounds(panels[1])
        panels[1].set_ylabel("label coverage of the cohort")
    style.legend(figure, list(group.runs))
    caption = (
        f"Share of rounds in which each client was selected, sorted in each run: {style.seeds}. A flat line means even "
        "participation."
    )
    if covered:
        caption += " Second panel: the share of all labels for which the round's cohort has training examples."
    return Plot("participation", "How evenly clients took part", caption, figure)


def selection_plot(group: Group, style: Style) -> Plot:
    """Figure of the selections, clients by rounds, for one run of each variant."""
    figure, panels = style.grid(len(group.runs), 2.6)
    colours = ListedColormap(["#FFFFFF", SELECTED, FAILED])
    for panel, (name, runs) in zip(panels, group.runs.items(), strict=False):
        chosen = runs[0].selection_matrix
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
        label_rounds(panel)
        panel.set_ylabel("client")
        panel.grid(visible=False)
        panel.yaxis.set_major_locator(MaxNLocator(integer=True))
    caption = (
        "Clients from top to bottom, rounds from left to right, the first seed of each variant: blue is selected, "
        "orange is selected but not aggregated, white is not selected. A white row is a client that was never selected."
    )
    return Plot("selection", "Selected clients by round", caption, figure)


def component_plot(group: Group, style: Style) -> Plot | None:
    """Figure of the components of the selection scores over the rounds; None if no method records any."""
    parts = {name: [run.component_means for run in runs] for name, runs in group.runs.items()}
    parts = {name: runs for name, runs in parts.items() if any(runs)}
    if not parts:
        return None
    scaled = [(name, runs, alike) for name, runs in parts.items() for alike in _alike(runs)]
    figure, panels = style.grid(len(scaled), 3.0)
    for panel, (name, runs, components) in zip(panels, scaled, strict=False):
        for position, component in enumerate(components):
            curves = [run[component] for run in runs if component in run]
            style.band(panel, curves, position, component)
        panel.set_title(name, fontsize=10)
        label_rounds(panel)
        panel.set_ylabel("mean over the selected")
        lines = {str(line.get_label()): line for line in panel.get_lines()}
        panel.legend(
            [lines[name] for name in components], components, fontsize=8, loc="center left", bbox_to_anchor=(1.0, 0.5)
        )
    caption = (
        f"Components of the selected clients' scores, averaged over each round's cohort: {style.seeds}. Methods "
        "without score components are not shown."
    )
    return Plot("components", "Score components", caption, figure)


def _alike(runs: Sequence[Mapping[str, tuple[Floats, Floats]]]) -> list[list[str]]:
    """Components in groups whose largest values differ by a factor of at most `SCALES`, for one axis each."""
    sizes: dict[str, float] = {}
    for run in runs:
        for name, (_, values) in run.items():
            sizes[name] = max(sizes.get(name, 0.0), float(np.abs(values).max()))
    groups: list[list[str]] = []
    for name in sorted(sizes, key=lambda name: -sizes[name]):
        if groups and (not sizes[name] or SCALES * sizes[name] >= sizes[groups[-1][0]]):
            groups[-1].append(name)
        else:
            groups.append([name])
    return groups


def client_plot(group: Group, style: Style, metric: EvaluatedMetric) -> Plot | None:
    """Figure of the metric on the clients' own test parts; None if no run measured it."""
    metric = client_metric(group.all_runs, metric)
    measured = {
        name: [one for run in runs if (one := run.client_scores(metric.key))] for name, runs in group.runs.items()
    }
    measured = {name: runs for name, runs in measured.items() if runs}
    if not measured:
        return None
    positions = look_positions(group.methods)
    figure, (spread, worst) = style.panels(1, 2, 4.2)
    spread.boxplot(
        [np.concatenate([run[max(run)] for run in runs]) for runs in measured.values()],
        orientation="horizontal",
        tick_labels=list(measured),
        whis=(0, 100),
        medianprops={"color": "#D55E00"},
    )
    spread.invert_yaxis()
    spread.set_xlabel(f"{metric.name} on a client's own test part, after the last evaluation")
    for name, runs in measured.items():
        curves = [(np.array(list(run)), np.array([metric.worst_tenth(one) for one in run.values()])) for run in runs]
        style.band(worst, curves, positions[name], name)
    label_rounds(worst)
    worst.set_ylabel("worst tenth of the clients")
    style.legend(figure, list(measured))
    caption = (
        "First panel: the clients of all seeds after the last evaluation; the box contains the middle half, its line "
        "is the median, and the whiskers reach the worst and the best client. Second panel: mean over the worst tenth "
        f"of the clients; {style.seeds}."
    )
    return Plot("clients", f"{capital(metric.name)} by client", caption, figure)
