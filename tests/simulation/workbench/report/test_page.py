"""Report page of the three methods of `write_comparison`: 0.25 MB up, 0.75 MB in all and 10 s a round; target 0.8."""

import csv
import io

import pytest

from simulation.workbench.cli import main
from simulation.workbench.comparison.statistics import t_interval
from simulation.workbench.report.findings import SIGNIFICANT, TOO_FEW
from simulation.workbench.report.page import write_report
from simulation.workbench.report.tables import FREE, HEAD, Heading, Table, csv_text, number_text
from tests.support.pictures import draw_blank_pictures
from tests.support.report_runs import page_text, write_run, write_runs


def rows(folder, name):
    with (folder / f"report-{name}.csv").open(encoding="utf-8") as file:
        return list(csv.DictReader(file))


def by_variant(folder, name):
    return {row["variant"]: row for row in rows(folder, name)}


def test_a_report_begins_with_what_the_methods_share(report):
    """The page's first lines, and the captions of its two tables of findings."""
    text = page_text(report)
    shared = "Everything equal but the method, which also weighs the updates. "
    assert f"{shared}Model logistic, " in text
    assert text.count(shared) == 1 + 2


def test_differences_are_paired_by_seed(report):
    """hetero-select needs two rounds less on each seed. oort has two pairs: two rounds less, and one round less."""
    table = {(row["measure"], row["variant"]): row for row in rows(report, "differences")}
    hetero, oort = (table["MB to target, uplink", name] for name in ("hetero-select", "oort"))
    assert [float(hetero[key]) for key in ("difference", "difference (low)", "difference (high)")] == [-0.5] * 3
    assert float(hetero["difference in %"]) == pytest.approx(-100 * 6 / 11)
    assert (hetero["pairs"], hetero["verdict"]) == ("3", SIGNIFICANT)
    assert (oort["pairs"], oort["verdict"], float(oort["difference"])) == ("2", TOO_FEW, -0.375)


def test_participation_and_clients(report):
    """Clients 0 and 1 of four train in all four rounds; the clients' accuracies are 0.6, 0.7, 0.8 and 0.9."""
    row = by_variant(report, "participation")["oort"]
    assert [float(row[key]) for key in ("Jain", "never selected", "most", "mean")] == [0.5, 2, 4, 2]
    row = by_variant(report, "clients")["oort"]
    shown = [float(row[key]) for key in ("mean of clients", "standard deviation", "worst tenth", "best client")]
    assert shown == pytest.approx([0.75, 0.0125**0.5, 0.6, 0.9])


def test_the_page_stands_alone(report):
    html = (report / "report.html").read_text(encoding="utf-8")
    assert len(html.encode()) < 3_000_000
    assert [part for part in ("<script", "http://", "https://", "url(") if part in html] == []
    assert html.count("<img") == html.count("<figcaption>") == 1


def test_a_report_of_cells_says_which(tmp_path, without_figures):
    runs = [(strategy, 1, {"alpha": alpha}) for strategy in ("random", "oort") for alpha in (0.1, 1.0)]
    write_runs(tmp_path, runs, [0.9])
    (tmp_path / "report-failures.csv").write_text("left from an earlier report")
    (tmp_path / "report-score-beta-1.tex").write_text(HEAD)
    (tmp_path / "report-score-mine.tex").write_text("the user's own")
    write_report(tmp_path)
    assert [(row["cell"], row["variant"]) for row in rows(tmp_path, "score")] == [
        (cell, name) for cell in ("alpha=0.1", "alpha=1.0") for name in ("random", "oort")
    ]
    assert not (tmp_path / "report-failures.csv").exists()
    html = (tmp_path / "report.html").read_text(encoding="utf-8")
    answer = "</strong> random in 2 of 2 cells; the difference from the next is significant in none."
    assert html.index(answer) < html.index('<figure class="accuracy cells">') < html.index("<h2>alpha 0.1</h2>")
    written = {path.name for path in tmp_path.glob("report-score*.tex")}
    assert written == {f"report-score-{name}.tex" for name in ("alpha-0.1", "alpha-1.0", "mine")}
    assert TOO_FEW in html


def test_the_command_on_one_run(tmp_path, capsys, monkeypatch):
    """`fedsel report` on one run, whose texts are escaped."""
    draw_blank_pictures(monkeypatch)
    assert main(["report", str(tmp_path)]) == 2
    assert capsys.readouterr().err.count("\n") == 1
    failure = {"failures": [{"client": 0, "reason": "<b>|lost"}]}
    write_run(tmp_path / "run", "random", 1, [0.5, 0.7], row=failure)
    assert main(["report", str(tmp_path / "run")]) == 0
    assert str(tmp_path / "run" / "report.html") in capsys.readouterr().out
    html = (tmp_path / "run" / "report.html").read_text(encoding="utf-8")
    assert "&lt;b&gt;|lost" in html
    assert "<b>|lost" not in html
    assert "Ranking" not in html
    assert "No run reached accuracy 0.8" in html


def test_a_table_as_text_and_csv():
    columns = [Heading("name"), Heading("a", 2), Heading("b", 1, estimates=True)]
    table = Table("t", "T", "Caption.", columns, [["x|y", None, t_interval([1.0, 1.0])], ["z", 0.001, t_interval([])]])
    assert table.texts() == [["x|y", "–", "1.0 [1.0, 1.0]"], ["z", "0.001", "–"]]
    assert list(csv.reader(io.StringIO(csv_text([("", table)])))) == [
        ["name", "a", "b", "b (low)", "b (high)", "b (n)"],
        ["x|y", "", "1.0", "1.0", "1.0", "2"],
        ["z", "0.001", "", "", "", "0"],
    ]


@pytest.mark.parametrize(
    ("number", "digits", "text"),
    [(1.25, 1, "1.2"), (0.0, 3, "0.000"), (-0.04, 1, "-0.04"), (1e-12, 2, "0.00"), (12345.678, FREE, "1.235e+04")],
)
def test_small_numbers_stay_visible(number, digits, text):
    assert number_text(number, digits) == text


def test_the_command_takes_several_folders(tmp_path, capsys, without_figures):
    for name in ("random", "oort"):
        write_run(tmp_path / name, name, 1, [0.5, 0.9])
    folders = [str(tmp_path / name) for name in ("oort", "random")]
    assert main(["report", *folders]) == 2
    assert "--out DIR" in capsys.readouterr().err
    assert main(["report", *folders, "--out", str(tmp_path / "both")]) == 0
    said = capsys.readouterr().out
    assert "oort, random on digits, seed 1" in said
    assert "Against the next, random: " in said
    assert set(by_variant(tmp_path / "both", "score")) == {"random", "oort"}
