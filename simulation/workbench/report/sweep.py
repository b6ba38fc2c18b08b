"""Sweeps of a report: measures of the runs against the values of a setting that the comparison's grid sweeps."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
from matplotlib.axes import Axes

from fedsel_app.config import Value
from simulation.workbench.comparison.measures import SECONDS, TRAFFIC_MB, EvaluatedMetric, Measure
from simulation.workbench.comparison.results import RecordedComparison
from simulation.workbench.comparison.runs import RecordedRun
from simulation.workbench.comparison.statistics import Floats
from simulation.workbench.report.drawing import Plot, Style, look, look_positions

LOG_RATIO = 10.0
"""Least ratio of the largest value to the smallest for a logarithmic axis."""


def sweep_plots(comparison: RecordedComparison, metric: EvaluatedMetric, style: Style) -> list[Plot]:
    """One figure for each setting that has several values in the counted runs."""
    runs = comparison.counted
    grid = {key: list(dict.fromkeys(run.cell[key] for run in runs if key in run.cell)) for key in _keys(runs)}
    numbers = {run.name: run.measures | metric.of(run) for run in runs} if grid else {}
    return [_plot(key, values, comparison, numbers, metric, style) for key, values in grid.items() if len(values) > 1]


def _keys(runs: Sequence[RecordedRun]) -> list[str]:
    return list(dict.fromkeys(key for run in runs for key in run.cell))


def _plot(
    key: str,
    values: Sequence[Value],
    comparison: RecordedComparison,
    numbers: Mapping[str, Mapping[str, float]],
    metric: EvaluatedMetric,
    style: Style,
) -> Plot:
    scale = _is_scale(values)
    ordered = sorted(values, key=float) if scale else list(values)
    lines: dict[str, dict[Value, list[Mapping[str, float]]]] = {}
    methods: dict[str, str] = {}
    for run in (run for run in comparison.counted if key in run.cell):
        label = ", ".join(
            [comparison.shown(run.strategy), *(f"{name}={run.cell[name]}" for name in run.cell if name != key)]
        )
        methods[label] = run.strategy
        lines.setdefault(label, {}).setdefault(run.cell[key], []).append(numbers[run.name])
    score = replace(metric.stable, name=metric.name)
    positions = look_positions(methods)
    measures = [measure for measure in (score, SECONDS, TRAFFIC_MB) if _measured(lines, measure)]
    figure, panels = style.panels(1, len(measures), 3.8)
    for panel, measure in zip(panels, measures, strict=True):
        for label, cells in lines.items():
            spots = [float(value) if scale else ordered.index(value) for value in ordered if value in cells]
            samples = [np.array([of[measure.key] for of in cells[value]]) for value in ordered if value in cells]
            _line(panel, spots, samples, positions[label], label, style)
        _label(panel, key, ordered, measure, scale=scale)
    style.legend(figure, list(lines))
    seeds = "each dot is a seed" if style.per_seed else "bars reach from the lowest to the highest seed"
    caption = (
        f"Means over the seeds for each value of {key}; {seeds}. Costs to target are means over the runs that "
        "reached it. A point is hollow if some runs did not reach it, and missing if no run reached it."
    )
    return Plot(f"sweep-{key}", f"Over the values of '{key}'", caption, figure)


def _measured(lines: Mapping[str, Mapping[Value, Sequence[Mapping[str, float]]]], measure: Measure) -> bool:
    """True if a run has a value of the measure."""
    return any(np.isfinite(of[measure.key]) for cells in lines.values() for runs in cells.values() for of in runs)


def _line(
    panel: Axes, spots: Sequence[float], samples: Sequence[Floats], position: int, label: str, style: Style
) -> None:
    """Draw a line through the means of the finite values in `found`, one array over the seeds for each place."""
    looks = look(position)
    marks = [(x, y[np.isfinite(y)], np.isfinite(y).all()) for x, y in zip(spots, samples, strict=True)]
    points = [(x, float(y.mean())) for x, y, _ in marks if y.size]
    panel.plot(*zip(*points, strict=True) if points else ([], []), color=looks["color"], linestyle=looks["linestyle"])
    panel.plot([], [], **looks, label=label)
    for x, y, whole in marks:
        if not y.size:
            continue
        face = looks["color"] if whole else "none"
        panel.plot([x], [y.mean()], looks["marker"], mfc=face, mec=looks["color"], markersize=6)
        if style.per_seed:
            panel.plot(np.full(y.size, x), y, ".", color=looks["color"], alpha=0.6, markersize=4)
        else:
            panel.plot([x, x], [y.min(), y.max()], color=looks["color"], linewidth=1.0, alpha=0.6)


def _label(panel: Axes, key: str, ordered: Sequence[Value], measure: Measure, *, scale: bool) -> None:
    panel.set_xlabel(key)
    panel.set_ylabel(measure.name)
    ticks = [float(value) for value in ordered] if scale else list(range(len(ordered)))
    if scale and ticks[0] > 0 and ticks[-1] / ticks[0] >= LOG_RATIO:
        panel.set_xscale("log")
        panel.minorticks_off()
    panel.set_xticks(ticks, [f"{value:g}" if scale else str(value) for value in ordered])
    if not scale:
        panel.set_xlim(-0.4, len(ordered) - 0.6)


def _is_scale(values: Sequence[Value]) -> bool:
    return all(isinstance(value, int | float) and not isinstance(value, bool) for value in values)
