"""Strategies: the registry of selection methods, and the round that all of them share."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from strategies.roster import Needs, Outcome, Roster, RoundInfo, Selection

if TYPE_CHECKING:
    from strategies.base import SelectionStrategy
    from strategies.registry import STRATEGIES, find_strategy

__all__ = ["STRATEGIES", "Needs", "Outcome", "Roster", "RoundInfo", "Selection", "SelectionStrategy", "find_strategy"]

LATER = {
    "STRATEGIES": "strategies.registry",
    "SelectionStrategy": "strategies.base",
    "find_strategy": "strategies.registry",
}
"""Names that are imported on first use, and their modules."""


def __getattr__(name: str) -> Any:
    """Import one of the names `LATER`."""
    if name not in LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(LATER[name]), name)
