"""Search space of a tuning: the range of each setting that is tuned, the same for every method."""

import math
from collections.abc import Iterable
from dataclasses import dataclass

from fedsel_app.config import ConfigError, Value, refuse_unknown
from fedsel_app.wiring.configuration import setting_entries
from simulation.workbench.command_line.arguments import parse_setting
from strategies.base import SelectionStrategy

LOG_RATIO = 10.0
"""Least ratio of an interval's ends for which values are drawn on a log scale."""


@dataclass(frozen=True)
class Choices:
    """Values of a setting that were listed."""

    values: tuple[Value, ...]

    def __str__(self) -> str:
        return "one of " + ", ".join(map(str, self.values))

    def at(self, place: float) -> Value:
        """The value at the `place`, in [0, 1)."""
        return self.values[int(place * len(self.values))]


@dataclass(frozen=True)
class Interval:
    """Interval of numbers with both ends; `whole`: only its integers."""

    low: float
    high: float
    whole: bool

    @property
    def log(self) -> bool:
        """True if values are drawn on a log scale."""
        return self.low > 0.0 and self.high / self.low >= LOG_RATIO

    def __str__(self) -> str:
        return f"{self.low:g} to {self.high:g}" + (", on a log scale" if self.log else "")

    def at(self, place: float) -> Value:
        """The value at the `place`, in [0, 1)."""
        low, high = self.low, self.high + self.whole
        value = low * (high / low) ** place if self.log else low + place * (high - low)
        return min(math.floor(value), int(self.high)) if self.whole else value


Range = Choices | Interval


def parse_space(text: str, methods: Iterable[type[SelectionStrategy]]) -> dict[str, Range]:
    """Parse ``KEY=LOW..HIGH`` and ``KEY=A|B``, separated by commas, into setting key -> range.

    Raises ConfigError for a setting that is unknown or defines the task, and for an invalid range.
    """
    entries = [*setting_entries(), *(entry for method in methods for entry in method.Config.entries(f"{method.name}."))]
    entry_of = {entry.key: entry for entry in entries}
    space: dict[str, Range] = {}
    for part in text.split(","):
        key, _, values = (word.strip() for word in part.partition("="))
        refuse_unknown([key], entry_of)
        if not entry_of[key].scope.tuned:
            raise ConfigError(f"--over takes settings of methods; '{key}' defines the task, which is the same for all.")
        space[key] = parse_range(key, values, entry_of[key].default)
    return space


def parse_range(key: str, text: str, default: Value) -> Range:
    """Parse a range of the form LOW..HIGH or A|B|C. Raises ConfigError for anything else."""
    if "|" in text:
        return Choices(tuple(parse_setting(f"{key}={choice.strip()}")[1] for choice in text.split("|")))
    try:
        low, high = (float(end) for end in text.split(".."))
    except ValueError:
        low = high = math.nan
    if isinstance(default, bool | str) or not (math.isfinite(low) and low < high < math.inf):
        raise ConfigError(f"--over takes {key}=LOW..HIGH, or {key}=A|B. Got {key}{text and f'={text}'}.")
    return Interval(low, high, isinstance(default, int))
