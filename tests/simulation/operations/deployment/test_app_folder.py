"""App folder: its bundle is bit-identical to that of the checkout, and no file of the user changes."""

import hashlib
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from flwr.cli.build import build_fab_from_disk

from fedsel_app.config.plugins import PACKAGES
from fedsel_app.records.fedsel_folder import MARKER
from tests.support.sources import ROOT

SHOW = "from simulation.operations.deployment.app_folder import app_folder; print(app_folder())"


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder with the files of a wheel; beside it the copy of the checkout, without an environment, that it is of."""
    folder = tmp_path_factory.mktemp("wheel")
    for name in PACKAGES:
        shutil.copytree(ROOT / name, folder / "fedsel" / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE", "setup.py", "fedsel.py"):
        shutil.copy(ROOT / name, folder / "fedsel")
    build = "from setuptools.build_meta import build_wheel; build_wheel('..')"
    subprocess.run([sys.executable, "-c", build], cwd=folder / "fedsel", check=True, capture_output=True)
    (built,) = folder.glob("*.whl")
    with zipfile.ZipFile(built) as archive:
        archive.extractall(folder / "installed")
    return folder / "installed"


def shown(wheel: Path, cache: Path) -> subprocess.CompletedProcess[str]:
    """Output about the app folder of a process with the wheel's packages."""
    variables = os.environ | {"PYTHONPATH": str(wheel), "XDG_CACHE_HOME": str(cache)}
    command = [sys.executable, "-c", SHOW]
    return subprocess.run(command, cwd=cache, env=variables, capture_output=True, text=True, check=False)


def digest(app: Path) -> str:
    return hashlib.sha256(build_fab_from_disk(app)).hexdigest()


def test_a_wheel_gives_the_bundle_of_the_checkout_and_mends_its_copy(wheel, tmp_path):
    folder, checkout = Path(shown(wheel, tmp_path).stdout.strip()), digest(wheel.with_name("fedsel"))
    assert folder.is_relative_to(tmp_path / "fedsel")
    assert digest(folder) == checkout
    (folder / "README.md").write_text("")
    (folder / "strategies" / "foreign.py").touch()
    assert digest(folder) != checkout
    assert shown(wheel, tmp_path).stdout.strip() == str(folder)
    assert digest(folder) == checkout
    assert shown(ROOT, tmp_path).stdout.strip() == str(folder), "a checkout gives the same copy"


def test_a_folder_of_the_users_in_the_cache_is_left_alone(tmp_path):
    (tmp_path / "fedsel").mkdir()
    (tmp_path / "fedsel" / "mine").write_text("the user's own")
    done = shown(ROOT, tmp_path)
    assert done.returncode != 0
    assert "Set XDG_CACHE_HOME" in done.stderr
    assert [path.name for path in (tmp_path / "fedsel").iterdir()] == ["mine"]
    assert not (tmp_path / "fedsel" / MARKER).exists()


@pytest.mark.e2e
@pytest.mark.slow
def test_a_wheel_deploys_from_a_folder_with_packages_of_the_users(wheel, tmp_path):
    for name in ("clients", "tests"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text("raise RuntimeError('the user\\'s own')")
    variables = os.environ | {"PYTHONPATH": str(wheel), "XDG_CACHE_HOME": str(tmp_path / "cache")}
    begin = [sys.executable, "-c", "import sys, simulation.workbench.cli as cli; sys.exit(cli.main(sys.argv[1:]))"]
    deploy = [*begin, "deploy", "--clients", "3", "--cohort", "2", "--rounds", "2", "--out", "run"]
    done = subprocess.run(deploy, cwd=tmp_path, env=variables, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert len((tmp_path / "run" / "rounds.jsonl").read_text().splitlines()) == 2
