"""Unmasking: the sum over a cohort from its masked numbers and from the shares of those who answered."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import sha256

import numpy as np
from numpy.typing import NDArray

from fedsel_app.secure_sums.keys import mask
from fedsel_app.secure_sums.shares import combine
from fedsel_app.secure_sums.statement import Masked, Question, Statement, promise, read_shares, seed_of
from fedsel_app.wire.ring import from_ring, largest, words_of_bytes

MOST_TRIES = 300
"""Most sets of shares that are tried for a seed, if clients send wrong ones."""


class LostSumError(RuntimeError):
    """The sum of an attempt cannot be unmasked. The text says why."""


@dataclass(frozen=True)
class Sum:
    """Masked sum of an attempt.

    Attributes
    ----------
    masked : client -> what it sent, of all clients in the sum
    size, bits : numbers of each, and bits of the ring
    expanded : masks that were computed so far
    suspects : clients that sent a wrong share
    """

    statement: Statement
    masked: Mapping[int, Masked]
    size: int
    bits: int
    expanded: list[int] = field(default_factory=lambda: [0])
    suspects: set[int] = field(default_factory=set)

    @property
    def gone(self) -> list[int]:
        """Clients of the cohort that are not in the sum."""
        return [client for client in self.statement.cohort if client not in self.masked]

    def question(self, client: int) -> Question:
        """The question to a client of the sum."""
        owners = [owner for owner in self.statement.neighbours[client] if owner in self.masked]
        boxes = {owner: self.masked[owner].box(self.statement, owner, client) for owner in owners}
        return Question(tuple(sorted(self.masked)), tuple(self.gone), boxes)

    def short_of_holders(self) -> list[int]:
        """Clients of the sum with too few others in it: no answers could unmask them."""
        inside, least = self.masked.keys(), self.statement.threshold
        return [owner for owner in inside if len(inside & {*self.statement.holders(owner)}) < least]

    def unmasked(self, answers: Mapping[int, bytes]) -> NDArray[np.int64]:
        """The sum, int64 (size,), from the `answers` of its clients. Raises LostSumError if they do not suffice.

        A number beyond what the clients may send together is cut down to that: only a liar can have caused it.
        """
        shares = self._shares(answers)
        seeds = {wanted: self._seed(*wanted, told) for wanted, told in shares.items()}
        total = np.zeros(self.size, np.uint32)
        for masked in self.masked.values():
            total += words_of_bytes(masked.words, self.bits, self.size)
        for (owner, of), seed in seeds.items():
            pattern = mask(seed, self.size, self.bits)
            self.expanded[0] += 1
            if of is None or owner < of:
                total -= pattern
            else:
                total += pattern
        most = len(self.masked) * largest(self.bits, len(self.statement.cohort))
        return np.clip(from_ring(total, self.bits).astype(np.int64), -most, most)

    def _shares(self, answers: Mapping[int, bytes]) -> dict[tuple[int, int | None], dict[int, int]]:
        """Owner and seed -> the shares of it that were told, by their points."""
        shares: dict[tuple[int, int | None], dict[int, int]] = {}
        for owner in self.masked:
            for of in self.statement.wanted(owner, self.masked.keys())[owner]:
                shares[owner, of] = {}
        for client, content in answers.items():
            wanted = self.statement.wanted(client, self.masked.keys())
            names = [(owner, of) for owner, seeds in wanted.items() for of in seeds]
            try:
                for name, share in zip(names, read_shares(content), strict=True):
                    shares[name][client + 1] = share
            except ValueError:
                self.suspects.add(client)
        return shares

    def _seed(self, owner: int, of: int | None, told: Mapping[int, int]) -> bytes:
        """A seed from `threshold` of its shares. Shares of clients that sent wrong ones come last."""
        least, promised = self.statement.threshold, self.masked[owner].promised(self.statement, owner, of)
        points = sorted(told, key=lambda point: (point - 1 in self.suspects, point))
        if len(points) < least:
            raise LostSumError(
                f"{len(points)} clients told their shares of client {owner}, and {least} must: the others did not "
                "answer in time, or refused"
            )
        first = tuple(points[:least])
        for trial in range(MOST_TRIES):
            drawn = sorted(points, key=lambda point: sha256(b"%d %d" % (trial, point)).digest())
            chosen = tuple(drawn[:least]) if trial else first
            try:
                seed = seed_of(combine(told_at(told, chosen)))
            except ValueError:
                continue
            if promise(seed) == promised:
                if trial:
                    self.suspects.update(point - 1 for point in points if not _fits(told, chosen, point))
                return seed
        raise LostSumError(f"the shares of client {owner} do not give the seed that it promised: a client lies")


def _fits(told: Mapping[int, int], right: tuple[int, ...], point: int) -> bool:
    """True if the share at `point` lies on the polynomial of the `right` ones."""
    return point in right or combine(told_at(told, (*right[1:], point))) == combine(told_at(told, right))


def told_at(told: Mapping[int, int], points: tuple[int, ...]) -> dict[int, int]:
    """The shares at these points."""
    return {point: told[point] for point in points}
