"""Figures of a report: looks of methods, texts as they are, axes, and figures that would be empty."""

import json

from simulation.workbench.comparison.results import RecordedComparison
from simulation.workbench.report.drawing import COLOURS, ORDER, look, look_positions
from simulation.workbench.report.findings import run_table
from strategies import STRATEGIES
from tests.support.report_runs import write_plan, write_run


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
