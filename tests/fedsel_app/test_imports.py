"""Imports: fedsel's packages and a user's modules with the same names, in one process and in Ray's workers."""

import importlib
import os
import re
import subprocess
import sys

import pytest

import fedsel
from fedsel_app.imports import refuse_namesakes
from simulation.workbench.comparison.run_processes import FEDSEL
from tests.support.sources import ROOT

CONFLICT = r"^Rename {theirs}: it and fedsel's own package {ours} {both}, and a process can import only one of them\.$"


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


def conflict(users, name="clients", both="share this name"):
    return CONFLICT.format(theirs=users / name, ours=ROOT / name.removesuffix(".py"), both=both)


def test_another_copy_of_fedsel_is_no_namesake(users):
    (users / "fedsel_app").mkdir()
    refuse_namesakes()


def test_only_a_module_of_both_packages_is_refused(users):
    with pytest.raises(ImportError, match=conflict(users, "strategies.py")):
        _ = fedsel.strategy
    (users / "strategies.py").unlink()
    for name in ("strategy", "client_app", "run"):
        assert callable(getattr(fedsel, name))
    (users / "clients" / "state.py").write_text("")
    with pytest.raises(ImportError, match=conflict(users, both="both have state.py")):
        _ = fedsel.client_app


def test_a_module_that_only_the_users_package_has_is_found_and_a_name_of_it_is_refused(users, monkeypatch):
    monkeypatch.delitem(sys.modules, "clients.mine", raising=False)
    assert importlib.import_module("clients.mine").__file__ == str(users / "clients" / "mine.py")
    with pytest.raises(ImportError, match=conflict(users)):
        exec("from clients import Mine")


def test_a_users_package_that_is_imported_first_keeps_its_modules(users):
    """A module of a folder without __init__.py is found too."""
    (users / "strategies.py").unlink()
    (users / "simulation" / "world.py").write_text("")
    program = "import clients.mine as first; from clients import Mine; import fedsel, simulation.world; "
    program += "import clients.compressors, clients.mine; assert clients.mine is first; import simulation.workbench"
    command = [sys.executable, "-c", program]
    environment = os.environ | {"PYTHONPATH": f"{users}{os.pathsep}{ROOT}"}
    done = subprocess.run(command, env=environment, cwd=users, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    (users / "clients" / "state.py").write_text("")
    done = subprocess.run(command, env=environment, cwd=users, capture_output=True, text=True, check=False)
    assert re.match(conflict(users, both="both have state.py")[1:], done.stderr.splitlines()[-1].partition(": ")[2])


def test_importing_fedsel_loads_neither_torch_nor_flower():
    program = "import fedsel, sys; print([name for name in ('torch', 'flwr', 'numpy') if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


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
