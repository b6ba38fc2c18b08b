"""Selection methods: one file each, its equations first and its Flower strategy last."""

from fedsel_app.config import ConfigError
from fedsel_app.plugins import load_object, unknown_name
from strategies.base import SelectionStrategy
from strategies.hetero_select import HeteroSelect
from strategies.random_selection import RandomSelection

STRATEGIES: dict[str, type[SelectionStrategy]] = {
    method.name: method
    for method in (
        HeteroSelect,
        RandomSelection,
    )
}


def find_strategy(name: str) -> type[SelectionStrategy]:
    """The class behind a `strategy` setting: a method's name, or package.module:Class.

    Raises
    ------
    ConfigError
        If there is no such method, or the class is not a SelectionStrategy.
    """
    if name in STRATEGIES:
        return STRATEGIES[name]
    if ":" not in name:
        raise unknown_name("strategy", name, STRATEGIES)
    found = load_object(name, "strategy")
    if not (isinstance(found, type) and issubclass(found, SelectionStrategy)):
        raise ConfigError(f"The 'strategy' parameter must name a subclass of SelectionStrategy. Got {name!r}.")
    return found
