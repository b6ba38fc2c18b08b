"""Search space of a tuning: the range of each setting that is tuned, the same for every method."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from fedsel_app.config import ConfigError, Value, refuse_unknown
from fedsel_app.config.settings import Entry
from fedsel_app.wiring.configuration import setting_entries
from simulation.workbench.command_line.arguments import parse_setting
from strategies.base import SelectionStrategy

LOG_RATIO = 10.0
"""Least ratio of a range's ends for which values are drawn on a log scale."""
LARGE = 100.0
"""A bound above this multiple of the default (or of 1, if that is larger) is only a limit, and no end of a range."""


@dataclass(frozen=True)
class Range:
    """Range of a setting: its choices, or an interval with both ends; `whole`: only the integers of the interval."""

    choices: tuple[Value, ...] = ()
    low: float = 0.0
    high: float = 0.0
    whole: bool = False

    @property
    def log(self) -> bool:
        """True if values are drawn on a log scale."""
        return self.low > 0.0 and self.high / self.low >= LOG_RATIO

    @property
    def ends(self) -> Sequence[Value]:
        """The choices, or both ends."""
        return self.choices or ([int(self.low), int(self.high)] if self.whole else [self.low, self.high])

    def holds(self, value: Value) -> bool:
        """True if a value is in the range."""
        if self.choices:
            return value in self.choices
        return isinstance(value, int | float) and self.low <= value <= self.high

    def __str__(self) -> str:
        if self.choices:
            return "one of " + ", ".join(map(str, self.choices))
        return f"{self.low:g} to {self.high:g}" + (", on a log scale" if self.log else "")


def parse_space(text: str, methods: Sequence[type[SelectionStrategy]]) -> dict[str, Range]:
    """Parse ``KEY``, ``KEY=LOW..HIGH`` and ``KEY=A|B``, separated by commas, into setting key -> range.

    A ``KEY`` without a range has the range of `own_range`.

    Raises ConfigError for a setting that is unknown, defines the task, or needs a range but has none, and for an
    invalid range.
    """
    entries = [*setting_entries(), *(entry for method in methods for entry in method.Config.entries(f"{method.name}."))]
    known = {entry.key: entry for entry in entries}
    space: dict[str, Range] = {}
    for part in (part.strip() for part in text.split(",")):
        key, equals, given = part.partition("=")
        key = key.strip()
        refuse_unknown([key], known)
        entry = known[key]
        if not entry.scope.tuned:
            raise ConfigError(f"--over takes settings of methods; '{key}' defines the task, which is the same for all.")
        space[key] = parse_range(key, given, entry.default) if equals else own_range(entry)
    return space


def own_range(entry: Entry) -> Range:
    """Default range of a setting.

    It is all of its choices, or the interval between its bounds if both are closed and not `LARGE`, or else the part
    within its bounds of the interval from a tenth of its default to ten times its default.

    Raises ConfigError if this gives no interval.
    """
    key, default, bounds = entry.key, entry.default, entry.bounds
    if isinstance(default, bool):
        return Range(choices=(False, True))
    if entry.closed:
        return Range(choices=tuple(entry.choices))
    if not isinstance(default, str):
        low, high, whole = bounds.low, bounds.high, isinstance(default, int)
        if not math.isfinite(low) or high > LARGE * max(1.0, abs(default)):
            low, high = max(low, default / 10.0), min(high, default * 10.0)
            low, high = (math.ceil(low), math.floor(high)) if whole else (low, high)
        if bounds.above < low < high < bounds.below:
            return Range(low=low, high=high, whole=whole)
    raise ConfigError(f"'{key}' has no default range; give it a range in --over: {key}=LOW..HIGH or {key}=A|B.")


def parse_range(key: str, text: str, default: Value) -> Range:
    """Parse a range of the form LOW..HIGH or A|B|C. Raises ConfigError for anything else."""
    if "|" in text:
        return Range(choices=tuple(parse_setting(f"{key}={choice.strip()}")[1] for choice in text.split("|")))
    try:
        low, high = (float(end) for end in text.split(".."))
    except ValueError:
        low = high = math.nan
    if not (isinstance(default, int | float) and math.isfinite(low) and low < high < math.inf):
        raise ConfigError(f"A range in --over is {key}=LOW..HIGH, or {key}=A|B. Got {key}={text}.")
    return Range(low=low, high=high, whole=isinstance(default, int))
