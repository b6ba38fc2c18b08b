"""Contract suite: checks that every selection method must pass, and the fake federation that they run in.

``strategies.testing.check_method(MyMethod)`` runs all checks on a class. Two attributes of the class say what it does
not promise. ``exact_cohort = False``: a cohort may have another size than requested (draws with replacement, full
participation). ``explores = False``: some clients may never be selected.
"""

from collections.abc import Iterable, Iterator, Mapping
from itertools import product
from typing import NamedTuple

from fedsel_app.config import ConfigError, Value
from strategies import STRATEGIES
from strategies.base import SelectionStrategy
from strategies.round.method_checks import check_class
from strategies.testing.checks import CHECKS as CHECKS
from strategies.testing.checks import ContractError as ContractError

FIRST = {"selection": "sound selections", "same-seed": "the same selections from the same seed"}
"""Checks that must pass before the others are meaningful."""


def variants(method: type[SelectionStrategy]) -> list[dict[str, Value]]:
    """Settings to check: the defaults, and each other value of a switch or small enumeration, one at a time."""
    choices: list[dict[str, Value]] = [{}]
    for entry, name in zip(method.Config.entries(), method.Config.keys().values(), strict=True):
        options: Iterable[Value] = entry.choices if entry.closed else ()
        if isinstance(entry.default, bool):
            options = (False, True)
        elif isinstance(entry.default, int) and entry.bounds.high - entry.bounds.low < 5:
            options = range(int(entry.bounds.low), int(entry.bounds.high) + 1)
        choices += [{name: option} for option in options if option != entry.default]
    return choices


class CheckResult(NamedTuple):
    """Result of one check of a method with some settings; `failure` is None if it passed."""

    settings: Mapping[str, Value]
    check: str
    failure: ContractError | None


def check_results(method: type[SelectionStrategy], **settings: Value) -> Iterator[CheckResult]:
    """Run every check on a method, with `settings` or, without them, with each of its `variants`.

    After a failure of one of `FIRST` there are no more results.

    Raises ConfigError if no run takes the class.
    """
    if not (isinstance(method, type) and issubclass(method, SelectionStrategy)):
        raise ConfigError(f"Give a subclass of SelectionStrategy, the class itself. Got {method!r}.")
    check_class(method, STRATEGIES)
    for chosen, name in product([settings] if settings else variants(method), CHECKS):
        failure = None
        try:
            CHECKS[name](method, **chosen)
        except ContractError as error:
            failure = error
        yield CheckResult(chosen, name, failure)
        if failure is not None and name in FIRST:
            return


def check_method(method: type[SelectionStrategy], **settings: Value) -> None:
    """Run every check on a method, with `settings` or, without them, with each of its `variants`.

    Raises ContractError with the name of the method and of the first check that it fails, and ConfigError if no run
    takes the class.
    """
    for result in check_results(method, **settings):
        if result.failure is not None:
            raise result.failure
