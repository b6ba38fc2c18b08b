"""Figures of a report: the metric against costs, and who trained when."""

from collections.abc import Sequence

from simulation.workbench.comparison.measures import EvaluatedMetric
from simulation.workbench.comparison.results import Group
from simulation.workbench.comparison.runs import RecordedRun
from simulation.workbench.comparison.statistics import Floats
from simulation.workbench.report.drawing import Plot, Style, label_x, look_positions
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


def plots(group: Group, style: Style, metric: EvaluatedMetric) -> list[Plot]:
    """All figures of a group for which it has records."""
    timeline = timeline_plot(group, style)
    return [accuracy_plot(group, style, metric), *([timeline] if timeline else [])]


def _curve(run: RecordedRun, metric: EvaluatedMetric, keys: Sequence[str], unit: float) -> tuple[Floats, Floats]:
    """Curve of a metric against the running total of the fields `keys`, or against the round if there are none."""
    x = run.cumulative(*keys) / unit if keys else run.schedule
    values = metric.values(run)
    return x[values.index], values.to_numpy()
