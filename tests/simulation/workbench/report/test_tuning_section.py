"""Tuning in a report: default against tuned settings, with handwritten runs."""

import csv
import json
import re

import pytest

from simulation.workbench.cli import main
from simulation.workbench.comparison.results import RecordedComparison
from simulation.workbench.report.findings import tuning_section
from simulation.workbench.report.page import write_report
from tests.support.report_runs import page_text, write_plan, write_run

FINAL = {
    ("random", "default"): (0.5, 0.52, 0.54),
    ("random", "tuned"): (0.8, 0.83, 0.84),
    ("oort", "default"): (0.6, 0.62, 0.64),
    ("oort", "tuned"): (0.6, 0.62, 0.64),
}
"""Accuracy of the single round of each run, one value per seed."""


@pytest.fixture
def tuned(tmp_path):
    """Tuning gives random 0.3, 0.31 and 0.3 more, and so the first rank. The first trial of oort was its best."""
    runs = [(name, seed, {"settings": cell}) for name, cell in FINAL for seed in (1, 2, 3)]
    for path, (name, seed, cell) in zip(write_plan(tmp_path, runs), runs, strict=True):
        lr = {"lr": 0.3} if cell["settings"] == "tuned" and name == "random" else {}
        write_run(path, name, seed, [FINAL[name, cell["settings"]][seed - 1]], **lr)
    best = {
        "random": {"trial": 3, "settings": {"lr": 0.3}, "values": [0.5, None, 0.8], "failures": {"2": "no memory"}},
        "oort": {"trial": 1, "settings": {"lr": 0.05}, "values": [0.6, 0.5, 0.5], "failures": {}},
    }
    tuning = {"version": 2, "strategies": ["random", "oort"], "trials": 3, "tuning_seeds": [101], "best": best}
    tuning |= {"over": {"lr": "0.005 to 0.5"}, "settings": {}}
    (tmp_path / "tuning.json").write_text(json.dumps(tuning), encoding="utf-8")
    return tmp_path


def test_the_section_says_what_tuning_changed(tuned):
    comparison = RecordedComparison.read(tuned)
    [budget], table = tuning_section(comparison)
    assert budget.startswith("Tuned: 3 trials of each method, the first with its default settings, over lr (0.005 to")
    assert "on the seeds 101; all results below are on other seeds" in budget
    columns = [column.name for column in table.columns]
    random, oort = (dict(zip(columns, row, strict=True)) for row in table.texts())
    assert [random[name].split(" ")[0] for name in ("default", "tuned")] == ["0.5200", "0.8233"]
    assert (random["difference"], random["verdict"]) == ("0.3033 [0.2890, 0.3177]", "significant after Holm")
    assert random["settings of the best trial"] == "lr=0.3"
    assert [oort[name].split(" ")[0] for name in ("default", "tuned", "best trial")] == ["0.6200", "0.6200", "1"]


def test_a_report_of_another_metric_still_compares_the_score(tuned, without_figures):
    """A score of the runs' own, here a lower one is better, and a report of their loss."""
    for run in sorted((tuned / "runs").iterdir()):
        [row] = map(json.loads, (run / "rounds.jsonl").read_text().splitlines())
        own = {"score": "mse", "mse": 1.0 - row.pop("accuracy")}
        (run / "rounds.jsonl").write_text(json.dumps(row | own) + "\n")
    write_report(tuned, metric="loss")
    text = page_text(tuned)
    assert "random 3 1 lr=0.3 0.4800 ± " in text
    assert "MSE" in text


def test_the_tuned_ranking_is_first_and_each_section_names_what_it_shares(tuned, without_figures, capsys):
    assert main(["report", str(tuned)]) == 0
    parts = "settings tuned: Ranking", "Default against tuned settings", "Tuned: 3 trials", "settings default: Ranking"
    printed = capsys.readouterr().out
    assert sorted(parts, key=printed.index) == list(parts)
    html = (tuned / "report.html").read_text(encoding="utf-8")
    both, default = html.split("<h2>settings tuned")[1].split("<h2>settings default")
    assert "Everything equal but the method, which also weighs the updates. " in default
    assert "Each method with the settings of its best trial. " in both
    assert html.index("<h2>settings tuned") < html.index("Tuned:</strong>") < html.index("<h2>settings default")
    with (tuned / "report-tuning.csv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert [(row["strategy"], row["best trial"], row["failed trials"]) for row in rows] == [
        *(("random", "3", "1"), ("oort", "1", "0"))
    ]


def test_a_label_stands_in_every_table_and_sentence(tuned, without_figures):
    assert main(["report", str(tuned), "--label", "random=Ours (0.1)"]) == 0
    tables = [*tuned.glob("report-*.csv"), *tuned.glob("report-*.tex")]
    for path in (tuned / "report.html", *tables):
        names = re.sub(r"random-(default|tuned)-s\d", "", path.read_text(encoding="utf-8"))  # names of folders stay
        assert "Ours (0.1)" in names, path
        assert not re.search(r"\brandom\b", names), path


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--label", "fedcg=x"], "A label is for one of random, oort. Got fedcg."),
        (["--label", "oort=random"], "Give each label another text. Got random, random."),
        (["--label", "oort"], "A --label is METHOD=TEXT. Got 'oort'."),
    ],
)
def test_a_label_that_names_no_method_is_refused(tuned, capsys, words, sentence):
    assert main(["report", str(tuned), *words]) == 2
    assert sentence in capsys.readouterr().err
