"""Interface of a selection method: the knowledge it needs, its selection, and what it learns from a round.

A method is a final subclass of `strategies.base.SelectionStrategy`, which runs the round around it. `name`, `paper` and
`select` are all that it must write. `select` and `candidates` are pure; state changes in `update` alone.
"""

from abc import ABC, abstractmethod
from typing import Any, ClassVar, Generic, Literal, cast, get_args

import numpy as np
from typing_extensions import TypeVar

from fedsel_app.config import RunConfig, Settings, SharedSettings
from fedsel_app.config.plugins import user_code
from strategies.checkpoint import Arrays, Stateful, gather, load_fields, save_fields, scatter
from strategies.last_updates import LastUpdates
from strategies.roster import Ints, Needs, Outcome, Roster, RoundInfo, Selection
from strategies.run_context import RunContext

ConfigT = TypeVar("ConfigT", bound=Settings, default=Any)
Sent = Literal["updates", "losses", "reports", "label counts", "examples"]
"""Kinds of what clients send: updates, losses before selection and in training, reports, and what they enrol with."""
SENT: tuple[Sent, ...] = get_args(Sent)
"""All of them."""


class SelectionMethod(ABC, Generic[ConfigT]):
    """Selection method: class attributes and functions. Only `select` has no default.

    Attributes
    ----------
    name : the setting `strategy`, and the prefix of the method's own settings
    paper : citation
    Config : the method's settings, named once, as the type argument: `class Mine(SelectionStrategy[MyConfig])`
    config : their values in this run
    exact_cohort : as many clients are selected as asked for (false: draws with replacement, full participation)
    explores : over many rounds every client is selected
    free_cohort : others may choose the cohort's size: a participation policy, over-selection
    looks_at : kinds of what clients send that cohorts, kept fractions or learning rates follow, under any settings of
        the method; None: not said. Differential privacy is for methods that look at nothing, ()
    state_fields : attributes, arrays and numbers, that `update` changes; a checkpoint keeps them
    last_updates : each client's last update, filled where `needs` asks for updates
    """

    name: ClassVar[str]
    paper: ClassVar[str]
    Config: ClassVar[type[Settings]] = Settings
    exact_cohort: ClassVar[bool] = True
    explores: ClassVar[bool] = True
    free_cohort: ClassVar[bool] = True
    looks_at: ClassVar[tuple[Sent, ...] | None] = None
    state_fields: ClassVar[tuple[str, ...]] = ()

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        arguments = [argument for base in vars(cls).get("__orig_bases__", ()) for argument in get_args(base)]
        for argument in arguments:
            if isinstance(argument, type) and issubclass(argument, Settings):
                cls.Config = argument

    def __init__(self, context: RunContext) -> None:
        if not isinstance(context.method, self.Config):
            raise TypeError(f"{self.name} takes a {self.Config.__name__}. Got {type(context.method).__name__}.")
        self.config = cast(ConfigT, context.method)
        self.check_settings(self.config, context)
        self.context = context
        self.roster = Roster(context.run.clients)
        self.last_updates = LastUpdates()
        self._needs = self.needs(self.config)

    @classmethod
    def needs(cls, config: ConfigT) -> Needs:
        """The knowledge that the method selects by, beside the roster's counts: none."""
        return Needs()

    @classmethod
    def check_settings(cls, config: ConfigT, shared: SharedSettings) -> None:
        """Raise ConfigError for shared settings under which the method cannot run."""

    @classmethod
    def most_iterations(cls, config: ConfigT) -> int:
        """The most Flower rounds of a round of the method's own, which `rounds` counts then: 1, it has no others."""
        return 1

    @classmethod
    def uniform_rounds(cls, config: ConfigT, run: RunConfig) -> int:
        """Rounds of a run, from the first on, in which a method that is not uniform itself selects uniformly: none."""
        return 0

    def own_round(self, roster: Roster) -> tuple[int, int]:
        """Return the method's own round that the next Flower round belongs to, and its iteration, from 1. Pure.

        Needed where `most_iterations` is above 1. At iteration 1 all rounds before are complete.
        """
        raise NotImplementedError

    @classmethod
    def probe_count(cls, config: ConfigT, round_info: RoundInfo, count: int, available: int) -> int:
        """The most clients that `candidates` names for a cohort of `count`: all that are available."""
        return available

    def candidates(self, roster: Roster, round_info: RoundInfo, count: int, rng: np.random.Generator) -> Ints:
        """The clients whose loss is measured before `count` are selected, ids ascending: by default all. Pure."""
        return roster.ids

    @abstractmethod
    def select(self, roster: Roster, round_info: RoundInfo, count: int, rng: np.random.Generator) -> Selection:
        """Choose `count` of the available clients. Pure: neither `roster` nor the method changes."""

    def update(self, outcome: Outcome) -> None:
        """Learn from a round: the one place where a method's state changes."""

    def learn(self, outcome: Outcome) -> None:
        """Keep the last updates, where the method needs them, and let it learn from the round."""
        if self._needs.updates:
            self.last_updates.add(outcome)
        with user_code(type(self).__module__, f"`update` of the method {self.name}"):
            self.update(outcome)

    def state(self) -> Arrays:
        """All that the method has learnt, as named arrays that later rounds do not change."""
        return save_fields(self, self.state_fields) | gather(self._learnt())

    def load_state(self, state: Arrays) -> None:
        """Take up a state that `state` returned."""
        load_fields(self, self.state_fields, state, growing=True)
        scatter(state, self._learnt())

    def _learnt(self) -> dict[str, Stateful]:
        return {"last-updates": self.last_updates} if self._needs.updates else {}
