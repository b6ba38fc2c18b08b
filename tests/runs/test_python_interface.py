"""Python interface as users have it: the README's lines, the page, the notebook, and a script under mypy --strict."""

import doctest
import json
import os
import re
import runpy
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from fedsel_app import load_comparison
from simulation.workbench.python_interface import comparisons
from tests.support.documentation import PAGES, ROOT, code_blocks, code_spans
from tests.support.rounds import read_rows
from tests.support.scaled_down import compare_small, folder
from tests.support.transcripts import alike

__all__ = ["folder"]
NOTEBOOK = ROOT / "examples" / "notebook.ipynb"
SCRIPT = """
from fedsel_app import ComparisonResult, RunResult, compare, load_run, run

def accuracy(result: RunResult) -> float:
    return float(result.summary["final_accuracy"].iloc[0])

accuracy(run("oort", rounds=20, lr=0.1, compressor="top-k", oort_explore=0.5, settings={"mine.share": 0.5}))
accuracy(load_run("runs/oort"))
both: ComparisonResult = compare(["oort", "random"], seeds=[1, 2], grid={"alpha": [0.1, 1]}, out="runs/two", rounds=3)
both.plot().savefig("both.svg")
"""
WRONG = {
    'run("oort", rouds=20)': "rouds",
    'run("oort", rounds="20")': "rounds",
    'run("oort", compressor="top")': "compressor",
    'compare(["oort"], out="runs/two", seed=3)': "seed",
}


def test_the_lines_of_the_readme_and_the_page_run(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Scaled down as all commands of the documentation are; the page's output is compared in a test of its own."""
    monkeypatch.setattr(comparisons, "carry_out", compare_small)
    names: dict[str, Any] = {}
    calls = [
        span for span in code_spans(PAGES["README.md"]) if re.match(r"import fedsel$|fedsel\.(run|compare)\(", span)
    ]
    assert len(calls) == 3
    [block] = code_blocks(PAGES["docs/python.md"], "pycon")
    lines = [example.source for example in doctest.DocTestParser().get_examples(block)]
    spans = [span for span in code_spans(PAGES["docs/python.md"]) if re.match(r"(run|compare)\(\S", span)]
    assert len(spans) == 4
    for line in [*calls, *lines, *spans]:
        if "resume" in line:
            (folder / "runs/fed-cbs/summary.json").unlink()
        exec(line, names)
    assert len(names["load_run"](folder / "runs/fed-cbs").rounds) == 1


class Alike(doctest.OutputChecker):
    """Compares by `alike`, line by line, whatever the white space."""

    def check_output(self, want: str, got: str, optionflags: int) -> bool:
        shown, printed = ([" ".join(line.split()) for line in text.splitlines()] for text in (want, got))
        return len(shown) == len(printed) and all(map(alike, shown, printed))


@pytest.mark.slow
@pytest.mark.e2e
def test_the_page_shows_what_python_prints(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    [block] = code_blocks(PAGES["docs/python.md"], "pycon")
    shown = doctest.DocTestParser().get_doctest(block, {}, "docs/python.md", None, None)
    failed, tried = doctest.DocTestRunner(Alike()).run(shown)
    assert (failed, tried) == (0, 6)


def cells() -> list[str]:
    notebook = json.loads(NOTEBOOK.read_text(encoding="utf-8"))
    return ["".join(cell["source"]) for cell in notebook["cells"] if cell["cell_type"] == "code"]


@pytest.mark.e2e
def test_the_code_of_the_notebook_runs_and_its_frames_are_the_records(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """The cells as a script of few rounds and one seed, without a kernel, which the test below has."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(comparisons, "carry_out", compare_small)
    script = []
    for cell in cells():
        written = re.fullmatch(r"%%writefile (\S+)\n(.*)", cell, re.DOTALL)
        if written:
            (tmp_path / written[1]).write_text(written[2], encoding="utf-8")
        else:
            script.append(re.sub(r"rounds=\d+", "rounds=3", cell).replace("seeds=[1, 2]", "seeds=[1]"))
    (tmp_path / "script.py").write_text("\n\n".join(script), encoding="utf-8")
    runpy.run_path("script.py")
    assert capfd.readouterr().out == ""
    result = load_comparison(tmp_path / "runs/both")
    for name, frame in result.rounds.groupby("run"):
        lines = read_rows(tmp_path / "runs/both/runs" / str(name))
        for field in ("round", "selected", "accuracy", "loss", "time_s", "uplink_bytes", "wall_s"):
            assert frame[field].tolist() == [line[field] for line in lines]
    summaries = [json.loads((run.folder / "summary.json").read_text()) for run in result.runs.values()]
    assert result.summary["final_accuracy"].tolist() == [summary["final_accuracy"] for summary in summaries]
    assert result.summary["versions" not in result.summary.columns and "strategy"].nunique() == 2


@pytest.mark.slow
@pytest.mark.e2e
def test_the_notebook_runs_in_a_kernel(tmp_path: Path) -> None:
    nbclient, nbformat = pytest.importorskip("nbclient"), pytest.importorskip("nbformat")
    pytest.importorskip("ipykernel")
    notebook = nbformat.read(NOTEBOOK, 4)
    shown = [cell.outputs for cell in notebook.cells if cell.cell_type == "code"]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    nbclient.NotebookClient(notebook, timeout=400, resources={"metadata": {"path": str(tmp_path)}}).execute(
        env=environment
    )
    again = [cell.outputs for cell in notebook.cells if cell.cell_type == "code"]
    texts = [[output.get("data", output).get("text/plain") for output in outputs] for outputs in shown]
    assert [[output.get("data", output).get("text/plain") for output in outputs] for outputs in again] == texts
    assert sum("image/png" in output.get("data", {}) for outputs in again for output in outputs) == 2


@pytest.mark.slow
def test_a_users_script_is_checked_by_mypy_strict(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(SCRIPT, encoding="utf-8")
    wrong = "\n".join(["from fedsel_app import compare, run", *WRONG])
    (tmp_path / "wrong.py").write_text(wrong, encoding="utf-8")
    # As an installed package is treated: errors within it are not the user's.
    command = [sys.executable, "-m", "mypy", "--strict", "--follow-imports=silent", "--cache-dir", str(tmp_path / "c")]
    done = subprocess.run(
        [*command, "script.py", "wrong.py"],
        cwd=tmp_path,
        env=os.environ | {"MYPYPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    errors = [line for line in done.stdout.splitlines() if ": error:" in line]
    assert [line.split(":")[:2] for line in errors] == [["wrong.py", str(line)] for line in range(2, 2 + len(WRONG))]
    for line, word in zip(errors, WRONG.values(), strict=True):
        assert f'"{word}"' in line
