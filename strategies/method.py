"""Interface of a selection method: the knowledge it needs, its selection, and what it learns from a round.

A method is a final subclass of `strategies.base.SelectionStrategy`, which runs the round around it. It must define only
`name`, `paper` and `select`. `select` and `candidates` are pure; only `update` changes state.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Generic, NoReturn, cast, get_args

import numpy as np
from numpy.typing import NDArray
from typing_extensions import TypeVar

from fedsel_app.config import Settings
from strategies.checkpoint import Arrays, Stateful, gather, load_fields, save_fields, scatter
from strategies.roster import Ints, Needs, Outcome, Roster, RoundInfo, Selection, undeclared

if TYPE_CHECKING:
    from fedsel_app.config import BudgetConfig, CompressionConfig, RunConfig, SharedSettings, TrainingConfig
    from fedsel_app.models.layer_slice import LayerSlice
    from fedsel_app.network.links import Links
    from strategies.selection_math.similarity import LastUpdates

ConfigT = TypeVar("ConfigT", bound=Settings, default=Any)


@dataclass(frozen=True, kw_only=True)
class MethodContext:
    """What a method may read of its run.

    Attributes
    ----------
    method : values of the method's own settings
    run, training, compression, budget : shared settings
    initial : float32 (N,), the initial model
    layers : its layers; the last is the output layer
    classes : size of the output layer
    links : links of the clients
    """

    method: Settings
    run: "RunConfig"
    training: "TrainingConfig"
    compression: "CompressionConfig"
    budget: "BudgetConfig"
    initial: NDArray[np.float32]
    layers: "tuple[LayerSlice, ...]"
    classes: int
    links: "Links"


class SelectionMethod(ABC, Generic[ConfigT]):
    """Selection method: class attributes and functions. Only `select` has no default.

    Attributes
    ----------
    name : value of the setting `strategy`, and prefix of the method's own settings
    paper : citation
    Config : class of the method's settings, given as the type argument: `class Mine(SelectionStrategy[MyConfig])`
    config : values of the settings in this run
    exact_cohort : the method selects the requested number of clients (False: draws with replacement, full
        participation)
    explores : every client is selected over many rounds
    free_cohort : a participation policy or over-selection may set the cohort's size
    needs_whole_cohort : why only a server that waits for its cohort can use the method, as a clause; empty: any can
    needs_all_selected : why over-selection cannot be used, which takes the first replies, as a clause; empty: it can
    without_updates : setting with which the method needs no single updates, as 'name' to value; empty: there is none
    state_fields : attributes that `update` changes, arrays and numbers; a checkpoint saves them
    last_updates : each client's last update. Reading it raises ConfigError unless `needs` asks for updates
    whole_roster : the roster that the rounds write
    run : the `strategies.run.Run` of a `SelectionStrategy`
    """

    name: ClassVar[str]
    paper: ClassVar[str]
    Config: ClassVar[type[Settings]] = Settings
    exact_cohort: ClassVar[bool] = True
    explores: ClassVar[bool] = True
    free_cohort: ClassVar[bool] = True
    needs_whole_cohort: ClassVar[str] = ""
    needs_all_selected: ClassVar[str] = ""
    without_updates: ClassVar[str] = ""
    state_fields: ClassVar[tuple[str, ...]] = ()
    run: Any
    last_updates: "LastUpdates"

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        arguments = [argument for base in vars(cls).get("__orig_bases__", ()) for argument in get_args(base)]
        for argument in arguments:
            if isinstance(argument, type) and issubclass(argument, Settings):
                cls.Config = argument

    def __init__(self, context: MethodContext) -> None:
        if not isinstance(context.method, self.Config):
            raise TypeError(f"{self.name} takes a {self.Config.__name__}. Got {type(context.method).__name__}.")
        self.config = cast(ConfigT, context.method)
        self.context = context
        self._needs = self.needs(self.config)
        self.whole_roster = Roster(context.run.clients, self._needs.metrics, self._needs.fit_metrics)
        if self._needs.updates:
            from strategies.selection_math.similarity import LastUpdates

            self.last_updates = LastUpdates()

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> NoReturn:
            if name == "last_updates":
                raise undeclared(name, "updates")
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    @property
    def roster(self) -> Roster:
        """The roster, with the arrays that the method's needs declare."""
        return self.whole_roster.known_to(self._needs)

    @classmethod
    def needs(cls, config: ConfigT) -> Needs:
        """The knowledge that the method needs for selection, beside the roster's counts. Default: none."""
        return Needs()

    @classmethod
    def check_settings(cls, config: ConfigT, shared: "SharedSettings") -> None:
        """Raise ConfigError for shared settings under which the method cannot run."""

    @classmethod
    def most_iterations(cls, config: ConfigT) -> int:
        """Largest number of Flower rounds in one of the method's own rounds, which `rounds` then counts. Default: 1."""
        return 1

    @classmethod
    def uniform_rounds(cls, config: ConfigT, run: "RunConfig") -> int:
        """Number of first rounds in which a non-uniform method selects uniformly. Default: 0."""
        return 0

    def own_round(self, roster: Roster) -> tuple[int, int]:
        """Return the method's own round that contains the next Flower round, and its iteration, from 1. Pure.

        Needed if `most_iterations` is above 1. At iteration 1 all earlier rounds are complete.
        """
        raise NotImplementedError

    @classmethod
    def probe_count(cls, config: ConfigT, round_info: RoundInfo, count: int, available: int) -> int:
        """Largest number of `candidates` for a cohort of `count`. Default: all available clients."""
        return available

    def candidates(self, roster: Roster, round_info: RoundInfo, count: int, rng: np.random.Generator) -> Ints:
        """Ascending ids of the clients whose loss and metrics are measured before the selection. Pure. Default: all."""
        return roster.ids

    @abstractmethod
    def select(self, roster: Roster, round_info: RoundInfo, count: int, rng: np.random.Generator) -> Selection:
        """Choose `count` of the available clients. Pure: neither `roster` nor the method changes."""

    def update(self, outcome: Outcome) -> None:
        """Learn from a round. Only this function changes the method's state."""

    def learn(self, outcome: Outcome) -> None:
        """Keep the last updates, if the method needs them, and call `update`."""
        if self._needs.updates:
            self.last_updates.add(outcome)
        self.update(outcome)

    def state(self) -> Arrays:
        """The method's whole state, as named arrays that later rounds do not change."""
        return save_fields(self, self.state_fields) | gather(self._learnt())

    def load_state(self, state: Arrays) -> None:
        """Load a state that `state` returned."""
        load_fields(self, self.state_fields, state, growing=True)
        scatter(state, self._learnt())

    def _learnt(self) -> dict[str, Stateful]:
        return {"last-updates": self.last_updates} if self._needs.updates else {}


def most_rounds(method: SelectionMethod[Any]) -> int:
    """Largest number of Flower rounds of a run of `method`.

    Flower rounds are numbered from 1, also after a restart. A method may have rounds of its own, each with several
    Flower rounds (`most_iterations` above 1). The setting `rounds` then counts the method's rounds, the schedules of
    the learning rate and of the budget follow them, and the model is evaluated at their ends.
    """
    return method.context.run.rounds * method.most_iterations(method.config)


def round_info(method: SelectionMethod[Any], number: int) -> RoundInfo:
    """Round info of Flower round `number`; the roster has its clients."""
    progress = method.own_round(method.roster) if _has_own_rounds(method) else ()
    return RoundInfo(number, method.context.run.rounds, *progress)


def is_over(method: SelectionMethod[Any], number: int) -> bool:
    """True if the run is over after Flower round `number`."""
    if number >= most_rounds(method):
        return True
    return _has_own_rounds(method) and method.own_round(method.roster)[0] > method.context.run.rounds


def evaluates(method: SelectionMethod[Any], number: int, every: int) -> bool:
    """True if the model is evaluated after Flower round `number`: `every` so many rounds, and after the last."""
    if is_over(method, number):
        return True
    if not _has_own_rounds(method):
        return number % every == 0
    following, iteration = method.own_round(method.roster)
    return iteration == 1 and (following - 1) % every == 0


def _has_own_rounds(method: SelectionMethod[Any]) -> bool:
    return method.most_iterations(method.config) > 1
