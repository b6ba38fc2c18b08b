"""Contract suite: checks that every selection method must pass, and the fake federation that they run in.

A user's own method is checked by one call::

    from strategies.testing import check_method

    check_method(MyMethod)

Class attributes say what a method does not promise: ``exact_cohort = False``, that a cohort is as large as asked
(draws with replacement, full participation); ``explores = False``, that over many rounds everybody has a turn.
"""

import warnings
from collections.abc import Callable, Iterable
from dataclasses import fields
from itertools import product

from fedsel_app.config import Value
from strategies.base import SelectionStrategy
from strategies.testing.checks import CHECK_FUNCTIONS, CheckFunction
from strategies.testing.method_under_test import CheckFailed, MethodUnderTest


class ContractError(AssertionError):
    """A method broke a clause; the message names both."""

    def __init__(self, method: str, clause: str, sentence: str) -> None:
        super().__init__(f"The method {method} breaks the clause '{clause}': {sentence}")
        self.clause = clause


Check = Callable[..., None]


def _checked(name: str, clause: CheckFunction) -> Check:
    def check(method: type[SelectionStrategy], **settings: Value) -> None:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                warnings.simplefilter("ignore", DeprecationWarning)
                clause(MethodUnderTest(method, settings))
        except CheckFailed as broken:
            raise ContractError(method.name, name, str(broken)) from None
        except Exception as error:
            raise ContractError(method.name, name, f"it raised {type(error).__name__}: {error}") from error

    check.__doc__ = clause.__doc__
    return check


CHECKS: dict[str, Check] = {name: _checked(name, clause) for name, clause in CHECK_FUNCTIONS.items()}
"""Clause -> check(method class, **its settings), which raises ContractError where the method breaks it."""


def variants(method: type[SelectionStrategy]) -> list[dict[str, Value]]:
    """The default settings, and every other value of a switch or small enumeration, one at a time."""
    found: list[dict[str, Value]] = [{}]
    for item in fields(method.Config):
        options: Iterable[Value] = item.metadata["choices"]
        low, high = item.metadata["bounds"]["low"], item.metadata["bounds"]["high"]
        if isinstance(item.default, bool):
            options = (False, True)
        elif isinstance(item.default, int) and high - low < 5:
            options = range(int(low), int(high) + 1)
        found += [{item.name: option} for option in options if option != item.default]
    return found


def check_method(method: type[SelectionStrategy], **settings: Value) -> None:
    """Put a method through every check, under `settings` or else under each of its `variants`.

    Raises
    ------
    ContractError
        Naming the method and the first clause it breaks.
    """
    for chosen, check in product([settings] if settings else variants(method), CHECKS.values()):
        check(method, **chosen)
