"""Answer of a report: `fedsel report` prints it, and it is at the top of the page, with numbers ready for a paper."""

import csv

import pytest

from simulation.workbench.cli import main
from tests.support.pictures import draw_blank_pictures
from tests.support.report_runs import page_text, write_comparison, write_plan, write_run


@pytest.fixture
def printed(tmp_path, monkeypatch, capsys):
    """Output of `fedsel report` on the comparison that `write` writes."""

    def run(write):
        write(tmp_path)
        draw_blank_pictures(monkeypatch)
        monkeypatch.setenv("COLUMNS", "160")
        assert main(["report", str(tmp_path)]) == 0
        return capsys.readouterr().out

    return run


def two_seeds(folder):
    """Runs of two methods on two seeds, with 8 evaluations, and final accuracies that are far apart."""
    curves = {"random": (0.7, 0.98), "oort": (0.5, 0.99)}
    runs = [(strategy, seed, {}) for strategy in curves for seed in (1, 2)]
    for path, (strategy, seed, _) in zip(write_plan(folder, runs), runs, strict=True):
        last = curves[strategy][seed - 1]
        write_run(path, strategy, seed, [0.1] * 3 + [last] * 5, target=0.4)


def test_the_command_prints_the_ranking_and_the_verdict(printed, tmp_path):
    out = printed(write_comparison)
    lines = out.splitlines()
    assert lines[0] == "random, hetero-select, oort on digits, seeds 1, 2, 3"
    cells = [[cell.strip() for cell in line.split("│")[1:-1]] for line in lines if line.startswith("│")]
    cells, clients = cells[:3], cells[3:]
    assert [cell[:2] for cell in cells] == [["1", "hetero-select"], ["2", "oort"], ["3", "random"]]
    assert [cell[-1] for cell in cells] == ["first", "open, p = 0.088", "behind, p = 0.016"]
    assert cells[0][4:] == ["3 of 3", "0.417", "16.7", "1.7", "first"]
    figures = ["3", "0.7500", "0.1118", "0.6000", "0.6000", "0.9000"]
    assert clients == [[name, *figures] for name in ("random", "hetero-select", "oort")]
    said = [line for line in lines if line.startswith("Highest accuracy (mean of all 4 evaluations): hetero-select, ")]
    assert said[0].endswith("3 pairs: significant after Holm, p = 0.016.")
    text = page_text(tmp_path)
    assert text.index("rank method") < text.rindex(said[0][35:75]) < text.index("Accuracy and cost of whole runs")
    html = (tmp_path / "report.html").read_text()
    assert (
        html.index("Highest accuracy") < html.index("<figure") < html.index("against the first") < html.index("Fewest")
    )


def test_columns_that_are_empty_in_every_row_are_left_out(printed, tmp_path):
    def far_from_the_target(folder):
        runs = [("random", 1, {}), ("oort", 1, {})]
        for path, (strategy, seed, _) in zip(write_plan(folder, runs), runs, strict=True):
            write_run(path, strategy, seed, [0.1, 0.2], target=0.9)

    out = printed(far_from_the_target)
    assert "reached the target" in out
    html = (tmp_path / "report.html").read_text()
    latex = (tmp_path / "report-ranking.tex").read_text()
    for name in ("seconds to target", "rounds to target"):
        assert not any(name in text for text in (out, latex))
        assert f">{name}</th>" not in html
        assert name in (tmp_path / "report-ranking.csv").read_text()
    assert 'class="text name">random</td>' in html


def test_two_seeds_have_no_interval_and_too_few_for_a_test(printed, tmp_path):
    out = printed(two_seeds)
    assert "too few seeds" in out
    assert "interval" not in out
    assert "accuracy, mean of all 8" in " ".join(out.split())
    with (tmp_path / "report-differences.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert {row[key] for row in rows for key in row if key.endswith("(low)")} == {""}
