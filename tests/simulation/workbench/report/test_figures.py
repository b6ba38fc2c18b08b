"""Figures of a report: looks of methods, texts as they are, axes, and figures that would be empty."""

import io
import itertools
import json

import numpy as np

from simulation.workbench.comparison.measures import Numbers, metric_of
from simulation.workbench.comparison.results import RecordedComparison
from simulation.workbench.report.audit import run_table
from simulation.workbench.report.client_figures import component_plot
from simulation.workbench.report.drawing import COLOURS, ORDER, Style, look, look_positions
from simulation.workbench.report.figures import accuracy_plot, plots, target_plot
from strategies import STRATEGIES
from tests.support.report_runs import write_comparison, write_plan, write_run


def one_group(folder, runs, curves, rows=None, **settings):
    """The group of a comparison; each run has one of the `curves`, and each row the fields `rows` of its strategy."""
    for path, (strategy, seed, _), curve in zip(write_plan(folder, runs), runs, curves, strict=True):
        write_run(path, strategy, seed, curve, row=(rows or {}).get(strategy), **settings)
    [group] = RecordedComparison.read(folder).groups
    return group


def test_a_method_looks_the_same_in_every_figure():
    assert set(ORDER) == set(STRATEGIES)
    alone, among = look_positions({"oort": "oort"}), look_positions({name: name for name in STRATEGIES})
    assert alone["oort"] == among["oort"]
    assert len({tuple(look(position).values()) for position in among.values()}) == len(STRATEGIES)
    seven = look_positions({name: name for name in ORDER[:7]})
    assert len({look(position)["color"] for position in seven.values()}) == len(COLOURS)


def test_other_variants_get_colours_that_are_free():
    """A label keeps the look of its method; the second cell of a method, and methods of users, take others."""
    found = look_positions({"FedAvg": "random", "oort": "oort", "oort, x=2": "oort", "mine": "my:Method"})
    assert (found["FedAvg"], found["oort"]) == (ORDER.index("random"), ORDER.index("oort"))
    assert len({position % len(COLOURS) for position in found.values()}) == 4


def test_the_name_of_a_method_is_no_formula(tmp_path):
    name = "$\\frac{$ _x_^"
    write_comparison(tmp_path)
    comparison = RecordedComparison.read(tmp_path, labels={"oort": name})
    assert name in comparison.groups[0].runs
    figure = accuracy_plot(comparison.groups[0], Style(), metric_of(comparison.runs.values())).figure
    figure.savefig(io.BytesIO(), format="png", dpi=20)
    assert name in [text.get_text() for text in figure.legends[0].get_texts()]


def test_no_panel_is_empty_if_no_run_reaches_the_target(tmp_path):
    group = one_group(tmp_path, [("random", 1, {}), ("oort", 1, {})], [[0.1, 0.2]] * 2)
    numbers = Numbers(group, metric_of(group.all_runs))
    assert target_plot(group, Style(), numbers) is None
    assert "target" not in [plot.name for plot in plots(group, Style(), numbers, {})]


def test_the_numbers_of_axes_do_not_overlap(tmp_path):
    """Ten thousands of client updates and hundreds of thousands of seconds have long numbers."""
    rows = {"random": {"client_updates": 12345, "round_s": 123456.7, "uplink_bytes": 10**9}}
    group = one_group(tmp_path, [("random", 1, {})], [list(np.linspace(0.1, 0.9, 120))], rows)
    figure = accuracy_plot(group, Style(), metric_of(group.all_runs)).figure
    figure.savefig(io.BytesIO(), format="png", dpi=72)
    for axes in figure.axes:
        shown = [label.get_window_extent() for label in axes.get_xticklabels() if label.get_text()]
        inside = [box for box in shown if axes.bbox.x0 - 1 <= (box.x0 + box.x1) / 2 <= axes.bbox.x1 + 1]
        assert all(left.x1 < right.x0 for left, right in itertools.pairwise(inside))


def test_the_rounds_of_a_method_with_iterations_are_its_own(tmp_path):
    """Two rounds of Terraform with 8 and 4 client updates each."""
    group = one_group(tmp_path, [("terraform", 1, {})], [[0.1, 0.2, 0.3, 0.9]])
    [run] = group.all_runs
    path = run.folder / "rounds.jsonl"
    own = [{"method_round": 1 + place // 2, "client_updates": (8, 4)[place % 2]} for place in range(4)]
    lines = [json.loads(line) | fields for line, fields in zip(path.read_text().splitlines(), own, strict=True)]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    comparison = RecordedComparison.read(tmp_path)
    table = run_table(comparison)
    shown = dict(zip((column.name for column in table.columns), table.rows[0], strict=True))
    assert (shown["rounds"], shown["rounds to target"]) == (2, 2)


def test_components_of_other_sizes_have_axes_of_their_own(tmp_path):
    rows = {"random": {"components": {"utility": [800.0, 700.0], "share": [0.5, 0.25], "age": [1.0, 2.0]}}}
    group = one_group(tmp_path, [("random", 1, {})], [[0.1, 0.2]], rows)
    plot = component_plot(group, Style())
    shown = [[text.get_text() for text in axes.get_legend().get_texts()] for axes in plot.figure.axes]
    assert shown == [["utility"], ["age", "share"]]
