"""Buffers in a secure sum: the running means and variances of BatchNorm, as further whole numbers behind the update.

A client sends how far its buffers after training are from those of the model that it was sent,

    d_i = w (b_i - a_i) / s_i,

where w is the weight of its update, and a_i the buffer of the model. The scale s_i is public: v + `FLOOR` for a
variance v of the model, the root of that for the mean beside it, and 1 for a buffer that is no statistic. The next
model has a_i + s_i times the mean of the d_i, and no variance below 0.

The range of a round is 2^e for all d_i. As for updates (`fedsel_app.wire.ring`), each client states the exponent of its
largest |d_i| as a vector with a single 1, and the second largest exponent in the sum of these vectors counts for the
next round. So no client can widen the range by itself, and one that lies moves a buffer by less than 2^(e + 1) scales.
The first round has e = `FIRST`. What is clipped or rounded is not kept: the next round measures it again.

A ring of few bits has no room for so many multiples. So each is sent as K digits of the base 2 Q + 1, from -Q to Q.
Their sums stay in the ring, as those of updates do. K is the least number of digits with `LEAST` multiples or more, and
the grid is 2^g, where M is the largest multiple of K digits, and g = e - floor(log2 M).
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedsel_app.wire.entries import RoundEntries
from fedsel_app.wire.ring import PLACES, exponent_of, largest, one_hot

FLOOR = 1e-5
"""What BatchNorm adds to a variance before it divides, so that no smaller change matters."""
FIRST = 3
"""Exponent of the first range: the statistics of an initial model say little about the data."""
LEAST = 1 << 18
"""Least number of multiples that are told apart."""
Integers = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class BufferSection:
    """Section of the buffers in the numbers of a masked update.

    Attributes
    ----------
    start : buffers of the model from which the clients train, (B,)
    variances : bool (S,), which of the first S buffers are variances; the others of these are means
    exponent : e
    entries : those of the round, for the ring, the number of clients and the weights
    """

    start: NDArray[np.floating]
    variances: NDArray[np.bool_]
    exponent: int
    entries: RoundEntries

    @property
    def base(self) -> int:
        """Base of the digits."""
        return 2 * largest(self.entries.bits, self.entries.clients) + 1

    @property
    def digits(self) -> int:
        """K, the number of digits."""
        return next(count for count in range(1, LEAST) if self.base**count >= LEAST)

    @property
    def size(self) -> int:
        """Number of whole numbers in the section: digits, and the vector with the exponent."""
        return self.digits * self.start.size + PLACES

    def numbers(self, buffers: NDArray[np.floating], examples: int) -> Integers:
        """The whole numbers that a client with so many examples sends of its `buffers`, int64 (size,)."""
        moved = self.entries.weight(examples) * (buffers.astype(np.float64) - self.start) / self._scales
        rest = np.clip(np.rint(np.ldexp(moved, -self._grid)), -self._most, self._most).astype(np.int64)
        digits, middle = [], self.base // 2
        for _ in range(self.digits):
            digits.append((rest + middle) % self.base - middle)
            rest = (rest - digits[-1]) // self.base
        return np.concatenate([*digits, one_hot(exponent_of(moved))])

    def mean(self, total: Integers, divisor: float) -> NDArray[np.float64]:
        """The buffers of the next model, (B,), from the sum of `numbers` over clients with this sum of weights."""
        multiples = np.zeros(self.start.size, np.int64)
        for digit in total[:-PLACES].astype(np.int64).reshape(self.digits, -1)[::-1]:
            multiples = multiples * self.base + digit
        buffers = self.start + self._scales * np.ldexp(multiples / divisor, self._grid)
        statistics = buffers[: self.variances.size]
        statistics[self.variances] = np.maximum(statistics[self.variances], 0.0)
        return buffers

    @property
    def _most(self) -> int:
        """M, the largest multiple."""
        most: int = self.base**self.digits // 2
        return most

    @property
    def _grid(self) -> int:
        """g, the exponent of the grid."""
        return self.exponent - self._most.bit_length() + 1

    @property
    def _scales(self) -> NDArray[np.float64]:
        scales = np.ones(self.start.size)
        statistics = scales[: self.variances.size]
        spread = np.maximum(self.start[: self.variances.size][self.variances].astype(np.float64), 0.0) + FLOOR
        statistics[self.variances] = spread
        if 2 * spread.size == statistics.size:  # otherwise some of them stay with the clients
            statistics[~self.variances] = np.sqrt(spread)
        return scales
