"""Log of a deployed run, as a user sees it."""

import io
from pathlib import Path

import pytest
from rich.console import Console

from fedsel_app.wiring.configuration import resolve
from simulation.deployment import deployed_run
from simulation.deployment.deployed_run import run_submitted, show_line
from simulation.deployment.flower_cli import SubmittedRun


def test_the_log_is_piped_without_colours_and_what_goes_well_in_flower(
    capsys: pytest.CaptureFixture[str],
) -> None:
    for line in (
        "Using SuperLink: fedsel (localhost:9093)",
        "\x1b[92mINFO \x1b[0m:      Start `flwr-serverapp` process",
        "INFO :      ",
        "Successfully installed fedsel to /home/apps.",
        "round 1 of 2: accuracy 0.5",
        "\x1b[93mWARNING \x1b[0m:   Client 3 left",
    ):
        show_line(line)
    assert capsys.readouterr().out == "round 1 of 2: accuracy 0.5\nWARNING :   Client 3 left\n"


@pytest.mark.parametrize(
    ("status", "details", "said"),
    [
        ("finished:completed", "N/A", "The run is finished.\n"),
        ("finished:failed", "Only 2 of 3 clients connected.", "The run failed. Only 2 of 3 clients connected.\n"),
        ("finished:stopped", "N/A", "The run stopped.\n"),
    ],
)
def test_the_outcome_is_told_in_words(
    status: str, details: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(deployed_run, "submit_to_flower", lambda *_: SubmittedRun(1, status, details))
    written = io.StringIO()
    run_submitted(resolve({"out": str(tmp_path / "run")}), "local", None, Console(file=written, width=80))
    assert written.getvalue() == said
