"""Runs stay resumable: at whatever moment a run is killed, one command begins or continues it."""

import os
import signal
from multiprocessing import get_context
from pathlib import Path

import pytest

from fedsel_app.records.fedsel_folder import MARKER, make_fedsel_folder
from simulation.operations.deployment import deployed_run, submission
from simulation.operations.deployment.flower_cli import DeploymentError, SubmittedRun
from simulation.operations.machines.folders import FederationFolders
from simulation.workbench.cli import main
from tests.support.users_files import tree

RUN = ["run", "--rounds", "1", "--clients", "2", "--cohort", "1", "--set", "local-steps=1", "--engine", "inline"]


def killed(words: list[str]) -> None:
    """`fedsel`, killed before config.json has its name."""
    real = os.replace

    def replace(source, target, **options):
        if str(target).endswith("config.json"):
            os.kill(os.getpid(), signal.SIGKILL)
        return real(source, target, **options)

    os.replace = replace
    main(words)


def test_a_run_that_was_killed_before_its_configuration_is_started_again(tmp_path):
    words = [*RUN, "--out", str(tmp_path / "run")]
    process = get_context("fork").Process(target=killed, args=(words,))
    process.start()
    process.join()
    assert process.exitcode == -signal.SIGKILL
    left = {path.name for path in (tmp_path / "run").iterdir()}
    assert {"rounds.jsonl", "config.json.part"} <= left
    assert "config.json" not in left
    assert main(words) == 0
    assert (tmp_path / "run" / "summary.json").exists()


@pytest.mark.parametrize("name", ["rounds.jsonl", "model.npz", "config.json"])
def test_records_of_an_unknown_run_are_not_overwritten(tmp_path, capsys, name):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / name).write_text('{"round": 1}\n')
    before = tree(tmp_path)
    assert main([*RUN, "--out", str(tmp_path / "run")]) == 2
    said = "already has a run" if name == "rounds.jsonl" else f"contains '{name}', which a run would overwrite"
    assert said in capsys.readouterr().err
    assert tree(tmp_path) == before


def test_a_deployment_that_ended_before_its_configuration_is_started_again(tmp_path, monkeypatch, capsys):
    class Ended(Exception):
        pass

    def ends(*arguments, **options):
        raise Ended

    monkeypatch.setattr(deployed_run, "Deployment", ends)
    words = ["deploy", *RUN[1:-2], "--out", str(tmp_path / "run")]
    make_fedsel_folder(tmp_path / "run" / "processes")
    with pytest.raises(Ended):
        main(words)
    (tmp_path / "run" / "processes" / MARKER).unlink()
    assert main(words) == 2
    assert "contains 'processes'" in capsys.readouterr().err


@pytest.fixture(scope="module")
def admin(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An admin's folder."""
    folder = tmp_path_factory.mktemp("made") / "federation"
    assert main(["provision", "--server", "localhost", "--clients", "2", "--out", str(folder)]) == 0
    return FederationFolders(folder).admin


class Server:
    """A server in place of Flower's: it says `lines` about a run, and then how the run ended."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.lines: list[str] = []
        self.refusal: BaseException | None = None
        self.status = "finished:completed"
        self.asked: list[dict[str, object]] = []
        monkeypatch.setattr(submission, "obstacle", lambda *about: None)
        monkeypatch.setattr(submission, "submit_to_flower", self.answer)

    def answer(self, app, run_config, home, on_line, on_start=lambda run_id: None):
        if self.refusal is not None:
            raise self.refusal
        on_start(len(self.asked) + 1)
        self.asked.append(dict(run_config))
        for line in self.lines:
            if line == "interrupt":
                raise KeyboardInterrupt
            if line == "lost":
                raise DeploymentError("The SuperLink has ended.")
            on_line(line)
        return SubmittedRun(1, self.status, "N/A")


def test_a_run_of_the_same_name_is_refused_and_leaves_what_resume_needs(admin, monkeypatch, capsys):
    server = Server(monkeypatch)
    command = ["submit", str(admin), "--cohort", "1", "--out", "mine"]
    server.lines = ["round 1 of 7: accuracy 0.5", "lost"]
    assert main([*command, "--rounds", "7"]) == 1
    assert main([*command, "--rounds", "9"]) == 2
    assert "A run mine was submitted before." in capsys.readouterr().err
    server.lines = ["round 2 of 7: accuracy 0.6"]
    assert main(["submit", str(admin), "--resume", "mine"]) == 0
    assert [asked["rounds"] for asked in server.asked] == [7, 7]
    assert server.asked[-1]["resume"] is True


@pytest.mark.parametrize(
    ("lines", "sentence"),
    [
        (
            ["1 of 2 clients enrolled; waiting until 18:17"],
            "No round was finished: correct the cause, and submit a new",
        ),
        (["round 1 of 7: accuracy 0.5"], "--resume failed"),
    ],
)
def test_only_a_run_that_has_trained_is_told_to_go_on(admin, monkeypatch, capsys, lines, sentence):
    server = Server(monkeypatch)
    server.status, server.lines = "finished:failed", lines
    assert main(["submit", str(admin), "--cohort", "1", "--out", "failed"]) == 1
    assert sentence in capsys.readouterr().out
    (admin / "submitted" / "failed.json").unlink()


def test_ctrl_c_of_submit_says_that_the_run_goes_on_and_how_to_end_it(admin, monkeypatch, capsys):
    server = Server(monkeypatch)
    server.lines = ["round 1 of 7: accuracy 0.5", "interrupt"]
    assert main(["submit", str(admin), "--cohort", "1", "--out", "cut"]) == 130
    said = capsys.readouterr().out
    assert f"`fedsel status {admin}` shows it; `fedsel stop {admin} cut` ends it." in said


def test_a_run_that_the_server_did_not_take_leaves_nothing_to_resume(admin, monkeypatch, capsys):
    """The settings of the run that never began stayed, and a later run of this name was resumed with them."""
    server = Server(monkeypatch)
    command = ["submit", str(admin), "--cohort", "1", "--out", "taken"]
    server.refusal = DeploymentError("The server does not accept the token.")
    assert main([*command, "--rounds", "7"]) == 1
    assert "--resume" not in capsys.readouterr().err
    server.refusal, server.lines = None, ["lost"]
    assert main([*command, "--rounds", "9"]) == 1
    assert f"fedsel submit {admin} --resume taken" in capsys.readouterr().err
    assert main(["submit", str(admin), "--resume", "taken"]) == 1
    assert [asked["rounds"] for asked in server.asked] == [9, 9]
