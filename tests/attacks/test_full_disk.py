"""File-size limits and quotas: as on a full disk, a command ends with a sentence about the file, and in time."""

import subprocess
import sys
from dataclasses import replace

import pytest

from fedsel_app.records.files import MachineFault, RunFailed
from fedsel_app.wiring.configuration import resolve
from fedsel_app.wiring.server import run_with
from simulation.workbench.cli import main
from strategies.round.flower_grid import FlowerGrid
from tests.support.full_disk import no_file_above
from tests.support.in_process import run_config, run_in_process
from tests.support.in_process_grid import grid_of

pytestmark = pytest.mark.usefixtures("task_identity")

SMALL = ("--rounds", "2", "--clients", "2", "--cohort", "1", "--set", "local-steps=1", "--set", "checkpoint-every=1")


@pytest.mark.timeout(60)
@pytest.mark.parametrize("limit_bytes", [0, 1000, 10_000])
def test_an_inline_run_ends_with_a_sentence_about_the_file(tmp_path, capsys, limit_bytes):
    arguments = ["run", "--strategy", "random", "--engine", "inline", *SMALL, "--out", str(tmp_path / "run")]
    with no_file_above(limit_bytes):
        code = main(arguments)
    error = capsys.readouterr().err
    assert code in (1, 2)
    assert error.count("\n") == 1
    assert str(tmp_path / "run") in error
    assert "File too large" in error
    assert limit_bytes > 1000 or not any((tmp_path / "run").iterdir())


def test_a_run_that_the_limit_ended_goes_on_without_it(tmp_path, capsys):
    arguments = ["run", "--strategy", "random", "--engine", "inline", *SMALL]
    with no_file_above(10_000):
        assert main([*arguments, "--out", str(tmp_path / "run")]) == 1
    assert main(["run", "--engine", "inline", "--resume", str(tmp_path / "run")]) == 0
    assert main([*arguments, "--out", str(tmp_path / "whole")]) == 0
    models = [(tmp_path / name / "model.npz").read_bytes() for name in ("run", "whole")]
    assert models[0] == models[1]


@pytest.mark.timeout(60)
def test_ray_is_not_started_under_a_limit_that_kills_it(tmp_path, capsys):
    """A raylet under 40 KiB is killed by SIGXFSZ; the run stood still for a minute and more, and did not end."""
    arguments = ["run", "--strategy", "random", "--engine", "ray", *SMALL, "--out", str(tmp_path / "run")]
    with no_file_above(40 << 10):
        assert main(arguments) == 2
    assert "Files of this process may have 40960 bytes (`ulimit -f`)" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


@pytest.mark.timeout(60)
def test_a_report_names_the_file_that_does_not_fit(tmp_path, capsys):
    run_in_process(tmp_path / "run", rounds=1, clients=2, cohort=1, local_steps=1)
    with no_file_above(1000):
        assert main(["report", str(tmp_path / "run")]) == 1
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert str(tmp_path / "run" / "report") in error


def test_under_a_limit_no_bytecode_is_written(tmp_path):
    """Python writes as much of it as fits, and the module cannot be imported any more after that."""
    code = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (9, 9)); import fedsel_app, sys; "
    code += "print(sys.dont_write_bytecode)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "True\n"


@pytest.fixture(params=[1, 4])
def unwritable(tmp_path, request):
    """Settings of a run of four clients, of which one or all train, and none can write its state."""
    (tmp_path / "states").touch()
    states = str(tmp_path / "states")
    return resolve({"clients": 4, "cohort": request.param, "rounds": 3, "local-steps": 1, "state-dir": states})


def test_a_simulated_client_that_cannot_write_its_state_ends_the_run(tmp_path, unwritable):
    """Inline it did; in Ray's workers, which answer for one client or for several, the client counted as failed."""
    with pytest.raises(MachineFault, match=r"Client \d cannot write its state to .*Free the disk.*--resume"):
        run_config(tmp_path / "run", unwritable, pool=2)


def test_a_deployed_client_that_cannot_write_its_state_has_failed(tmp_path, unwritable):
    config = replace(unwritable, records=replace(unwritable.records, out=str(tmp_path / "run")))
    with pytest.raises(RunFailed, match=r"Client \d cannot write its state to "):
        run_with(FlowerGrid(grid_of(config)), config, lambda row: None)
