"""Figures of a report, one function each: the metric against costs, and costs to target."""

from collections.abc import Mapping, Sequence

import numpy as np

from simulation.workbench.comparison.measures import (
    ROUNDS,
    SECONDS,
    UPLINK_MB,
    UPLINK_VALUE_MB,
    EvaluatedMetric,
    Numbers,
)
from simulation.workbench.comparison.results import Group
from simulation.workbench.comparison.runs import RecordedRun
from simulation.workbench.comparison.statistics import Floats
from simulation.workbench.report.client_figures import (
    client_plot,
    component_plot,
    participation_plot,
    selection_plot,
)
from simulation.workbench.report.drawing import Plot, Style, label_x, look, look_positions
from simulation.workbench.report.tables import capital
from simulation.workbench.report.timeline import timeline_plot

UPDATES = "client updates received"


def accuracy_plot(group: Group, style: Style, metric: EvaluatedMetric) -> Plot:
    """Figure of the metric against rounds, seconds, uplink bytes and client updates."""
    seconds = "measured seconds" if group.all_runs[0].config.get("links") == "measured" else "simulated seconds"
    axes: tuple[tuple[str, tuple[str, ...]], ...] = (
        ("round", ()),
        (seconds, ("round_s",)),
        ("uplink, MB", ("uplink_bytes",)),
        (UPDATES, ("client_updates",)),
    )
    figure, panels = style.panels(2, 2, 7.2)
    positions = look_positions(group.methods)
    for panel, (label, keys) in zip(panels, axes, strict=True):
        unit = 1e6 if label.endswith("MB") else 1.0
        for name, runs in group.runs.items():
            curves = [_curve(run, metric, keys, unit) for run in runs if metric.values(run).size]
            if curves:
                style.band(panel, curves, positions[name], name)
        if metric.is_score:
            for target in {float(run.config["target"]) for run in group.all_runs}:
                panel.axhline(target, color="#555555", linestyle=(0, (1, 1)), linewidth=1)
        label_x(panel, label, whole=label in ("round", UPDATES))
        panel.set_xlim(left=0)
    for panel in panels[::2]:
        panel.set_ylabel(metric.axis)
    style.legend(figure, list(group.runs))
    caption = (
        f"{capital(metric.axis)} of the global model against rounds, {seconds}, bytes sent to the server and "
        f"client updates: {style.seeds}. Between evaluations, and after the end of a run, a curve keeps its last "
        "value. It begins where every seed has been evaluated once."
        + (" The dotted line is the target." if metric.is_score else "")
    )
    return Plot(metric.key, f"{capital(metric.name)} against its costs", caption, figure)


def target_plot(group: Group, style: Style, numbers: Numbers) -> Plot | None:
    """Figure of rounds, seconds and bytes to target: a mark for every run, and the mean; None if no run reached it."""
    names, positions = list(group.runs), look_positions(group.methods)
    if not any(numbers.reached(name, ROUNDS.key).size for name in names):
        return None
    figure, panels = style.panels(1, 3, 1.3 + 0.5 * len(names), sharey=True)
    series = (((ROUNDS, "o", 0.0),), ((SECONDS, "o", 0.0),), ((UPLINK_MB, "o", -0.15), (UPLINK_VALUE_MB, "D", 0.15)))
    for panel, marks in zip(panels, series, strict=True):
        for measure, marker, offset in marks:
            for row, name in enumerate(names):
                values, y = numbers.reached(name, measure.key), row + offset
                colour = look(positions[name])["color"]
                face = colour if marker == "o" else "none"
                panel.plot(values, np.full(values.size, y), marker, mfc=face, mec=colour, alpha=0.6, markersize=6)
                if values.size:
                    panel.plot([values.mean()], [y], "|", color=colour, markersize=16, markeredgewidth=2.5)
        panel.margins(x=0.08)
        panel.set_xlim(left=0)
        label_x(panel, marks[0][0].name if len(marks) == 1 else "MB to target", whole=marks[0][0] is ROUNDS)
    reached = [f"{name}\n{numbers.reached(name, ROUNDS.key).size} of {len(group.runs[name])}" for name in names]
    panels[0].set_yticks(range(len(names)), reached)
    panels[0].set_ylim(len(names) - 0.5, -0.5)
    caption = (
        "Cost of each run up to its first evaluation that reaches the target. The bar is the mean over the runs that "
        "reached it; their number is below each name, and the other runs have no mark. In the last panel, filled "
        "circles are all uplink bytes, and hollow diamonds only the uplink's values, 32 bits per kept value."
    )
    return Plot("target", "Rounds, seconds and bytes to target", caption, figure)


def plots(group: Group, style: Style, numbers: Numbers, covered: Mapping[str, Sequence[Floats]]) -> list[Plot]:
    """All figures of a group for which it has records."""
    drawn = [accuracy_plot(group, style, numbers.metric), target_plot(group, style, numbers)]
    drawn += [participation_plot(group, style, covered), selection_plot(group, style), timeline_plot(group, style)]
    drawn += [component_plot(group, style), client_plot(group, style, numbers.metric)]
    return [plot for plot in drawn if plot is not None]


def _curve(run: RecordedRun, metric: EvaluatedMetric, keys: Sequence[str], unit: float) -> tuple[Floats, Floats]:
    """Curve of a metric against the running total of the fields `keys`, or against the round if there are none."""
    x = run.cumulative(*keys) / unit if keys else run.schedule
    values = metric.values(run)
    return x[values.index], values.to_numpy()
