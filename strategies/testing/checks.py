"""Checks of the contract, each a function of a `MethodUnderTest` that raises `CheckFailed`."""

from collections.abc import Callable
from dataclasses import replace
from io import BytesIO
from typing import Any

import numpy as np
from flwr.common import Parameters
from flwr.server import SimpleClientManager
from numpy.typing import NDArray

from fedsel_app.seeds import Purpose, stream
from strategies.base import SelectionStrategy
from strategies.roster import Selection
from strategies.testing.fake_federation import LOSSES, UPDATES, FakeClientProxy, FakeFederation
from strategies.testing.method_under_test import (
    CLIENTS,
    COHORT,
    ROUNDS,
    Arrays,
    MethodUnderTest,
    copied,
    parts_of,
    play,
    require,
    require_same,
)
from strategies.testing.rehearsal import outcome

STAGES = (1, 2, 3, 20, 21, 22, 40, 41, 42)
"""Rounds early and late, on both sides of any warm-up; between them nobody was connected."""
LONG = 32
"""Rounds in a row that outlast any warm-up."""
CROWD, MANY = 20, 200
"""Clients and rounds in which everybody must have a turn."""
DRAWS, SIGMAS = 25, 5.0
"""Draws under each labelling, and how many standard deviations apart their counts may be."""


CheckFunction = Callable[[MethodUnderTest], None]
CHECK_FUNCTIONS: dict[str, CheckFunction] = {}


def _register(name: str) -> Callable[[CheckFunction], CheckFunction]:
    def register(clause: CheckFunction) -> CheckFunction:
        CHECK_FUNCTIONS[name] = clause
        return clause

    return register


@_register("selection")
def _selection(subject: MethodUnderTest) -> None:
    """Distinct available ids, ascending, with sound numbers beside them."""
    world = subject.world()
    for number in STAGES:
        play(world, number, [client for client in range(CLIENTS) if (client + number) % 3])


@_register("cohort-size")
def _cohort_size(subject: MethodUnderTest) -> None:
    """As many as asked, where promised: one, all, fewer than asked for are there, one client in all."""
    exact = subject.method.exact_cohort
    everybody = range(6)
    for clients, cohort, available in (
        (6, 1, everybody),
        (6, 4, everybody),
        (6, 6, everybody),
        (6, 4, range(2, 5, 2)),
        (6, 3, range(4, 5)),
        (1, 1, range(1)),
    ):
        world = subject.world(clients, cohort)
        for number in STAGES:
            selection, count = play(world, number, available)
            size, most = selection.clients.size, len(available)
            require(1 <= size <= most, f"it selected {size} of {most} clients.")
            require(size == count or not exact, f"it selected {size} clients instead of {count}.")


@_register("same-seed")
def _same_seed(subject: MethodUnderTest) -> None:
    """The same seed gives the same run."""
    worlds = subject.world(), subject.world()
    for number in STAGES:
        first, second = (parts_of(play(world, number)[0]) for world in worlds)
        require_same(first, second, f"two runs with the same seed differ in round {number}.")


@_register("pure-select")
def _pure_select(subject: MethodUnderTest) -> None:
    """`select` changes nothing, for whatever count; asked again, it answers the same."""

    def ask(world: FakeFederation, number: int, count: int) -> Arrays:
        asked = [world.select(number, size) for size in (count, 1, CLIENTS, count)]
        return _require_repeated(parts_of(asked[0]), parts_of(asked[-1]), "select")

    _require_pure(subject, ask, "select")


@_register("pure-candidates")
def _pure_candidates(subject: MethodUnderTest) -> None:
    """`candidates` changes nothing, and gives distinct available ids, ascending."""

    def ask(world: FakeFederation, number: int, count: int) -> Arrays:
        first, _, again = (world.candidates(number, size) for size in (count, 1, count))
        require((np.diff(first) > 0).all(), f"'candidates' must be distinct and ascending. Got {first.tolist()}.")
        require(np.isin(first, world.roster.ids).all(), f"'candidates' must be available. Got {first.tolist()}.")
        return _require_repeated({"clients": first}, {"clients": again}, "candidates")

    if subject.method.candidates is not SelectionStrategy.candidates:
        _require_pure(subject, ask, "candidates")


def _require_repeated(first: Arrays, again: Arrays, name: str) -> Arrays:
    require_same(first, again, f"'{name}' must answer the same when asked again.")
    return first


def _require_pure(subject: MethodUnderTest, ask: Callable[[FakeFederation, int, int], Arrays], name: str) -> None:
    world = subject.world()
    for number in range(1, LONG + 1):
        count = world.observe(number)
        if number in (1, 2, 3, LONG - 1, LONG):
            roster, state = copied(vars(world.roster)), copied(world.method.state())
            ask(world, number, count)
            require_same(vars(world.roster), roster, f"'{name}' must not change the roster.")
            require_same(world.method.state(), state, f"'{name}' must not change the method's state.")
        world.finish(number, world.select(number, count).clients)


@_register("relabelling")
def _relabelling(subject: MethodUnderTest) -> None:
    """Under other labels the same clients are as likely to be selected, with and without history."""
    clients, cohort = 10, 3
    identities = stream(0, Purpose.PARTITION).permutation(clients)
    everybody = np.arange(clients)
    counts = np.zeros((2, 2, clients))
    for labels, who in enumerate((everybody, identities)):
        for seed in range(DRAWS):
            world = subject.world(clients, cohort, seed=seed, identities=who)
            for stage, number in enumerate((1, 3)):
                count = world.observe(number)
                counts[labels, stage, who[world.select(number, count).clients]] += 1
                if stage == 0:
                    world.finish(1, everybody)
                    world.observe(2)
                    world.finish(2, everybody)
    share = counts.mean(axis=0) / DRAWS
    bound = SIGMAS * np.sqrt(2.0 * DRAWS * share * (1.0 - share)) + 1.0
    odd = np.argwhere(np.abs(counts[0] - counts[1]) > bound)
    require(not odd.size, f"who is selected depends on the ids: in {DRAWS} draws {counts[0]} against {counts[1]}.")


@_register("reply-order")
def _reply_order(subject: MethodUnderTest) -> None:
    """Flower's own ids and the order of replies make no difference to the model and to what is learnt."""
    ends: list[Arrays] = []
    for backwards in (False, True):
        world = subject.world(updates="mixed")
        clients = sorted(range(CLIENTS), reverse=backwards)
        manager = SimpleClientManager()
        for place, client in enumerate(clients):
            manager.register(FakeClientProxy(world, client, f"node-{place}"))
        parameters: Parameters | None = world.method.initialize_parameters(manager)
        for number in (1, 2, 3):
            asked = world.method.configure_fit(number, parameters or Parameters([], ""), manager)
            replies = [(proxy, proxy.fit(ins, timeout=None, group_id=None)) for proxy, ins in asked]
            parameters, _ = world.method.aggregate_fit(number, replies[::-1] if backwards else replies, [])
        model = np.frombuffer(b"".join(parameters.tensors if parameters else []), np.uint8)
        roster = {f"roster {name}": array for name, array in vars(world.roster).items()}
        ends.append({"model": model} | roster | copied(world.method.state()))
    require_same(ends[0], ends[1], "the order in which replies come must make no difference.")


@_register("absent-clients")
def _absent_clients(subject: MethodUnderTest) -> None:
    """Clients vanish, come back, and come late."""
    world = subject.world()
    for number, available in zip(STAGES, ((0, 1, 2), (7,), (1, 3, 5, 7, 9), (0, 2), range(11)) * 2, strict=False):
        play(world, number, available)
    play(world, ROUNDS)


@_register("failures")
def _failures(subject: MethodUnderTest) -> None:
    """Nobody was asked; then all fail in every round, half of them do, or all do in every other round."""
    for failing, every in ((CLIENTS, 1), (CLIENTS // 2, 1), (CLIENTS, 2)):
        world = subject.world()
        world.observe(1)
        world.method.learn(
            outcome(world.round_info(1), [], [], reports=dict.fromkeys(world.needs.reports, np.zeros(0)))
        )
        for number in STAGES:
            play(world, number, failed=range(failing) if number % every == 0 else ())


def _kind_of_losses(kind: str) -> None:
    @_register(f"losses-{kind}")
    def losses(subject: MethodUnderTest) -> None:
        world = subject.world(losses=kind)
        for number in STAGES:
            play(world, number)


def _kind_of_updates(kind: str) -> None:
    @_register(f"updates-{kind}")
    def updates(subject: MethodUnderTest) -> None:
        world = subject.world(updates=kind)
        for number in STAGES:
            play(world, number)


for _kind in [*LOSSES][1:]:
    _kind_of_losses(_kind)
for _kind in [*UPDATES][1:]:
    _kind_of_updates(_kind)


@_register("knowledge")
def _knowledge(subject: MethodUnderTest) -> None:
    """What a method does not say that it `needs` makes no difference to it."""

    def decided(selection: Selection) -> Arrays:
        return parts_of(replace(selection, components={}))

    bare, generous = subject.world(), subject.world(generous=True)
    for number in STAGES:
        first, second = (decided(play(world, number)[0]) for world in (bare, generous))
        require_same(first, second, "it reads what its 'needs' do not declare.")


@_register("state")
def _state(subject: MethodUnderTest) -> None:
    """Named arrays of numbers, without infinities where none came in."""
    world = subject.world()
    for number in STAGES:
        play(world, number)
        for name, array in world.method.state().items():
            sound = isinstance(array, np.ndarray) and array.dtype != object
            require(sound, f"'{name}' must be an array of numbers.")
            require(not np.isinf(array).any(), f"'{name}' holds an infinity, which no later round can mend.")


@_register("round-trip")
def _round_trip(subject: MethodUnderTest) -> None:
    """Saved and loaded at any time, a method goes on identically."""
    whole, resumed = subject.world(updates="mixed"), dict[int, FakeFederation]()
    for number in range(1, LONG + 6):
        decided = parts_of(play(whole, number)[0])
        learnt = whole.method.state()
        for cut, world in resumed.items():
            if number <= cut + 5:
                again = parts_of(play(world, number)[0])
                require_same(again, decided, f"resumed after round {cut}, it decides otherwise in round {number}.")
                require_same(world.method.state(), learnt, f"resumed after round {cut}, it learns otherwise.")
        if number in (1, 2, LONG):
            resumed[number] = _resumed(subject, whole)


def _resumed(subject: MethodUnderTest, whole: FakeFederation) -> FakeFederation:
    world = subject.world(updates="mixed")
    for name, array in vars(whole.roster).items():
        setattr(world.roster, name, array.copy())
    world.method.load_state(_through_a_file(whole.method.state()))
    require_same(world.method.state(), whole.method.state(), "a loaded state must be the one saved.")
    return world


def _through_a_file(arrays: Arrays) -> dict[str, NDArray[Any]]:
    file = BytesIO()
    np.savez(file, allow_pickle=False, **arrays)
    file.seek(0)
    with np.load(file, allow_pickle=False) as saved:
        return dict(saved)


@_register("coverage")
def _coverage(subject: MethodUnderTest) -> None:
    """In the long run everybody has a turn, where that is promised."""
    if subject.method.explores:
        world = subject.world(CROWD, COHORT, rounds=MANY)
        selections, number = world.roster.selections, 0
        while number < MANY and not selections.all():
            number += 1
            play(world, number)
        starved = np.flatnonzero(selections == 0).tolist()
        require(not starved, f"in {MANY} rounds of {COHORT} clients it never selected {starved} of {CROWD}.")
