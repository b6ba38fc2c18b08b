"""Report for a publication: figures as files, LaTeX, a chosen metric, all rounds in one table."""

import csv
import math

import pytest

from simulation.workbench.cli import main
from simulation.workbench.report.page import write_report
from simulation.workbench.report.tables import Heading, Spread, Table, latex_table, latex_text
from tests.support.report_runs import page_text, write_plan, write_run


@pytest.fixture
def sweep(tmp_path):
    """Two methods at alpha 1, 0.1 and 10. oort misses the target at 10, and only oort has the key 'oort.gamma'."""
    cells = [("random", 1, {"alpha": alpha}) for alpha in (1.0, 0.1, 10.0)]
    cells += [("oort", 1, {"alpha": alpha, "oort.gamma": "x"}) for alpha in (1.0, 0.1, 10.0)]
    for path, (strategy, seed, cell) in zip(write_plan(tmp_path, cells), cells, strict=True):
        missed = strategy == "oort" and cell["alpha"] == 10.0
        write_run(path, strategy, seed, [0.3, 0.4 if missed else 0.9], row={"metrics": {"recall": 0.5}})
    return tmp_path


def test_every_round_is_a_line_with_a_column_for_each_swept_key(sweep, without_figures):
    write_report(sweep)
    with (sweep / "rounds.csv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 12
    assert {(row["strategy"], row["alpha"], row["oort.gamma"]) for row in rows} == {
        *(
            (name, alpha, "x" if name == "oort" else "")
            for name in ("random", "oort")
            for alpha in ("0.1", "1.0", "10.0")
        )
    }
    last = rows[-1]
    shown = [last[key] for key in ("round", "accuracy", "recall", "total_uplink_bytes")]
    assert shown == ["2", "0.4", "0.5", "500000"]


def test_the_command_takes_a_metric(sweep, capsys, without_figures):
    assert main(["report", str(sweep), "--metric", "loss", "--figures", "svg"]) == 0
    assert "rounds.csv" in capsys.readouterr().out
    names = {path.name for path in (sweep / "report-figures").glob("*.svg")}
    assert names == {"loss-cells.svg", *(f"alpha-{alpha}-loss.svg" for alpha in (0.1, 1.0, 10.0))}
    text = page_text(sweep)
    assert "Lowest test loss (mean of all 2 evaluations): " in text
    assert "at least 3 pairs are needed" in text
    assert main(["report", str(sweep), "--metric", "f1"]) == 2
    assert capsys.readouterr().err.startswith(
        "fedsel: No run measured the --metric 'f1'. These runs have accuracy, loss"
    )


def test_latex_has_no_command_of_the_cells():
    columns = [Heading("a_b"), Heading("c", 1), Heading("d", 2, spreads=True)]
    rows = [["x\\y{}", -1.25, Spread(0.5, 0.25, 3)], ["#1", None, Spread(0.5, math.nan, 1)]]
    rows += [["small", 1.0, Spread(0.0082, 1.7e-06, 3)], ["tiny", 1.0, Spread(1.5e-05, 1.7e-06, 3)]]
    text = latex_table("alpha 0.1", Table("t", "T", "5% & more.", columns, rows))
    assert r"a\_b & c & d \\" in text
    assert r"x\textbackslash{}y\{\} & $-$1.2 & 0.50 $\pm$ 0.25 \\" in text
    assert r"\#1 & -- & 0.50 \\" in text
    assert r"small & 1.0 & 0.0082 $\pm$ 0.0000 \\" in text
    assert r"tiny & 1.0 & 1.5e-05 $\pm$ 1.7e-06 \\" in text
    assert r"\caption{alpha 0.1: T. 5\% \& more.}" in text
    assert r"\begin{tabular}{lrr}" in text
    assert latex_text("10⁶ R² a-1 [-2, -3]") == "10$^6$ R$^2$ a-1 [$-$2, $-$3]"
