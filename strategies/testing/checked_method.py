"""Method under test: creates instances, runs their rounds, and checks their selections."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedsel_app.config import CompressionConfig, ConfigError, Value
from strategies.base import SelectionStrategy
from strategies.roster import Selection
from strategies.round.method_checks import SELECTION, build, candidates_fault, selection_fault, size_fault, work_fault
from strategies.testing.fakes import FakeFederation, make_context

Arrays = dict[str, NDArray[Any]]
CLIENTS, COHORT, ROUNDS = 12, 4, 50
SIZE, CLASSES = 24, 3


class CheckFailed(Exception):
    """Failure of a check; its sentence says what the method did."""


@dataclass(frozen=True)
class MethodUnderTest:
    """Method class with some settings."""

    method: type[SelectionStrategy]
    settings: Mapping[str, Value] = field(default_factory=dict)

    def federation(
        self, clients: int = CLIENTS, cohort: int = COHORT, *, rounds: int = ROUNDS, seed: int = 1, **kinds: Any
    ) -> FakeFederation:
        """New instance in a `FakeFederation` of these kinds."""
        return FakeFederation(self.instance(clients, cohort, rounds=rounds, seed=seed), **kinds)

    def instance(
        self, clients: int = CLIENTS, cohort: int = COHORT, *, rounds: int = ROUNDS, seed: int = 1
    ) -> SelectionStrategy:
        """New instance of the method; without compression and with test parts if the method needs these."""
        context = partial(
            make_context,
            self.method.Config(**self.settings),
            clients=clients,
            cohort=cohort,
            rounds=rounds,
            seed=seed,
            size=SIZE,
            classes=CLASSES,
        )
        try:
            return build(self.method, context())
        except ConfigError:
            uncompressed = context(compression=CompressionConfig(compressor="none"), holdout_fraction=0.2)
            return build(self.method, uncompressed)


def demand(condition: bool | np.bool_, sentence: str) -> None:
    """Raise CheckFailed(`sentence`) unless `condition` holds."""
    if not condition:
        raise CheckFailed(sentence)


def demand_same(arrays: Arrays, expected: Arrays, sentence: str) -> None:
    """Raise CheckFailed(`sentence`) unless both have the same names, types, shapes and bits."""
    demand(arrays.keys() == expected.keys(), f"{sentence} ({sorted(arrays.keys() ^ expected.keys())})")
    for name, array in expected.items():
        same = (arrays[name].dtype, arrays[name].shape) == (array.dtype, array.shape)
        demand(same and arrays[name].tobytes() == array.tobytes(), f"{sentence} ({name})")


def copied(arrays: Mapping[str, NDArray[Any]]) -> Arrays:
    """Copies of arrays by name."""
    return {name: array.copy() for name, array in arrays.items()}


def checked_round(
    federation: FakeFederation, number: int, available: Iterable[int] | None = None, failed: Iterable[int] = ()
) -> tuple[Selection, int]:
    """Run a round, and check its candidates and selection. Returns the selection and the requested number."""
    count, ids = federation.observe(number, available), federation.roster.ids
    fault = candidates_fault(federation.candidates(number, count), ids)
    demand(not fault, fault)
    selection = federation.select(number, count)
    fault = (
        selection_fault(selection, ids)
        or size_fault(selection, count, exact=federation.method.exact_cohort)
        or work_fault(selection, federation.roster, federation.method.context.training)
    )
    demand(not fault, f"`select` must return {SELECTION}. {fault}")
    federation.finish(number, selection, failed)
    return selection, count
