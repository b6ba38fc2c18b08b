"""The clauses of the contract of `strategies.contract`, each a function of a `Trial` that raises `Broken`."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from io import BytesIO
from typing import Any

import numpy as np
from flwr.common import Parameters
from flwr.server import SimpleClientManager
from numpy.typing import NDArray

from fedsel_app.config import CompressionConfig, ConfigError, Value
from fedsel_app.seeds import Purpose, stream
from strategies.base import SelectionStrategy
from strategies.rehearsal import make_setup, outcome
from strategies.roster import Roster, Selection
from strategies.world import LOSSES, UPDATES, Standin, World

Arrays = Mapping[str, NDArray[Any]]
CLIENTS, COHORT, ROUNDS = 12, 4, 50
SIZE, CLASSES = 24, 3
STAGES = (1, 2, 3, 20, 21, 22, 40, 41, 42)
"""Rounds early and late, on both sides of any warm-up; between them nobody was connected."""
LONG = 36
"""Rounds in a row that outlast any warm-up."""
CROWD, MANY = 20, 200
"""Clients and rounds in which everybody must have a turn."""
DRAWS, SIGMAS = 60, 5.0
"""Draws under each labelling, and how many standard deviations apart their counts may be."""


class Broken(Exception):
    """The sentence that says what a method did."""


@dataclass(frozen=True)
class Trial:
    """A method under some of its settings."""

    method: type[SelectionStrategy]
    settings: Mapping[str, Value] = field(default_factory=dict)

    def world(
        self, clients: int = CLIENTS, cohort: int = COHORT, *, rounds: int = ROUNDS, seed: int = 1, **kinds: Any
    ) -> World:
        """A fresh instance in a `World` of the given kinds; without compression, where it refuses to run with it."""
        build = partial(
            make_setup,
            self.method.Config(**self.settings),
            clients=clients,
            cohort=cohort,
            rounds=rounds,
            seed=seed,
            size=SIZE,
            classes=CLASSES,
        )
        try:
            method = self.method(build())
        except ConfigError:
            method = self.method(build(compression=CompressionConfig(compressor="none")))
        return World(method, **kinds)


Clause = Callable[[Trial], None]
CLAUSES: dict[str, Clause] = {}


def _clause(name: str) -> Callable[[Clause], Clause]:
    def register(clause: Clause) -> Clause:
        CLAUSES[name] = clause
        return clause

    return register


def _require(condition: bool | np.bool_, sentence: str) -> None:
    if not condition:
        raise Broken(sentence)


def _require_same(found: Arrays, expected: Arrays, sentence: str) -> None:
    _require(found.keys() == expected.keys(), f"{sentence} ({sorted(found.keys() ^ expected.keys())})")
    for name, array in expected.items():
        same = (found[name].dtype, found[name].shape) == (array.dtype, array.shape)
        _require(same and found[name].tobytes() == array.tobytes(), f"{sentence} ({name})")


def _copies(arrays: Arrays) -> Arrays:
    return {name: array.copy() for name, array in arrays.items()}


def _arrays(selection: Selection) -> Arrays:
    """All that a selection says, by name."""
    optional = ("weights", "kept_fractions", "learning_rates")
    given = {name: getattr(selection, name) for name in optional if getattr(selection, name) is not None}
    parts = {f"component {name}": values for name, values in selection.components.items()}
    return {"clients": selection.clients, "scores": selection.scores} | given | parts


def _require_sound(selection: Selection, roster: Roster) -> None:
    clients = selection.clients
    arrays = _arrays(selection)
    _require(clients.ndim == 1 and np.issubdtype(clients.dtype, np.integer), "'clients' must be a vector of ids.")
    _require((np.diff(clients) > 0).all(), f"'clients' must be distinct and ascending. Got {clients.tolist()}.")
    strangers = np.setdiff1d(clients, roster.ids).tolist()
    _require(not strangers, f"It selected {strangers}, of the available {roster.ids.tolist()}.")
    for name, array in arrays.items():
        _require(array.shape == clients.shape, f"'{name}' must have an entry for each selected client.")
        if not name.startswith("component"):
            _require(np.isfinite(array).all() and (array >= 0).all(), f"'{name}' must be finite and at least 0.")
    for name in ("kept_fractions", "learning_rates"):
        _require((arrays.get(name, np.ones(1)) > 0).all(), f"'{name}' must be above 0.")
    _require((arrays.get("kept_fractions", np.ones(1)) <= 1).all(), "'kept_fractions' must be at most 1.")


def _play(
    world: World, number: int, available: Iterable[int] | None = None, failed: Iterable[int] = ()
) -> tuple[Selection, int]:
    """A round, whose selection must be sound; and how many it was to select."""
    count = world.observe(number, available)
    selection = world.select(number, count)
    _require_sound(selection, world.roster)
    world.finish(number, selection.clients, failed)
    return selection, count


@_clause("selection")
def _selection(trial: Trial) -> None:
    """Distinct available ids, ascending, with sound numbers beside them."""
    world = trial.world()
    for number in STAGES:
        _play(world, number, [client for client in range(CLIENTS) if (client + number) % 3])


@_clause("cohort-size")
def _cohort_size(trial: Trial) -> None:
    """As many as asked, where promised: one, all, fewer than asked for are there, one client in all."""
    exact = getattr(trial.method, "exact_cohort", True)
    for clients, cohort, available in ((6, 1, range(6)), (6, 6, range(6)), (6, 4, (2, 5)), (6, 3, (4,)), (1, 1, (0,))):
        world = trial.world(clients, cohort)
        for number in STAGES:
            selection, count = _play(world, number, available)
            size, most = selection.clients.size, len(available)
            _require(1 <= size <= most, f"It selected {size} of {most} clients.")
            _require(size == count or not exact, f"It selected {size} clients instead of {count}.")


@_clause("same-seed")
def _same_seed(trial: Trial) -> None:
    """The same seed gives the same run."""
    worlds = trial.world(), trial.world()
    for number in STAGES:
        first, second = (_arrays(_play(world, number)[0]) for world in worlds)
        _require_same(first, second, f"Two runs with the same seed differ in round {number}.")


@_clause("pure-select")
def _pure_select(trial: Trial) -> None:
    """`select` changes nothing, for whatever count; asked again, it answers the same."""

    def ask(world: World, number: int, count: int) -> Arrays:
        asked = [world.select(number, size) for size in (count, 1, CLIENTS, count)]
        return _require_repeated(_arrays(asked[0]), _arrays(asked[-1]), "select")

    _require_pure(trial, ask, "select")


@_clause("pure-candidates")
def _pure_candidates(trial: Trial) -> None:
    """`candidates` changes nothing, and gives distinct available ids, ascending."""

    def ask(world: World, number: int, count: int) -> Arrays:
        first, _, again = (world.candidates(number, size) for size in (count, 1, count))
        _require((np.diff(first) > 0).all(), f"'candidates' must be distinct and ascending. Got {first.tolist()}.")
        _require(np.isin(first, world.roster.ids).all(), f"'candidates' must be available. Got {first.tolist()}.")
        return _require_repeated({"clients": first}, {"clients": again}, "candidates")

    _require_pure(trial, ask, "candidates")


def _require_repeated(first: Arrays, again: Arrays, name: str) -> Arrays:
    _require_same(first, again, f"'{name}' must answer the same when asked again.")
    return first


def _require_pure(trial: Trial, ask: Callable[[World, int, int], Arrays], name: str) -> None:
    world = trial.world()
    for number in range(1, LONG + 1):
        count = world.observe(number)
        if number in (1, 2, 3, LONG - 1, LONG):
            roster, state = _copies(vars(world.roster)), _copies(world.method.state())
            ask(world, number, count)
            _require_same(vars(world.roster), roster, f"'{name}' must not change the roster.")
            _require_same(world.method.state(), state, f"'{name}' must not change the method's state.")
        world.finish(number, world.select(number, count).clients)


@_clause("relabelling")
def _relabelling(trial: Trial) -> None:
    """Under other labels the same clients are as likely to be selected, with and without history."""
    clients, cohort = 10, 3
    identities = stream(0, Purpose.PARTITION).permutation(clients)
    everybody = np.arange(clients)
    counts = np.zeros((2, 2, clients))
    for labels, who in enumerate((everybody, identities)):
        for seed in range(DRAWS):
            world = trial.world(clients, cohort, seed=seed, identities=who)
            for stage, number in enumerate((1, 3)):
                count = world.observe(number)
                counts[labels, stage, who[world.select(number, count).clients]] += 1
                for history in range(number, number + 2):
                    world.finish(history, everybody)
    share = counts.mean(axis=0) / DRAWS
    bound = SIGMAS * np.sqrt(2.0 * DRAWS * share * (1.0 - share)) + 1.0
    odd = np.argwhere(np.abs(counts[0] - counts[1]) > bound)
    _require(not odd.size, f"Who is selected depends on the ids: in {DRAWS} draws {counts[0]} against {counts[1]}.")


@_clause("reply-order")
def _reply_order(trial: Trial) -> None:
    """Flower's own ids and the order of replies make no difference to the model and to what is learnt."""
    ends: list[Arrays] = []
    for backwards in (False, True):
        world = trial.world(updates="mixed")
        clients = sorted(range(CLIENTS), reverse=backwards)
        manager = SimpleClientManager()
        for place, client in enumerate(clients):
            manager.register(Standin(world, client, f"node-{place}"))
        parameters: Parameters | None = world.method.initialize_parameters(manager)
        for number in (1, 2, 3):
            asked = world.method.configure_fit(number, parameters or Parameters([], ""), manager)
            replies = [(proxy, proxy.fit(ins, timeout=None, group_id=None)) for proxy, ins in asked]
            parameters, _ = world.method.aggregate_fit(number, replies[::-1] if backwards else replies, [])
        model = np.frombuffer(b"".join(parameters.tensors if parameters else []), np.uint8)
        roster = {f"roster {name}": array for name, array in vars(world.roster).items()}
        ends.append({"model": model} | roster | _copies(world.method.state()))
    _require_same(ends[0], ends[1], "The order in which replies come must make no difference.")


@_clause("absent-clients")
def _absent_clients(trial: Trial) -> None:
    """Clients vanish, come back, and come late."""
    world = trial.world()
    for number, available in zip(STAGES, ((0, 1, 2), (7,), (1, 3, 5, 7, 9), (0, 2), range(11)) * 2, strict=False):
        _play(world, number, available)
    _play(world, ROUNDS)


@_clause("failures")
def _failures(trial: Trial) -> None:
    """All fail, from the first round on or later; half of the clients always fail; nobody was even asked."""
    for failing in (lambda number: range(CLIENTS), lambda number: range(6), lambda number: range(number % 2 * CLIENTS)):
        world = trial.world()
        world.observe(1)
        world.method.absorb(outcome(world.now(1), [], [], reports=dict.fromkeys(world.needs.reports, np.zeros(0))))
        for number in STAGES:
            _play(world, number, failed=failing(number))


def _kind_of_losses(kind: str) -> None:
    @_clause(f"losses-{kind}")
    def losses(trial: Trial) -> None:
        world = trial.world(losses=kind)
        for number in STAGES:
            _play(world, number)


def _kind_of_updates(kind: str) -> None:
    @_clause(f"updates-{kind}")
    def updates(trial: Trial) -> None:
        world = trial.world(updates=kind)
        for number in STAGES:
            _play(world, number)


for _kind in LOSSES:
    _kind_of_losses(_kind)
for _kind in UPDATES:
    _kind_of_updates(_kind)


@_clause("knowledge")
def _knowledge(trial: Trial) -> None:
    """What a method does not say that it `needs` makes no difference to it."""
    bare, generous = trial.world(), trial.world(generous=True)
    for number in STAGES:
        first, second = (_arrays(_play(world, number)[0]) for world in (bare, generous))
        _require_same(first, second, "It reads what its 'needs' do not declare.")


@_clause("state")
def _state(trial: Trial) -> None:
    """Named arrays of numbers, without infinities where none came in."""
    world = trial.world()
    for number in STAGES:
        _play(world, number)
        for name, array in world.method.state().items():
            sound = isinstance(array, np.ndarray) and array.dtype != object
            _require(sound, f"'{name}' must be an array of numbers.")
            _require(not np.isinf(array).any(), f"'{name}' holds an infinity, which no later round can mend.")


@_clause("round-trip")
def _round_trip(trial: Trial) -> None:
    """Saved and loaded at any time, a method goes on identically."""
    for cut in (1, 2, LONG):
        whole, resumed = trial.world(updates="mixed"), trial.world(updates="mixed")
        for number in range(1, cut + 1):
            _play(whole, number)
        for name, array in vars(whole.roster).items():
            setattr(resumed.roster, name, array.copy())
        resumed.method.load_state(_through_a_file(whole.method.state()))
        _require_same(resumed.method.state(), whole.method.state(), "A loaded state must be the one saved.")
        for number in range(cut + 1, cut + 6):
            first, second = (_arrays(_play(world, number)[0]) for world in (whole, resumed))
            _require_same(second, first, f"Resumed after round {cut}, it decides otherwise in round {number}.")
            _require_same(
                resumed.method.state(), whole.method.state(), f"Resumed after round {cut}, it learns otherwise."
            )


def _through_a_file(arrays: Arrays) -> dict[str, NDArray[Any]]:
    file = BytesIO()
    np.savez(file, allow_pickle=False, **arrays)
    file.seek(0)
    with np.load(file, allow_pickle=False) as saved:
        return dict(saved)


@_clause("coverage")
def _coverage(trial: Trial) -> None:
    """In the long run everybody has a turn, where that is promised."""
    if getattr(trial.method, "explores", True):
        world = trial.world(CROWD, COHORT, rounds=MANY)
        for number in range(1, MANY + 1):
            _play(world, number)
        starved = np.flatnonzero(world.roster.selections == 0).tolist()
        _require(not starved, f"In {MANY} rounds of {COHORT} clients it never selected {starved} of {CROWD}.")
