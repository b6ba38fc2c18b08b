"""Imports: fedsel's packages and a user's modules with the same names, in one process and in Ray's workers."""

import importlib
import os
import subprocess
import sys

import pytest

from fedsel_app.imports import namesake, refuse_namesakes
from simulation.workbench.comparison.run_processes import FEDSEL
from tests.support.sources import ROOT

CONFLICT = r"{theirs} and fedsel's own package {ours} have the same name, 'clients', .* rename yours"


@pytest.fixture
def users(tmp_path, monkeypatch):
    """A folder first on the path with the user's packages `clients` and `strategies`, and a namespace `simulation`."""
    for name in ("clients", "strategies", "simulation"):
        (tmp_path / name).mkdir()
    (tmp_path / "clients" / "__init__.py").write_text("class Mine: ...\n")
    (tmp_path / "clients" / "mine.py").write_text("")
    (tmp_path / "strategies.py").write_text("")
    (tmp_path / "strategies").rmdir()
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path


def conflict(users):
    return CONFLICT.format(theirs=users / "clients", ours=ROOT / "clients")


def test_namesakes_are_modules_and_packages_but_no_plain_folders(users):
    assert [namesake(name) for name in ("clients", "strategies", "simulation")] == [
        users / "clients",
        users / "strategies.py",
        None,
    ]


def test_another_copy_of_fedsel_is_no_namesake(users):
    (users / "fedsel_app").mkdir()
    refuse_namesakes()


def test_a_users_app_with_a_namesake_is_refused_with_both_paths(users):
    import fedsel_app

    for name in ("strategy", "selecting", "client_app"):
        with pytest.raises(ImportError, match=conflict(users)):
            getattr(fedsel_app, name)


def test_a_missing_module_of_a_namesake_is_reported_with_both_paths(users):
    with pytest.raises(ImportError, match=conflict(users)):
        importlib.import_module("clients.mine")
    with pytest.raises(ImportError, match=conflict(users)):
        exec("from clients import Mine")
    (users / "clients" / "__init__.py").unlink()
    with pytest.raises(ModuleNotFoundError, match="clients"):
        importlib.import_module("clients.mine")


@pytest.mark.slow
def test_a_script_that_has_imported_its_own_namesake_gets_an_error(users):
    (users / "script.py").write_text("import clients\nimport fedsel_app\n")
    path = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "script.py"], cwd=users, env=path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert str(users / "clients") in done.stderr.splitlines()[-1]


@pytest.mark.slow
@pytest.mark.e2e
def test_rays_workers_find_fedsels_packages_from_a_folder_with_namesakes(users, tmp_path):
    """A Ray worker has the working directory first on its path."""
    (users / "simulation" / "__init__.py").write_text("")
    small = ["--rounds", "1", "--clients", "2", "--cohort", "1", "--set", "local-steps=1"]
    done = subprocess.run(
        [*FEDSEL, "run", "--engine", "ray", *small, "--out", str(tmp_path / "run")],
        cwd=users,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "run" / "summary.json").exists()
