"""Search space of a tuning: Optuna's distribution of each setting that is tuned, the same for every method."""

import math
from collections.abc import Sequence
from typing import cast

from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

from fedsel_app.config import ConfigError, Value, refuse_unknown
from fedsel_app.config.settings import Entry
from fedsel_app.wiring.configuration import setting_entries
from simulation.workbench.command_line.arguments import parse_setting
from strategies.base import SelectionStrategy

LOG_RATIO = 10.0
"""Least ratio of an interval's ends for which values are drawn on a log scale."""
LARGE = 100.0
"""A bound above this multiple of the default (or of 1, if that is larger) is only a limit, and no end of a range."""

Range = CategoricalDistribution | FloatDistribution | IntDistribution


def interval(low: float, high: float, *, whole: bool) -> Range:
    """Interval with both ends; `whole`: only its integers."""
    log = low > 0.0 and high / low >= LOG_RATIO
    return IntDistribution(int(low), int(high), log=log) if whole else FloatDistribution(low, high, log=log)


def ends(values: Range) -> Sequence[Value]:
    """The choices of a range, or both ends of its interval."""
    if isinstance(values, CategoricalDistribution):
        return cast(Sequence[Value], values.choices)
    return values.low, values.high


def holds(values: Range, value: Value) -> bool:
    """True if a value is in the range."""
    if isinstance(values, CategoricalDistribution):
        return value in values.choices
    return isinstance(value, int | float) and values.low <= value <= values.high


def range_text(values: Range) -> str:
    """The range as tuning.json and `--dry-run` show it."""
    if isinstance(values, CategoricalDistribution):
        return "one of " + ", ".join(map(str, values.choices))
    return f"{values.low:g} to {values.high:g}" + (", on a log scale" if values.log else "")


def parse_space(text: str, methods: Sequence[type[SelectionStrategy]]) -> dict[str, Range]:
    """Parse ``KEY``, ``KEY=LOW..HIGH`` and ``KEY=A|B``, separated by commas, into setting key -> range.

    A ``KEY`` without a range has the range of `own_range`.

    Raises ConfigError for a setting that is unknown, defines the task, or needs a range but has none, and for an
    invalid range.
    """
    entries = [*setting_entries(), *(entry for method in methods for entry in method.Config.entries(f"{method.name}."))]
    entry_of = {entry.key: entry for entry in entries}
    space: dict[str, Range] = {}
    for part in text.split(","):
        key, equals, range_given = (word.strip() for word in part.partition("="))
        refuse_unknown([key], entry_of)
        entry = entry_of[key]
        if not entry.scope.tuned:
            raise ConfigError(f"--over takes settings of methods; '{key}' defines the task, which is the same for all.")
        space[key] = parse_range(key, range_given, entry.default) if equals else own_range(entry)
    return space


def own_range(entry: Entry) -> Range:
    """Default range of a setting.

    It is all of its choices, or the interval between its bounds if both are closed and not `LARGE`, or else the part
    within its bounds of the interval from a tenth of its default to ten times its default.

    Raises ConfigError if this gives no interval.
    """
    key, default, bounds = entry.key, entry.default, entry.bounds
    if isinstance(default, bool):
        return CategoricalDistribution((False, True))
    if entry.closed:
        return CategoricalDistribution(tuple(entry.choices))
    if not isinstance(default, str):
        low, high, whole = bounds.low, bounds.high, isinstance(default, int)
        if not math.isfinite(low) or high > LARGE * max(1.0, abs(default)):
            low, high = max(low, default / 10.0), min(high, default * 10.0)
            low, high = (math.ceil(low), math.floor(high)) if whole else (low, high)
        if bounds.above < low < high < bounds.below:
            return interval(low, high, whole=whole)
    raise ConfigError(f"'{key}' has no default range; give it a range in --over: {key}=LOW..HIGH or {key}=A|B.")


def parse_range(key: str, text: str, default: Value) -> Range:
    """Parse a range of the form LOW..HIGH or A|B|C. Raises ConfigError for anything else."""
    if "|" in text:
        return CategoricalDistribution([parse_setting(f"{key}={choice.strip()}")[1] for choice in text.split("|")])
    try:
        low, high = (float(end) for end in text.split(".."))
    except ValueError:
        low = high = math.nan
    if not (isinstance(default, int | float) and math.isfinite(low) and low < high < math.inf):
        raise ConfigError(f"A range in --over is {key}=LOW..HIGH, or {key}=A|B. Got {key}={text}.")
    return interval(low, high, whole=isinstance(default, int))
