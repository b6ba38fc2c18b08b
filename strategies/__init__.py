"""Strategies: the registry of selection methods, and the round that all of them share."""

from fedsel_app.config import ConfigError
from fedsel_app.config.plugins import load_object, unknown_name
from strategies.base import SelectionStrategy
from strategies.methods.active_fl import ActiveFL
from strategies.methods.adafl import AdaFL
from strategies.methods.adasample import AdaSample
from strategies.methods.clustered_sampling import ClusteredSampling
from strategies.methods.delta import Delta
from strategies.methods.divfl import DivFL
from strategies.methods.fed_cbs import FedCBS
from strategies.methods.fedcg import FedCG
from strategies.methods.fedcor import FedCor
from strategies.methods.fedcvr_bolt import FedCVRBolt
from strategies.methods.flexcom import FlexCom
from strategies.methods.full import FullParticipation
from strategies.methods.hetero_select import HeteroSelect
from strategies.methods.hetero_select_stable import HeteroSelectStable
from strategies.methods.hics_fl import HiCSFL
from strategies.methods.oort import Oort
from strategies.methods.optrate import OptRate
from strategies.methods.power_of_choice import PowerOfChoice
from strategies.methods.random_selection import RandomSelection
from strategies.methods.random_weighted import RandomWeighted
from strategies.methods.terraform import Terraform
from strategies.roster import Needs, Outcome, Roster, RoundInfo, Selection
from strategies.round.method_checks import check_class

__all__ = ["STRATEGIES", "Needs", "Outcome", "Roster", "RoundInfo", "Selection", "SelectionStrategy", "find_strategy"]

STRATEGIES: dict[str, type[SelectionStrategy]] = {
    method.name: method
    for method in (
        HeteroSelect,
        HeteroSelectStable,
        Terraform,
        FedCVRBolt,
        RandomSelection,
        RandomWeighted,
        FullParticipation,
        PowerOfChoice,
        Oort,
        ActiveFL,
        FedCor,
        FedCBS,
        Delta,
        HiCSFL,
        DivFL,
        ClusteredSampling,
        AdaFL,
        FedCG,
        OptRate,
        FlexCom,
        AdaSample,
    )
}


def find_strategy(name: str) -> type[SelectionStrategy]:
    """Class of a `strategy` setting: a method's name, or package.module:Class.

    Raises ConfigError if there is no such method, or the class is not a SelectionStrategy or cannot be run.
    """
    if name in STRATEGIES:
        return STRATEGIES[name]
    if ":" not in name:
        raise unknown_name("strategy", name, STRATEGIES)
    found = load_object(name, "strategy")
    if not (isinstance(found, type) and issubclass(found, SelectionStrategy)):
        raise ConfigError(f"The 'strategy' parameter must name a subclass of SelectionStrategy. Got {name!r}.")
    check_class(found, STRATEGIES)
    return found
