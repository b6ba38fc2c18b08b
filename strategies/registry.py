"""Registry of the selection methods. A method is imported when its name is asked for."""

from collections.abc import Iterator, Mapping
from importlib import import_module

from fedsel_app.config import ConfigError
from fedsel_app.config.plugins import load_object, unknown_name
from strategies.base import SelectionStrategy
from strategies.round.method_checks import check_class

METHODS = {
    "hetero-select": "hetero_select:HeteroSelect",
    "hetero-select-stable": "hetero_select_stable:HeteroSelectStable",
    "terraform": "terraform:Terraform",
    "fedcvr-bolt": "fedcvr_bolt:FedCVRBolt",
    "random": "random_selection:RandomSelection",
    "random-weighted": "random_weighted:RandomWeighted",
    "full": "full:FullParticipation",
    "power-of-choice": "power_of_choice:PowerOfChoice",
    "oort": "oort:Oort",
    "active-fl": "active_fl:ActiveFL",
    "fedcor": "fedcor:FedCor",
    "fed-cbs": "fed_cbs:FedCBS",
    "delta": "delta:Delta",
    "hics-fl": "hics_fl:HiCSFL",
    "divfl": "divfl:DivFL",
    "clustered-sampling": "clustered_sampling:ClusteredSampling",
    "adafl": "adafl:AdaFL",
    "fedcg": "fedcg:FedCG",
    "optrate": "optrate:OptRate",
    "flexcom": "flexcom:FlexCom",
    "adasample": "adasample:AdaSample",
}
"""Method name -> its file in `strategies/methods/`, and its class."""


class Registry(Mapping[str, type[SelectionStrategy]]):
    """Method name -> its class, in the order of `METHODS`."""

    def __getitem__(self, name: str) -> type[SelectionStrategy]:
        module, _, kind = METHODS[name].partition(":")
        method: type[SelectionStrategy] = getattr(import_module(f"strategies.methods.{module}"), kind)
        return method

    def __contains__(self, name: object) -> bool:
        return name in METHODS

    def __iter__(self) -> Iterator[str]:
        return iter(METHODS)

    def __len__(self) -> int:
        return len(METHODS)


STRATEGIES = Registry()


def find_strategy(name: str) -> type[SelectionStrategy]:
    """Class of a `strategy` setting: a method's name, or package.module:Class.

    Raises ConfigError if there is no such method, or the class is not a SelectionStrategy or cannot be run.
    """
    if name in STRATEGIES:
        return STRATEGIES[name]
    if ":" not in name:
        raise unknown_name("strategy", name, STRATEGIES)
    method = load_object(name, "strategy")
    if not (isinstance(method, type) and issubclass(method, SelectionStrategy)):
        raise ConfigError(f"The 'strategy' parameter must name a subclass of SelectionStrategy. Got {name!r}.")
    check_class(method, STRATEGIES)
    return method
