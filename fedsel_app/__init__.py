"""Flower app: entry points, settings, messages, data, models, wire format, network, records and random streams."""

import os
import resource
import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any

if resource.getrlimit(resource.RLIMIT_FSIZE)[0] != resource.RLIM_INFINITY:
    # On a full disk Python writes a part of a module's bytecode, and can then no longer import the module.
    sys.dont_write_bytecode = True
    os.environ["PYTHONDONTWRITEBYTECODE"] = "1"

from fedsel_app.imports import prefer_own_packages, refuse_namesakes, set_defaults

if TYPE_CHECKING:
    from simulation.apps.client.client_app import client_app as client_app
    from simulation.apps.server.strategy import strategy as strategy
    from simulation.workbench.python_interface.comparisons import ComparisonResult as ComparisonResult
    from simulation.workbench.python_interface.comparisons import compare as compare
    from simulation.workbench.python_interface.comparisons import load_comparison as load_comparison
    from simulation.workbench.python_interface.runs import RunResult as RunResult
    from simulation.workbench.python_interface.runs import load_run as load_run
    from simulation.workbench.python_interface.runs import run as run

OWN_APP = {"client_app": "simulation.apps.client.client_app", "strategy": "simulation.apps.server.strategy"}
"""Names for users' own Flower apps, and their modules."""
PYTHON = {
    **dict.fromkeys(("RunResult", "load_run", "run"), "simulation.workbench.python_interface.runs"),
    **dict.fromkeys(
        ("ComparisonResult", "compare", "load_comparison"), "simulation.workbench.python_interface.comparisons"
    ),
}
"""Names for scripts and notebooks, and their modules."""

prefer_own_packages()


def __getattr__(name: str) -> Any:
    """Import one of the public names on first use.

    Raises ImportError if a user's module has the name of one of fedsel's packages.
    """
    module = (OWN_APP | PYTHON).get(name)
    if module is None:
        raise AttributeError(f"The package {__name__} has no attribute {name!r}.")
    refuse_namesakes()
    if name in PYTHON:
        set_defaults()
    return getattr(import_module(module), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *OWN_APP, *PYTHON})
