"""The built app: `flwr build` leaves nothing out, and a run from an empty folder gives the bits of the checkout."""

import os
import shutil
import sys
import zipfile
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import pytest
from flwr.cli.app import typer_click_object

from tests.support.in_process import run_in_process
from tests.support.rounds import rounds
from tests.support.sources import ROOT

PACKAGES = ("fedsel_app", "strategies", "clients")


def bundled_run(installed: Path, out: Path) -> str:
    """A run in a fork of this process that has nothing of the checkout but these tests. The file of its package."""
    for name in [*sys.modules]:
        if name.startswith((*PACKAGES, "simulation", "tests.support")):
            del sys.modules[name]
    sys.path.insert(0, str(installed))
    os.chdir(installed)
    import fedsel_app

    sys.modules["simulation"] = None  # type: ignore[assignment]  # the bundle does without it
    from fedsel_app.wiring.configuration import resolve
    from fedsel_app.wiring.server import run_with
    from strategies.round.flower_grid import FlowerGrid
    from tests.support.flower_state import become_task
    from tests.support.in_process_grid import grid_of

    become_task(pytest.MonkeyPatch())
    config = resolve({"clients": 3, "cohort": 2, "rounds": 2, "out": str(out)})
    run_with(FlowerGrid(grid_of(config)), config, lambda row: None)
    return str(fedsel_app.__file__)


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

    with ProcessPoolExecutor(1, get_context("fork")) as fork:
        assert fork.submit(bundled_run, installed, tmp_path / "run").result().startswith(str(installed))
    run_in_process(tmp_path / "here", clients=3, cohort=2, rounds=2)
    assert rounds(tmp_path / "run") == rounds(tmp_path / "here")
