"""Studies: runs that are asked for together, by a claim or a ranking, and the settings of each."""

import tomllib
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, fields, replace
from functools import cache
from pathlib import Path
from typing import Any

from fedsel_app.config import ConfigError, Value
from fedsel_app.config.plugins import unknown_name
from simulation.claims.metrics import Metric
from simulation.experiments.configuration import AppConfig, resolve


@dataclass(frozen=True)
class Side:
    """Side of a study: a selection method, the settings that only this side has, and a label that tells it apart."""

    strategy: str
    settings: Mapping[str, Value] = field(default_factory=dict)
    label: str = ""

    @property
    def name(self) -> str:
        """Its label, or else its method."""
        return self.label or self.strategy


@dataclass(frozen=True, kw_only=True)
class Study(ABC):
    """Study: its sides on the same seeds.

    Attributes
    ----------
    name : name of its file
    preset, settings : of all sides
    left_open : the reason why `--all` leaves it out, such as a GPU or data that it needs
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
    def seeds(self) -> Sequence[int]:
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

    def uniform_rounds(self, side: Side) -> int:
        """Rounds in which a side selects uniformly at first, though its method is another."""
        config = self.configuration(side, 0)
        return config.strategy.uniform_rounds(config.method, config.run)


@cache
def _resolved(values: tuple[tuple[str, Value], ...]) -> AppConfig:
    return resolve(dict(values))


def chosen(kind: str, files: Mapping[str, Path], names: tuple[str, ...]) -> list[Path]:
    """Files of the given names, or all of them. Raises ConfigError for a name without a file."""
    for name in names:
        if name not in files:
            raise unknown_name(kind, name, files)
    return [path for name, path in files.items() if not names or name in names]


@contextmanager
def reading(kind: str, path: Path) -> Iterator[dict[str, Any]]:
    """Table of a study's TOML file; ConfigError names the file where it, or what the block makes of it, is wrong."""
    try:
        yield tomllib.loads(path.read_text(encoding="utf-8"))
    except KeyError as error:
        raise ConfigError(f"The {kind} {path} lacks {error}.") from error
    except (tomllib.TOMLDecodeError, OSError, TypeError, ValueError) as error:
        raise ConfigError(f"The {kind} {path} cannot be read: {error}") from error


def build(kind: Any, table: Mapping[str, Any]) -> Any:
    """Dataclass of the entries of a table. Raises ConfigError for one that is none of its fields."""
    known = {item.name for item in fields(kind)}
    for key in table:
        if key not in known:
            raise ConfigError(f"'{key}' is none of {', '.join(sorted(known))}.")
    return kind(**table)
