"""Flower app: entry points, settings, messages, data, models, wire format, network, records and random streams."""

import os
import resource
import sys
from typing import TYPE_CHECKING, Any

if resource.getrlimit(resource.RLIMIT_FSIZE)[0] != resource.RLIM_INFINITY:
    # Python writes as much of a module's bytecode as fits, and cannot import the module any more after that.
    sys.dont_write_bytecode = True
    os.environ["PYTHONDONTWRITEBYTECODE"] = "1"

from fedsel_app.imports import prefer_own_packages, refuse_namesakes

if TYPE_CHECKING:
    from clients.selecting import selecting as selecting
    from simulation.flower_app.strategy import strategy as strategy

prefer_own_packages()


def __getattr__(name: str) -> Any:
    """Import a name for users' own Flower apps when it is asked for.

    Raises
    ------
    ImportError
        If a module of the user's has the name of one of fedsel's packages.
    """
    if name not in ("selecting", "strategy"):
        raise AttributeError(f"The package {__name__} has no attribute {name!r}.")
    refuse_namesakes()
    if name == "selecting":
        from clients.selecting import selecting

        return selecting
    from simulation.flower_app.strategy import strategy

    return strategy
