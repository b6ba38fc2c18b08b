"""Studies: runs that are asked for together, by a claim or a ranking, and the settings of each."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cache

from fedsel_app.config import Value
from simulation.claims.metrics import Metric
from simulation.experiments.configuration import AppConfig, resolve


@dataclass(frozen=True)
class Side:
    """Side of a study: a selection method, and the settings that only this side has."""

    strategy: str
    settings: Mapping[str, Value] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Study(ABC):
    """Study: its sides on the same seeds.

    Attributes
    ----------
    name : name of its file
    preset, settings : of all sides
    left_open : the reason why nobody has run it, such as a GPU or private data that it needs
    """

    name: str
    preset: str = ""
    settings: Mapping[str, Value] = field(default_factory=dict)
    left_open: str = ""

    @property
    @abstractmethod
    def sides(self) -> tuple[Side, ...]:
        """Its sides."""

    @property
    @abstractmethod
    def seeds(self) -> range:
        """Seeds of the runs of each side."""

    @property
    @abstractmethod
    def metrics(self) -> list[Metric]:
        """Metrics that are measured of each run."""

    def configuration(self, side: Side, seed: int) -> AppConfig:
        """Configuration of a run, but for its place. Raises ConfigError where its settings cannot be run."""
        preset = {"preset": self.preset} if self.preset else {}
        values = {**preset, **self.settings, **side.settings, "strategy": side.strategy}
        config = _resolved(tuple(sorted(values.items())))
        return replace(config, run=replace(config.run, seed=seed))


@cache
def _resolved(values: tuple[tuple[str, Value], ...]) -> AppConfig:
    return resolve(dict(values))
