"""Log of a deployed run, as a user sees it."""

import io
from contextlib import nullcontext
from types import SimpleNamespace

import pytest
from rich.console import Console

from fedsel_app.config import ConfigError
from fedsel_app.wiring.configuration import resolve
from simulation.operations.deployment import deployed_run
from simulation.operations.deployment.deployed_run import run_deployed, show_line
from simulation.operations.deployment.flower_cli import SubmittedRun


def test_the_log_is_piped_without_colours_and_what_goes_well_in_flower(capsys):
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


@pytest.mark.parametrize(("key", "value"), [("score", "r2"), ("initial-model", "gone.npz"), ("attack", "sign-flip")])
def test_what_the_server_would_refuse_is_refused_before_its_process_starts(key, value, tmp_path):
    config = resolve({"out": str(tmp_path / "run"), "clients": 3, "cohort": 1, key: value})
    with pytest.raises(ConfigError, match=key):
        run_deployed(config, Console(file=io.StringIO()), lambda folder, console: None)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("written", "code", "words"),
    [
        ((), 1, "The run failed. The disk is gone.\n"),
        (("config.json",), 1, "The run failed. The disk is gone.\nGo on with: fedsel deploy --resume {out}\n"),
        (("config.json", "rounds.jsonl", "summary.json"), 0, ""),
    ],
)
def test_a_deployed_run_says_where_its_logs_are_and_how_it_goes_on(written, code, words, tmp_path, monkeypatch):
    """A failure of a process after the summary is no failure of the run."""
    out, printed = tmp_path / "run", io.StringIO()

    def submitted(*_):
        out.mkdir()
        for name in written:
            (out / name).touch()
        return SubmittedRun(1, "finished:failed", "The disk is gone.")

    monkeypatch.setattr(deployed_run, "Deployment", lambda *_, **__: nullcontext(SimpleNamespace(flwr_home=tmp_path)))
    monkeypatch.setattr(deployed_run, "submit_to_flower", submitted)
    config = resolve({"out": str(out), "clients": 3, "cohort": 1})
    assert run_deployed(config, Console(file=printed, width=80), lambda folder, console: None) == code
    start = f"Starting one SuperLink and 3 SuperNodes. Logs: {out}/processes/logs\n"
    assert printed.getvalue().startswith(start + words.format(out=out))
