"""What the server app and the client app import of fedsel, and what the bundle holds."""

import sys
from concurrent.futures import ProcessPoolExecutor
from importlib import import_module
from multiprocessing import get_context

import pytest

TOPS = ("fedsel_app", "strategies", "clients", "simulation")
SERVER, CLIENT = "fedsel_app.server_app", "fedsel_app.flower_client"


def closure(app: str) -> list[str]:
    """Modules of fedsel that a process has imported after it has imported the module `app`: a fork of this one, which
    has imported what others wrote."""
    with ProcessPoolExecutor(1, get_context("fork")) as fork:
        return fork.submit(imported_anew, app).result()


def imported_anew(app: str) -> list[str]:
    for name in of_fedsel():
        del sys.modules[name]
    import_module(app)
    return of_fedsel()


def of_fedsel() -> list[str]:
    return [name for name in sys.modules if name.split(".")[0] in TOPS]


@pytest.mark.parametrize(
    ("app", "most", "foreign"),
    [
        (SERVER, 126, ("simulation",)),
        (CLIENT, 88, ("simulation", "strategies")),
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
