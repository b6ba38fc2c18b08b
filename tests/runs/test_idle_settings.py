"""Settings that are refused as idle: two values of each give the same bits under the settings that do not read it."""

import pytest

from fedsel_app.config import GROUPS, ConfigError
from fedsel_app.wiring.configuration import resolve
from fedsel_app.wiring.named_files import FILES
from simulation.engines import inline_engine
from simulation.engines.idle_settings import refuse_idle
from strategies import STRATEGIES
from tests.bits.cases import BASE, MLP, NORMED
from tests.bits.table import folder_bits, reproducible
from tests.support.rounds import rounds

ENTRIES = {entry.key: entry for group in GROUPS.values() for entry in group.entries()} | {
    entry.key: entry for name, method in STRATEGIES.items() for entry in method.Config.entries(f"{name}.")
}
READ_BY = {key: entry.read_by for key, entry in ENTRIES.items() if entry.read_by}
OTHERS = {"alphas": "0.1,1", "attackers": "0.5", "ring-bits": 8}
"""Setting -> a second value, where none of `other` is one."""
NEEDED = MLP | {"holdout-fraction": 0.2, "surrogate-examples": 100, "weighting": "uniform"}
"""Settings under which many others are read, or may be set."""


def met(reading, entry):
    if entry.key == "model":
        return NORMED["model"]
    return reading.values[0] if not reading.excluded else other(entry, reading.values)


def unmet(reading, entry):
    return reading.values[0] if reading.excluded else other(entry, reading.values)


def other(entry, values):
    """A value of `entry` that is none of the `values`."""
    default = entry.default
    tried = [default, *entry.choices, True, False, 1, 2, 16, 0.5, 0.0, 1.5, 0.1]
    return next(
        value for value in tried if type(value) is type(default) and value not in values and valid(entry, value)
    )


def valid(entry, value):
    try:
        entry.check(value)
    except ConfigError:
        return False
    return ":" not in str(value)


CASES = [
    pytest.param(key, owner, id=f"{key} by {owner}")
    for key, [conditions, *_] in READ_BY.items()
    for owner in conditions
    if owner not in ("data", "links", "task") and key not in FILES  # whose absence is refused
]


@pytest.mark.slow
@pytest.mark.parametrize(("key", "owner"), CASES)
def test_a_setting_that_is_refused_changes_nothing(key, owner, tmp_path):
    entry, found = ENTRIES[key], []
    settings = BASE | NEEDED | {"strategy": key.split(".")[0] if "." in key else "random"}
    settings |= {name: met(reading, ENTRIES[name]) for name, reading in READ_BY[key][0].items()}
    settings |= {name: unmet(reading, ENTRIES[name]) for name, reading in READ_BY[key][0].items() if name == owner}
    values = entry.default, OTHERS[key] if key in OTHERS else other(entry, (entry.default,))
    for value in values:
        try:
            config = resolve(settings | {key: value, "out": str(tmp_path / str(value))})
        except ConfigError:
            pytest.skip(f"{key}={value} is refused for another reason too")
        with pytest.raises(ConfigError, match=f"'{key}' has no effect"):
            refuse_idle([key], [config.values()])
        with reproducible():
            folder = inline_engine.simulate(config, lambda row: None)
        found.append((folder_bits(folder), rounds(folder)))
    assert found[0] == found[1], values
