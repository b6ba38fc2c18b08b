"""Blindness of a method: how far one client moves a round's sum before noise. Privacy accounting assumes one clip norm.

Two federations have the same past: all clients except one send the same in both, and the server released the same
models. If a method looks at what this one client sent, it may select other clients for the next cohort, or give them
other kept fractions. Then the clipped updates of these clients enter or leave the sum. The client can then move the sum
by 1 clip norm for its own clipped update, which may have any direction, plus the norm of the change in the others'
part. For a blind method the total is 1.00. The sum is divided by the size of the cohort, so a different size counts as
1 more.
"""

from collections.abc import Callable, Collection, Iterator
from dataclasses import replace
from functools import partial
from itertools import product
from typing import NamedTuple

import numpy as np

from fedsel_app.wire.codec import Update
from strategies.base import SelectionStrategy
from strategies.method import SENT, Sent
from strategies.roster import Floats, RoundInfo, Selection
from strategies.round.budget import cohort_fractions
from strategies.testing.checked_method import MethodUnderTest, require
from strategies.testing.fake_federation import FakeFederation

FEDERATIONS = ((12, 4, 12), (16, 8, 36))
"""Clients, cohort and rounds: a run with small cohorts, and one beyond any warm-up with cohorts that can be split."""
CHANGES: tuple[Callable[[Floats], Floats], ...] = (np.zeros_like, np.negative, lambda values: 5.0 * values[::-1])
"""Changes of an update, float64 (N,)."""
FACTORS = (0.0, 0.2, 10.0)
"""Changes of a number, and of a client's number of examples."""
CLIP = 0.25
"""Clip norm; nearly every update of the fake federation has a larger norm."""
MOST = 1.0 + 1e-9
"""Clip norms by which one client moves the sum of a blind method, with a margin for rounding."""


class Release(NamedTuple):
    """A round before noise: the clipped update of each client, float64 (N,), and their mean."""

    parts: dict[int, Floats]
    mean: Floats


class Neighbour(FakeFederation):
    """Federation in which one client sends different data.

    Parameters
    ----------
    client, kinds, change : the client, the kinds of its data that change, and the place in `CHANGES` or `FACTORS`
    parts : parts in the rounds' sums that were computed before, which all federations of these clients share
    """

    def __init__(
        self,
        method: SelectionStrategy,
        parts: dict[tuple[int, int, float, float], Floats],
        client: int = 0,
        kinds: Collection[Sent] = (),
        change: int = 0,
    ) -> None:
        super().__init__(method)
        self._parts = parts
        self._client, self._kinds, self._change = client, kinds, change
        if "label counts" in kinds:
            self.label_counts = self.label_counts.copy()
            self.label_counts[client] = np.roll(self.label_counts[client], 1 + change)
        if "examples" in kinds:
            for numbers in (self.examples, self.local_steps):
                numbers[client] = max(1, int(FACTORS[change] * numbers[client]))

    def round_info(self, number: int) -> RoundInfo:
        """Round `number`, with the method's own round if it has such rounds."""
        return self.method.run.rounds.info(number)

    def losses(self, number: int) -> Floats:
        """Losses of all clients, float64 (K,)."""
        return self._changed("losses", super().losses(number))

    def reports(self, number: int) -> Floats:
        """Number that all clients report, float64 (K,)."""
        return self._changed("reports", super().losses(number))

    def update(self, number: int, client: int) -> Update:
        """Update that `client` sends in round `number`."""
        update = super().update(number, client)
        if client != self._client or "updates" not in self._kinds:
            return update
        changed = CHANGES[self._change](update.values.astype(np.float64))
        return Update(update.size, update.indices, changed.astype(np.float32))

    def play(self, number: int, released: Floats | None = None) -> Release:
        """Play round `number`. The method then gets the aggregate `released`; None: its own mean."""
        selection = self.select(number, self.observe(number))
        clients, rates = selection.clients.tolist(), selection.learning_rates
        rates = np.ones(len(clients)) if rates is None else rates
        kept = zip(clients, self._fractions(number, selection), rates, strict=True)
        parts = {client: self._part(number, client, float(fraction), float(rate)) for client, fraction, rate in kept}
        mean = np.mean(list(parts.values()), axis=0) if parts else np.zeros(self.method.context.initial.size)
        aggregate = mean if released is None else released
        self.method.learn(replace(self.train(number, selection), aggregate=aggregate))
        return Release(parts, mean)

    def _part(self, number: int, client: int, fraction: float, rate: float) -> Floats:
        """The client's part in the round's sum, from the data that it really has."""
        key = number, client, fraction, rate
        if key not in self._parts:
            update = super().update(number, client).dense().astype(np.float64)
            self._parts[key] = clipped(update, fraction, rate)
        return self._parts[key]

    def _fractions(self, number: int, selection: Selection) -> Floats:
        if selection.kept_fractions is not None:
            return selection.kept_fractions
        context, links = self.method.context, self.method.context.links
        means = links.mean_uplink_bits_per_s, links.mean_step_s
        info, size = self.round_info(number), context.initial.size
        return cohort_fractions(selection, self.roster, means, size, info, context.budget)[1]

    def _changed(self, sent: Sent, values: Floats) -> Floats:
        if sent not in self._kinds:
            return values
        changed = values.copy()
        changed[self._client] *= FACTORS[self._change]
        return changed


def moves(tested: MethodUnderTest, kinds: Collection[Sent]) -> Iterator[float]:
    """For each change of all `kinds` of data: the largest move of a round's sum by one client, in clip norms."""
    for clients, cohort, rounds in FEDERATIONS:
        build = partial(tested.instance, clients, cohort, rounds=rounds)
        parts: dict[tuple[int, int, float, float], Floats] = {}
        whole = Neighbour(build(), parts)
        releases = [whole.play(number) for number in range(1, rounds + 1)]
        first = list(releases[0].parts)
        watched = first[:2] + [client for client in range(clients) if client not in first][:1]
        for client, change in product(watched, range(len(CHANGES))):
            other = Neighbour(build(), parts, client, kinds, change)
            yield max(
                moved(release.parts, other.play(number, release.mean).parts, client)
                for number, release in enumerate(releases, start=1)
            )


def seen_to_look_at(tested: MethodUnderTest, kinds: Collection[Sent] = SENT) -> list[Sent]:
    """The `kinds` of data on which the method's cohorts, kept fractions or learning rates depend."""
    if not kinds or not _follows(tested, kinds):
        return []
    return [sent for sent in kinds if _follows(tested, [sent])] or list(kinds)


def check_looks_at(tested: MethodUnderTest) -> None:
    """Cohorts and kept fractions depend only on the kinds of data from clients that the class's `looks_at` names."""
    said = tested.method.looks_at
    if said is not None:
        found = seen_to_look_at(tested, [sent for sent in SENT if sent not in said])
        require(not found, f"its 'looks_at' omits {', '.join(found)}, on which its cohorts or kept fractions depend.")


def _follows(tested: MethodUnderTest, kinds: Collection[Sent]) -> bool:
    return any(move > MOST for move in moves(tested, kinds))


def moved(parts: dict[int, Floats], others: dict[int, Floats], client: int) -> float:
    """Largest move of the sum by `client`, in clip norms, if the others' sum changes from `parts` to `others`."""
    rest, changed = (sum((part for one, part in of.items() if one != client), np.zeros(1)) for of in (parts, others))
    return 1.0 + float(np.linalg.norm(rest - changed)) / CLIP + float(len(parts) != len(others))


def clipped(values: Floats, fraction: float, rate: float) -> Floats:
    """The `fraction` of largest entries (the last one in part), times `rate`, clipped."""
    share = np.zeros(values.size)
    share[np.argsort(-np.abs(values), kind="stable")] = np.clip(fraction * values.size - np.arange(values.size), 0, 1)
    sent = rate * share * values
    return np.asarray(sent * min(1.0, CLIP / max(float(np.linalg.norm(sent)), CLIP)))
