"""What the server app and the client app import of fedsel, and what the bundle holds."""

import subprocess
import sys

import pytest

from tests.support.sources import ROOT

TOPS = ("fedsel_app", "strategies", "clients", "simulation")
IMPORTED = "import sys, {app}; print(*sorted(name for name in sys.modules if name.split('.')[0] in {tops}), sep='\\n')"
SERVER, CLIENT = "fedsel_app.server_app", "fedsel_app.flower_client"


def closure(app: str) -> list[str]:
    """Modules of fedsel that a process has imported after it has imported the module `app`."""
    command = [sys.executable, "-c", IMPORTED.format(app=app, tops=TOPS)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    return done.stdout.split()


@pytest.mark.parametrize(
    ("app", "most", "foreign"),
    [
        (SERVER, 130, ("simulation",)),
        (CLIENT, 79, ("simulation", "strategies")),
        ("strategies.roster", 10, ("simulation", "clients")),
        ("strategies.methods.full", 15, ("simulation", "clients", "strategies.round", "strategies.run")),
    ],
)
def test_an_app_and_a_method_import_little_of_fedsel_and_nothing_from_behind_the_wall(
    app: str, most: int, foreign: tuple[str, ...]
) -> None:
    modules = closure(app)
    print(f"{app}: {len(modules)} modules of fedsel")
    assert [name for name in modules if name.startswith(foreign)] == []
    assert len(modules) <= most
