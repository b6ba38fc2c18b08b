"""A run to which no client contributes: a sentence with the clients' own reason, exit code 1, and no summary."""

from pathlib import Path

import pytest

import fedsel_app
from fedsel_app.records.files import RunFailed
from simulation.workbench.cli import main
from tests.support.programs import fedsel
from tests.support.rounds import read_rows
from tests.support.sources import ROOT

BROKEN = {"strategy": "random", "clients": "2", "cohort": "2", "rounds": "9", "model": "tests.cases.models:Broken"}
ARGUMENTS = [word for key, value in BROKEN.items() for word in (f"--{key}", value)] + ["--set", "curvature-layers=0"]
SENTENCE = (
    "The run has failed: in 3 rounds in a row no client brought a usable update. "
    "The reason, 6 of 6 times: the GPU is gone"
)


def check_records(folder: Path) -> None:
    failures = [{"client": client, "reason": "the GPU is gone"} for client in (0, 1)]
    assert [row["failures"] for row in read_rows(folder)] == [failures] * 3
    assert not (folder / "summary.json").exists()


def test_a_simulated_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", *ARGUMENTS, "--out", str(tmp_path / "run")]) == 1
    assert capsys.readouterr().err.splitlines()[-1] == f"fedsel: {SENTENCE}"
    check_records(tmp_path / "run")
    with pytest.raises(RunFailed, match="the GPU is gone"):
        fedsel_app.run(resume=tmp_path / "run")


@pytest.mark.slow
@pytest.mark.e2e
@pytest.mark.parametrize("command", [["run", "--engine", "ray"], ["deploy"]], ids=["ray", "deployed"])
def test_a_run_in_other_processes(tmp_path: Path, command: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    done = fedsel(*command, *ARGUMENTS, "--out", str(tmp_path / "run"))
    assert done.returncode == 1
    assert SENTENCE in done.stdout + done.stderr
    assert "Traceback" not in done.stdout + done.stderr
    check_records(tmp_path / "run")
