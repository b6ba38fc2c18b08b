"""Two releases of Flower give the same bits: `make test-newest` has both, the newest in layers over the first."""

import json
import subprocess
import sysconfig
from importlib.metadata import version
from pathlib import Path

import pytest

from tests.support.processes import FLEET_STARTS
from tests.support.programs import SMALL, fedsel
from tests.support.rounds import assert_same

FIRST = Path(sysconfig.get_path("purelib"), "first.pth")
"""File of an environment in layers that names the packages below it."""
RELEASE = "import json; from importlib.metadata import version; print(json.dumps(version('flwr')))"


@pytest.mark.e2e
@pytest.mark.skipif(not FIRST.is_file(), reason="one release of Flower; `make test-newest` has two")
def test_the_newest_release_gives_the_bits_of_the_first(tmp_path: Path) -> None:
    below = Path(FIRST.read_text().strip()).parents[2] / "bin"
    asked = subprocess.run([below / "python", "-c", RELEASE], capture_output=True, text=True, check=True)
    assert json.loads(asked.stdout) != version("flwr")
    run = [below / "fedsel", "run", *SMALL, "--out", str(tmp_path / "first")]
    done = subprocess.run(run, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    for name, command in {"simulated": ["run", "--set", "workers=2"], "deployed": ["deploy"]}.items():
        folder = tmp_path / name
        done = fedsel(*command, *SMALL, "--set", "links=simulated", "--out", str(folder))
        assert done.returncode == 0, done.stdout + done.stderr
        assert_same(folder, tmp_path / "first")
    assert FLEET_STARTS in (tmp_path / "deployed/processes/logs/superlink.log").read_text()
