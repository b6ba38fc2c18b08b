"""The built app: `flwr build` leaves nothing out, and a run from an empty folder gives the bits of the checkout."""

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from flwr.cli.app import typer_click_object

from tests.support.in_process import run_in_process
from tests.support.programs import flower_home
from tests.support.rounds import rounds
from tests.support.sources import ROOT

PACKAGES = ("fedsel_app", "strategies", "clients")
BUNDLED_RUN = """
import sys
import fedsel_app
sys.modules["simulation"] = None  # the bundle does without it
from fedsel_app.wiring.configuration import resolve
from fedsel_app.wiring.server import run_with
from strategies.round.flower_grid import FlowerGrid
sys.path.append({tests!r})
from pytest import MonkeyPatch
from tests.support.flower_state import become_task
from tests.support.in_process_grid import grid_of
become_task(MonkeyPatch())
config = resolve(dict(clients=3, cohort=2, rounds=2, out={folder!r}))
run_with(FlowerGrid(grid_of(config)), config, lambda row: None)
print(fedsel_app.__file__)
"""
__all__ = ["flower_home"]


def carry_out(command: list[str], folder: Path, **variables: str) -> str:
    """Output of a command that must succeed, started in `folder`."""
    done = subprocess.run(
        command, cwd=folder, env=os.environ | variables, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def flwr(arguments: list[str], folder: Path) -> None:
    """Carry out a command of Flower in this process, as if in `folder`, which is FLWR_HOME as well."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setenv("FLWR_HOME", str(folder))
        typer_click_object.main(arguments, standalone_mode=False)


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Bundle that `flwr build` makes of the checkout, in a copy whose folder has a name as Flower wants it."""
    checkout = tmp_path_factory.mktemp("sources") / "fedsel"
    for name in PACKAGES:
        shutil.copytree(ROOT / name, checkout / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE", ".gitignore"):
        shutil.copy(ROOT / name, checkout)
    empty = tmp_path_factory.mktemp("built")
    flwr(["build", "--app", str(checkout)], empty)
    (built,) = empty.iterdir()
    return built


@pytest.fixture(scope="module")
def installed(bundle: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder into which `flwr install` has put the bundle."""
    home = tmp_path_factory.mktemp("empty")
    flwr(["install", str(bundle)], home)
    (folder,) = (home / "apps").iterdir()
    return folder


@pytest.mark.e2e
def test_a_run_from_the_built_app_in_an_empty_folder(bundle: Path, installed: Path, tmp_path: Path) -> None:
    sources = {path.relative_to(ROOT) for name in PACKAGES for path in (ROOT / name).rglob("*") if path.is_file()}
    # For the interpreter, type checkers and tests of methods, not for a run.
    marks = ("__pycache__", "py.typed", "setting_keywords.pyi", "testing")
    sources = {path.as_posix() for path in sources if not {*marks} & {*path.parts}}
    with zipfile.ZipFile(bundle) as archive:
        assert sources | {"pyproject.toml", "README.md", "LICENSE"} == {*archive.namelist()} - {".info/CONTENT"}

    program = BUNDLED_RUN.format(tests=str(ROOT), folder=str(tmp_path / "run"))
    assert carry_out([sys.executable, "-c", program], installed).startswith(str(installed))
    run_in_process(tmp_path / "here", clients=3, cohort=2, rounds=2)
    assert rounds(tmp_path / "run") == rounds(tmp_path / "here")
