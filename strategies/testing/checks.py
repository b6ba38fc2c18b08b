"""Checks of the contract suite. Each is written as a function of a `MethodUnderTest` that raises `CheckFailed`."""

import warnings
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from io import BytesIO
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedsel_app.config import CompressionConfig, ConfigError, Value
from fedsel_app.config.plugins import described, place
from fedsel_app.seeds import Purpose, stream
from strategies.base import SelectionStrategy
from strategies.roster import Selection
from strategies.round.method_checks import (
    SELECTION,
    build,
    candidates_fault,
    parts_of,
    selection_fault,
    size_fault,
    work_fault,
)
from strategies.testing.fakes import LOSSES, UPDATES, FakeFederation, make_context, outcome

STAGES = (1, 2, 3, 20, 21, 22, 40, 41, 42)
"""Rounds before, during and after any warm-up; no client is connected in the other rounds."""
LONG = 32
"""Number of consecutive rounds that is longer than any warm-up."""
CROWD, MANY = 20, 200
"""Clients, and rounds within which each of them must be selected."""
DRAWS, SIGMAS = 25, 5.0
"""Draws for each labelling, and the largest difference of their counts, in standard deviations."""


class ContractError(AssertionError):
    """Failure of a method in a check; the message names both."""

    def __init__(self, method: str, check: str, sentence: str) -> None:
        super().__init__(f"The method {method} fails the check '{check}': {sentence}")


Check = Callable[..., None]


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


CHECKS: dict[str, Check] = {}
"""Name -> check(method class, **its settings), which raises ContractError if the method fails it."""


def _register(name: str) -> Callable[[Callable[[MethodUnderTest], None]], Check]:
    def register(function: Callable[[MethodUnderTest], None]) -> Check:
        def check(method: type[SelectionStrategy], **settings: Value) -> None:
            try:
                with warnings.catch_warnings(), np.errstate(over="ignore"):
                    warnings.simplefilter("error")
                    warnings.simplefilter("ignore", DeprecationWarning)
                    function(MethodUnderTest(method, settings))
            except (CheckFailed, ConfigError) as failure:
                raise ContractError(method.name, name, str(failure)) from None
            except Exception as error:
                raised = f"it raised {described(error)}{place(error, method.__module__)}."
                raise ContractError(method.name, name, raised) from error

        check.__doc__ = function.__doc__
        CHECKS[name] = check
        return check

    return register


@_register("selection")
def _selection(tested: MethodUnderTest) -> None:
    """Selected ids are distinct, available and ascending, and the numbers beside them are valid."""
    federation = tested.federation()
    for number in STAGES:
        checked_round(federation, number, [client for client in range(CLIENTS) if (client + number) % 3])


@_register("cohort-size")
def _cohort_size(tested: MethodUnderTest) -> None:
    """Cohorts have the requested size, if promised: of one client, all, too many, and in a run of one client."""
    exact = tested.method.exact_cohort
    everybody = range(6)
    for clients, cohort, available in (
        (6, 1, everybody),
        (6, 4, everybody),
        (6, 6, everybody),
        (6, 4, range(2, 5, 2)),
        (6, 3, range(4, 5)),
        (1, 1, range(1)),
    ):
        federation = tested.federation(clients, cohort)
        for number in STAGES:
            selection, count = checked_round(federation, number, available)
            size, most = selection.clients.size, len(available)
            demand(1 <= size <= most, f"it selected {size} of {most} clients.")
            demand(size == count or not exact, f"it selected {size} clients instead of {count}.")


@_register("same-seed")
def _same_seed(tested: MethodUnderTest) -> None:
    """The same seed gives the same run."""
    federations = tested.federation(), tested.federation()
    for number in STAGES:
        first, second = (parts_of(checked_round(federation, number)[0]) for federation in federations)
        demand_same(first, second, f"two runs with the same seed differ in round {number}.")


@_register("pure-select")
def _pure_select(tested: MethodUnderTest) -> None:
    """Selecting changes nothing, for any count, and gives the same result when repeated."""
    _require_pure(tested, "select", lambda federation, number, count: parts_of(federation.select(number, count)))


@_register("pure-candidates")
def _pure_candidates(tested: MethodUnderTest) -> None:
    """Candidates are at most `probe_count` distinct available ids, ascending. Choosing them changes nothing."""

    def candidates(federation: FakeFederation, number: int, count: int) -> Arrays:
        clients, method, available = federation.candidates(number, count), federation.method, federation.roster.ids
        most = method.probe_count(method.config, federation.round_info(number), count, available.size)
        fault = candidates_fault(clients, available)
        demand(not fault, fault)
        demand(clients.size <= most, f"'candidates' must be at most 'probe_count', {most}. Got {clients.size}.")
        return {"clients": clients}

    if tested.method.candidates is not SelectionStrategy.candidates:
        _require_pure(tested, "candidates", candidates)


def _require_pure(tested: MethodUnderTest, name: str, call: Callable[[FakeFederation, int, int], Arrays]) -> None:
    federation = tested.federation()
    for number in range(1, LONG + 1):
        count = federation.observe(number)
        if number in (1, 2, 3, LONG - 1, LONG):
            roster, state = federation.roster.state(), copied(federation.method.state())
            first, _, _, again = (call(federation, number, size) for size in (count, 1, CLIENTS, count))
            demand_same(first, again, f"'{name}' must give the same result when repeated.")
            demand_same(vars(federation.roster), roster, f"'{name}' must not change the roster.")
            demand_same(federation.method.state(), state, f"'{name}' must not change the method's state.")
        federation.finish(number, federation.select(number, count))


@_register("relabelling")
def _relabelling(tested: MethodUnderTest) -> None:
    """With other ids the same clients are equally likely to be selected, with and without history."""
    clients, cohort = 10, 3
    identities = stream(0, Purpose.PARTITION).permutation(clients)
    everybody = np.arange(clients)
    counts = np.zeros((2, 2, clients))
    for labels, behind in enumerate((everybody, identities)):
        for seed in range(DRAWS):
            federation = tested.federation(clients, cohort, seed=seed, identities=behind)
            for stage, number in enumerate((1, 3)):
                count = federation.observe(number)
                counts[labels, stage, behind[federation.select(number, count).clients]] += 1
                if stage == 0:
                    federation.finish(1, Selection(everybody))
                    federation.observe(2)
                    federation.finish(2, Selection(everybody))
    share = counts.mean(axis=0) / DRAWS
    bound = SIGMAS * np.sqrt(2.0 * DRAWS * share * (1.0 - share)) + 1.0
    odd = np.argwhere(np.abs(counts[0] - counts[1]) > bound)
    for stage, client in odd:
        times, otherwise = counts[:, stage, client].astype(int)
        label = int(np.flatnonzero(identities == client)[0])
        seen = f"with id {client} a client was selected in {times} of {DRAWS} draws, with id {label} in {otherwise}"
        demand(False, f"the selection depends on the ids: {seen}.")


@_register("absent-clients")
def _absent_clients(tested: MethodUnderTest) -> None:
    """Clients leave, return, and join late."""
    federation = tested.federation()
    for number, available in zip(STAGES, ((0, 1, 2), (7,), (1, 3, 5, 7, 9), (0, 2), range(11)) * 2, strict=False):
        checked_round(federation, number, available)
    checked_round(federation, ROUNDS)


@_register("failures")
def _failures(tested: MethodUnderTest) -> None:
    """An empty round; then all clients fail in every round, half of them fail, or all fail in every other round."""
    for failing, every in ((CLIENTS, 1), (CLIENTS // 2, 1), (CLIENTS, 2)):
        federation = tested.federation()
        federation.observe(1)
        federation.method.learn(
            outcome(federation.round_info(1), [], [], reports=dict.fromkeys(federation.needs.reports, np.zeros(0)))
        )
        for number in STAGES:
            checked_round(federation, number, failed=range(failing) if number % every == 0 else ())


def _register_kind(what: str, kind: str) -> None:
    kinds: dict[str, Any] = {what: kind}

    def rounds(tested: MethodUnderTest) -> None:
        federation = tested.federation(**kinds)
        for number in STAGES:
            checked_round(federation, number)

    rounds.__doc__ = f"Rounds continue if the clients' {what} are of the kind '{kind}'."
    _register(f"{what}-{kind}")(rounds)


for _kind in [*LOSSES][1:]:
    _register_kind("losses", _kind)
for _kind in [*UPDATES][1:]:
    _register_kind("updates", _kind)


@_register("state")
def _state(tested: MethodUnderTest) -> None:
    """State consists of named arrays of numbers, without infinities if the inputs have none."""
    federation = tested.federation()
    for number in STAGES:
        checked_round(federation, number)
        for name, array in federation.method.state().items():
            sound = isinstance(array, np.ndarray) and array.dtype != object
            demand(sound, f"'{name}' must be an array of numbers.")
            demand(not np.isinf(array).any(), f"'{name}' contains an infinity, which no later round can remove.")


@_register("round-trip")
def _round_trip(tested: MethodUnderTest) -> None:
    """A method continues identically after its state is saved and loaded at any time."""
    whole, resumed = tested.federation(updates="mixed"), dict[int, FakeFederation]()
    for number in range(1, LONG + 6):
        decided = parts_of(checked_round(whole, number)[0])
        learnt = whole.method.state()
        for cut, federation in resumed.items():
            if number <= cut + 5:
                again = parts_of(checked_round(federation, number)[0])
                demand_same(again, decided, f"resumed after round {cut}, it selects differently in round {number}.")
                demand_same(federation.method.state(), learnt, f"resumed after round {cut}, it learns differently.")
        if number in (1, 2, LONG):
            resumed[number] = _resumed(tested, whole)


def _resumed(tested: MethodUnderTest, whole: FakeFederation) -> FakeFederation:
    federation = tested.federation(updates="mixed")
    federation.roster.load_state(whole.roster.state())
    federation.method.load_state(_through_a_file(whole.method.state()))
    demand_same(federation.method.state(), whole.method.state(), "a loaded state must be equal to the saved state.")
    return federation


def _through_a_file(arrays: Arrays) -> dict[str, NDArray[Any]]:
    file = BytesIO()
    np.savez(file, allow_pickle=False, **arrays)
    file.seek(0)
    with np.load(file, allow_pickle=False) as saved:
        return dict(saved)


@_register("coverage")
def _coverage(tested: MethodUnderTest) -> None:
    """Every client is selected over many rounds, if the method promises this."""
    if tested.method.explores:
        federation = tested.federation(CROWD, COHORT, rounds=MANY)
        selections, number = federation.roster.selections, 0
        while number < MANY and not selections.all():
            number += 1
            checked_round(federation, number)
        starved = np.flatnonzero(selections == 0).tolist()
        demand(not starved, f"in {MANY} rounds of {COHORT} clients it never selected {starved} of {CROWD}.")
