"""Common entries: which entries all clients of a round send with the compressor common-k, and on which grid.

With masks it also keeps the range of the clients' buffers (`fedsel_app.secure_sums.buffers`).

A half of the entries is drawn uniformly. The others are exploited: those with the largest
q_i |a_i| / p_i, where a_i is the aggregate of the last round in which entry i was sent, p_i the number of rounds whose
changes were in it, and q_i the number of rounds since then. So an entry is sent again when about as much of it is
missing as of others. All of this follows from what the server has published, and no client's update is told by it.

In the first round no entry has been sent, so all entries are drawn. Its grid expects values below the largest weight of
the initial model, or 1 if all are 0; what this clips or rounds away stays in the clients' residuals. Later rounds take
the exponent from the round before (`fedsel_app.wire.ring`).
"""

from collections.abc import Iterable
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from fedsel_app.secure_sums.buffers import FIRST
from fedsel_app.solvers import Weights
from fedsel_app.wire import ring
from fedsel_app.wire.entries import NO_INDICES, Indices, RoundEntries, drawn_entries, encode_entries
from fedsel_app.wire.indices import kept_count
from strategies.checkpoint import Saved
from strategies.roster import Floats, Ints, RoundInfo
from strategies.round.budget import round_fraction
from strategies.run_context import RunContext

EXPLORED = 0.5
"""Share of the entries of a round that is drawn uniformly."""


def exploited_entries(scores: NDArray[np.float32], count: int) -> Indices:
    """At most `count` entries, in increasing order: those of the largest `scores` above 0, the first of equals."""
    positive = np.flatnonzero(scores)
    if positive.size > count:
        order = np.argsort(-scores[positive], kind="stable")
        positive = np.sort(positive[order[:count]])
    return positive.astype(np.uint32)


class CommonEntries(Saved):
    """Rule of the entries of each round, with the public history of the aggregate."""

    state_fields = ("_change", "_age", "_exponent", "buffers_exponent")
    buffers_exponent: int
    """With masks, exponent of the range in which the clients send their buffers."""
    weighs: bool
    """Whether the clients weigh their updates by examples themselves, because the server sees only the sum."""

    def __init__(self, context: RunContext) -> None:
        self._context, size = context, context.initial.size
        self.weighs = context.privacy.masked and context.aggregation.weighting == "examples"
        self._change = np.zeros(size, np.float32)
        """Change of each entry in a round, by its last aggregate: |a_i| / p_i."""
        self._age = np.ones(size, np.int32)
        """Rounds whose changes the next aggregate of each entry has."""
        largest = float(np.abs(context.initial).max(initial=0.0)) or 0.5
        self._exponent = ring.exponent_of(np.array([largest]))
        self.buffers_exponent = FIRST
        self._entries = RoundEntries(None, context.compression.ring_bits, self._exponent, 1)
        self._exploited = NO_INDICES

    def begin(self, round_info: RoundInfo) -> int:
        """Choose the entries of a round. Returns the number of bytes that state them."""
        context, compression, size = self._context, self._context.compression, self._age.size
        count = kept_count(round_fraction(round_info, context), size, down=compression.as_coded)
        indices, self._exploited = None, NO_INDICES
        if count < size:
            exploited = count - round(EXPLORED * count)
            self._exploited = exploited_entries(self._change * self._age, exploited)
            explored = count - self._exploited.size
            indices = drawn_entries(self._exploited, explored, size, context.run.seed, round_info.number)
        self._entries = replace(self._entries, indices=indices, exponent=self._exponent)
        return len(self.statement(1, 0))

    def statement(self, clients: int, examples: int) -> bytes:
        """What the clients of a round are told of its entries.

        `clients` is their number, and `examples` the most that one of them has.
        """
        self._entries = replace(self._entries, clients=clients, full_weight=examples if self.weighs else 0)
        return encode_entries(self._entries, self._exploited, self._age.size, self._context.run.seed)

    def in_updates(self, weights: Weights) -> Weights:
        """The weights of updates by their examples, as the updates themselves are weighed by them, if they are."""
        if not self.weighs:
            return weights
        return Weights(np.ones_like(weights.own), weights.divisor / self._entries.full_weight)

    def learn(self, aggregate: Floats | None, exponents: Iterable[int | None], buffers_counts: Ints | None) -> None:
        """Take the aggregate of a round, float64 (N,), and the exponents of its clients; None: nobody replied.

        `buffers_counts` are the numbers of clients with each exponent of their buffers' change, if they sent any.
        """
        age = self._age + np.int32(1)
        if aggregate is not None:
            chosen = slice(None) if self._entries.indices is None else self._entries.indices
            self._change[chosen] = np.abs(aggregate[chosen]) / self._age[chosen]
            age[chosen] = 1
        self._age = age
        counts = np.zeros(ring.PLACES, np.int64)
        for exponent in exponents:
            counts += 0 if exponent is None else ring.one_hot(exponent)
        clients = self._entries.clients
        self._exponent = ring.next_exponent(counts, self._exponent, clients)
        if buffers_counts is not None:
            self.buffers_exponent = ring.next_exponent(buffers_counts, self.buffers_exponent, clients)
