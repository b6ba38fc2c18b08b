"""Studies: the runs of a claim or a ranking, and the settings of each run."""

import tomllib
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self

from fedsel_app.config import ConfigError, Value
from fedsel_app.config.plugins import unknown_name
from fedsel_app.wiring.configuration import AppConfig, resolve
from laboratory.claims.metrics import ClaimMeasure
from laboratory.presets import named

if TYPE_CHECKING:
    from laboratory.claims.measured import Measured


@dataclass(frozen=True)
class Side:
    """Side of a study: a selection method, the settings of only this side, and a label."""

    strategy: str
    settings: Mapping[str, Value] = field(default_factory=dict)
    label: str = ""

    @property
    def name(self) -> str:
        """Label of the side, or else its method."""
        return self.label or self.strategy


@dataclass(frozen=True, kw_only=True)
class Study(ABC):
    """Study, in a TOML file: its sides on the same seeds.

    Attributes
    ----------
    name : name of its file
    preset, settings : preset and settings of all sides
    left_open : reason why `--all` leaves it out, such as a GPU or data that it needs; empty otherwise
    """

    kind: ClassVar[str]
    """Word for it in a message: "claim" or "ranking"."""

    name: str
    preset: str = ""
    settings: Mapping[str, Value] = field(default_factory=dict)
    left_open: str = ""

    @property
    @abstractmethod
    def sides(self) -> tuple[Side, ...]:
        """Sides of the study."""

    @property
    @abstractmethod
    def seeds(self) -> Sequence[int]:
        """Seeds of the runs of each side."""

    @property
    @abstractmethod
    def metrics(self) -> list[ClaimMeasure]:
        """Metrics that are measured for each run."""

    @classmethod
    @abstractmethod
    def parsed(cls, table: dict[str, Any]) -> dict[str, Any]:
        """Fields of a study from the table of its file."""

    def parts(self, measured: "Measured") -> "Sequence[Study]":
        """Studies whose runs it needs, as far as `measured` runs decide them."""
        return [self]

    @classmethod
    def files(cls) -> dict[str, Path]:
        """Name -> file, by folder and name."""
        return _files(cls.kind)

    @classmethod
    def load(cls, names: Sequence[str] | None = None) -> list[Self]:
        """Studies of the given names, or all of them.

        Raises ConfigError for an unknown name, or a file that is not a valid study.
        """
        files = cls.files()
        for name in names or ():
            if name not in files:
                raise unknown_name(cls.kind, name, files)
        return [cls.read(path) for name, path in files.items() if names is None or name in names]

    @classmethod
    def read(cls, path: Path) -> Self:
        """Study in a file. Raises ConfigError, which names the file, if it is invalid."""
        try:
            study: Self = build(cls, cls.parsed(tomllib.loads(path.read_text(encoding="utf-8"))) | {"name": path.stem})
        except KeyError as error:
            raise ConfigError(f"The {cls.kind} {path} lacks {error}.") from error
        except (tomllib.TOMLDecodeError, OSError, TypeError, ValueError) as error:
            raise ConfigError(f"The {cls.kind} {path} cannot be read: {error}") from error
        return study

    def configuration(self, side: Side, seed: int) -> AppConfig:
        """Configuration of a run without its folder. Raises ConfigError if its settings are invalid."""
        return configuration_of(self.values(side), seed)

    def values(self, side: Side) -> tuple[tuple[str, Value], ...]:
        """Settings of all runs of a side, sorted: the key to what they share."""
        preset = {"preset": named(self.preset)} if self.preset else {}
        return tuple(sorted({**preset, **self.settings, **side.settings, "strategy": side.strategy}.items()))

    def uniform_rounds(self, side: Side) -> int:
        """Number of first rounds in which a side selects uniformly although its method is not uniform."""
        config = self.configuration(side, 0)
        return config.strategy.uniform_rounds(config.method, config.run)


@cache
def configuration_of(values: tuple[tuple[str, Value], ...], seed: int) -> AppConfig:
    """Configuration of a run of `Study.values`."""
    config = _resolved(values)
    return replace(config, run=replace(config.run, seed=seed))


@cache
def _resolved(values: tuple[tuple[str, Value], ...]) -> AppConfig:
    return resolve(dict(values))


FOLDERS = {"ranking": "rankings", "tuned ranking": "tuned"}
"""Kind of studies -> its folder; claims have a folder for each paper."""


@cache
def _files(kind: str) -> dict[str, Path]:
    kinds = {folder: of for of, folder in FOLDERS.items()}
    paths = sorted(Path(__file__).parent.glob("*/*.toml"))
    return {path.stem: path for path in paths if kinds.get(path.parent.name, "claim") == kind}


def build(kind: Any, table: Mapping[str, Any]) -> Any:
    """Dataclass from the entries of a table. Raises ConfigError for an entry that is not a field."""
    known = {item.name for item in fields(kind)}
    for key in table:
        if key not in known:
            raise ConfigError(f"'{key}' is none of {', '.join(sorted(known))}.")
    return kind(**table)
