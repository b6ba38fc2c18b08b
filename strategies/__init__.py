"""Selection methods: one file each, its equations first and its Flower strategy last."""

from fedsel_app.config import ConfigError
from fedsel_app.plugins import load_object, unknown_name
from strategies.active_fl import ActiveFL
from strategies.adafl import AdaFL
from strategies.adasample import AdaSample
from strategies.base import SelectionStrategy
from strategies.clustered_sampling import ClusteredSampling
from strategies.delta import Delta
from strategies.divfl import DivFL
from strategies.fed_cbs import FedCBS
from strategies.fedcg import FedCG
from strategies.fedcor import FedCor
from strategies.fedcvr_bolt import FedCVRBolt
from strategies.flexcom import FlexCom
from strategies.full import FullParticipation
from strategies.hetero_select import HeteroSelect
from strategies.hetero_select_stable import HeteroSelectStable
from strategies.hics_fl import HiCSFL
from strategies.oort import Oort
from strategies.optrate import OptRate
from strategies.power_of_choice import PowerOfChoice
from strategies.random_selection import RandomSelection
from strategies.random_weighted import RandomWeighted
from strategies.terraform import Terraform

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
