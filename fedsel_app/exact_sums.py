"""Exact sums: weighted updates rounded to grids and added as integers, with the same bits in any order and grouping.

A sum in float64 depends on the order of its terms, because each addition rounds. Here each term, weight times update,
is rounded once to whole multiples of a power of two, and the multiples are added as integers, which is exact. So
several processes may add the updates of a cohort, their sums may be added in any order, and an update can be subtracted
again as if it had never been added.

The grid of a term follows from that term alone: if 2^e, with e a multiple of `STEP`, is the smallest such power above
its largest entry, its grid has the multiples of 2^(e - BITS). So there is no bound that an update could exceed, and no
client changes how another's update is rounded. The terms of one grid share an array of integers; a round usually needs
one or two. A result is divided by the sum of the weights at the end, so that a term depends on no other client.

The error of an entry is at most 2^(STEP - BITS - 1) = 2^-40 of the largest entry of its term. The largest entry of a
float32 update has an error of up to 2^-25 of itself. The remainders of float64 updates are rounded too, to a grid that
is finer by 2^(BITS + 1), after which the error is 2^-88.

The sum x + 1.5 2^52 g of float64, with |x| <= 2^51 g, has the same exponent for all x. So its last bit is worth g, and
its bits are those of 1.5 2^52 g plus the multiple of g that is nearest to x (ties to even). Sums of ReproBLAS use the
same addition: J. Demmel, H. D. Nguyen, "Parallel Reproducible Summation", IEEE Transactions on Computers 64, 2015.
"""

import math
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from fedsel_app.wire.codec import Update

Floats = NDArray[np.float64]
BITS = 47
"""The multiples of a term are at most 2^BITS."""
STEP = 8
"""Step between the exponents of grids. It divides BITS + 1."""
MOST = (1 << (63 - BITS)) - 1
"""Largest number of terms of a sum: 64 bits hold the sum of so many multiples of at most 2^BITS."""
LOWEST, HIGHEST = -800, 1000
"""Bounds of the exponent e. A term with an entry of 2^HIGHEST is refused."""
PART = 2**16
"""Number of entries in each part of the model that is summed at a time: 512 KiB of float64."""


class ExactSum:
    """Exact sum of weighted updates with `size` entries.

    With `precise`, the remainders of float32 updates are rounded too.

    Attributes
    ----------
    count : number of terms
    multiples : exponent e -> the sum of the terms of this grid in multiples of 2^(e - BITS), int64 (size,)
    """

    def __init__(self, size: int, *, precise: bool = False) -> None:
        self.size, self._precise = size, precise
        self.count = 0
        self.multiples: dict[int, NDArray[np.int64]] = {}

    def add(self, updates: Sequence[Update], weights: Sequence[float]) -> None:
        """Add ``weights[k] * updates[k]`` for all k.

        It adds one part of the model after the other, because a part fits into the processor's cache.

        Raises ValueError if an update has another size, a term is too large, or there are more than `MOST` terms.
        """
        self._add(updates, weights, len(updates))

    def subtract(self, update: Update, weight: float) -> None:
        """Subtract a term that was added."""
        self._add([update], [-weight], -1)

    def merge(self, other: "ExactSum") -> None:
        """Add the terms of another sum. Raises ValueError as `add`."""
        self._counted(other.count, [other.size])
        for exponent, multiples in other.multiples.items():
            if exponent in self.multiples:
                self.multiples[exponent] += multiples
            else:
                self.multiples[exponent] = multiples.copy()

    def total(self) -> Floats:
        """The sum, float64 (size,). It is rounded once for each grid."""
        total = np.zeros(self.size)
        for exponent, multiples in sorted(self.multiples.items()):
            for start in range(0, self.size, PART):
                total[start : start + PART] += multiples[start : start + PART] * 2.0 ** (exponent - BITS)
        return total

    def _add(self, updates: Sequence[Update], weights: Sequence[float], count: int) -> None:
        grids = [self._exponents(update, weight) for update, weight in zip(updates, weights, strict=True)]
        self._counted(count, [update.size for update in updates])
        edges = np.append(np.arange(0, self.size, PART, dtype=np.uint32), np.uint32(self.size))
        cuts = [
            (edges if update.indices is None else np.searchsorted(update.indices, edges)).tolist() for update in updates
        ]
        buffer = np.empty(min(PART, self.size))
        for part in range(len(edges) - 1):
            for update, weight, exponents, cut in zip(updates, weights, grids, cuts, strict=True):
                span = slice(cut[part], cut[part + 1])
                terms = buffer[: span.stop - span.start]
                terms[:] = update.values[span]
                terms *= weight
                for exponent, rounded in _rounded(terms, exponents):
                    if update.indices is None:
                        self._grid(exponent)[span] += rounded
                    else:
                        # No index occurs twice: `np.add.at` is only faster than indexing, with indices of this type.
                        np.add.at(self._grid(exponent), update.indices[span].astype(np.intp), rounded)

    def _counted(self, count: int, sizes: Sequence[int]) -> None:
        """Count the terms. Raises ValueError if they are too many, or of other sizes."""
        if others := [size for size in sizes if size != self.size]:
            raise ValueError(f"The update has {others[0]} entries. Got a sum of {self.size}.")
        if self.count + count > MOST:
            raise ValueError(f"A sum has at most {MOST} terms: set 'cohort' to less.")
        self.count += count

    def _grid(self, exponent: int) -> NDArray[np.int64]:
        if exponent not in self.multiples:
            self.multiples[exponent] = np.zeros(self.size, np.int64)
        return self.multiples[exponent]

    def _exponents(self, update: Update, weight: float) -> tuple[int, ...]:
        """Exponents of the term's grid and of that of its remainders, if these count; none for a term of zeros."""
        largest = abs(weight) * update.largest()
        if not largest < 2.0**HIGHEST:
            raise ValueError(f"An update with the weight {weight:g} has an entry of {largest:g}, which is too large.")
        if not largest:
            return ()
        exponent = max(-(-math.frexp(largest)[1] // STEP) * STEP, LOWEST)
        precise = self._precise or update.values.itemsize > 4
        return (exponent, exponent - BITS - 1) if precise else (exponent,)


class CohortSum:
    """Exact sums over clients, each of which adds one term to each sum.

    Attributes
    ----------
    sums : the sums; none before the first client
    count : number of clients
    """

    def __init__(self) -> None:
        self.sums: list[ExactSum] = []
        self.count = 0

    def add(self, terms: Sequence[tuple[Update, float]]) -> None:
        """Add a client's terms, updates with their weights."""
        self._begin([update.size for update, _ in terms])
        for each, (update, weight) in zip(self.sums, terms, strict=True):
            each.add([update], [weight])
        self.count += 1

    def subtract(self, terms: Sequence[tuple[Update, float]]) -> None:
        """Subtract the terms of a client that was added."""
        for each, (update, weight) in zip(self.sums, terms, strict=True):
            each.subtract(update, weight)
        self.count -= 1

    def merge(self, other: "CohortSum") -> None:
        """Add the clients of another sum."""
        self._begin([each.size for each in other.sums])
        for mine, theirs in zip(self.sums, other.sums, strict=True):
            mine.merge(theirs)
        self.count += other.count

    def arrays(self) -> dict[str, NDArray[np.int64]]:
        """The integers of the sums, by the place of the sum, its size and the exponent, for `of_arrays`."""
        return {
            f"{place} {each.size} {exponent}": multiples
            for place, each in enumerate(self.sums)
            for exponent, multiples in {LOWEST: np.zeros(0, np.int64), **each.multiples}.items()
        }

    @classmethod
    def of_arrays(cls, arrays: Mapping[str, NDArray[np.int64]], count: int) -> "CohortSum":
        """The sums over `count` clients with these `arrays`."""
        cohort = cls()
        cohort.count = count
        for name, multiples in arrays.items():
            place, size, exponent = map(int, name.split())
            if place == len(cohort.sums):
                cohort.sums.append(ExactSum(size))
                cohort.sums[place].count = count
            if multiples.size:
                cohort.sums[place].multiples[exponent] = multiples
        return cohort

    def _begin(self, sizes: Sequence[int]) -> None:
        if not self.sums:
            self.sums = [ExactSum(size) for size in sizes]


def weighted_sum(updates: Sequence[Update], weights: Sequence[float], *, precise: bool = False) -> Floats:
    """Exact sum of ``weights[k] * updates[k]`` over one or more updates, float64 (N,). See `ExactSum`."""
    total = ExactSum(updates[0].size, precise=precise)
    total.add(updates, weights)
    return total.total()


def _rounded(terms: Floats, exponents: tuple[int, ...]) -> Iterator[tuple[int, NDArray[np.int64]]]:
    """Each exponent with the multiples of its grid in `terms`, which change: what remains is for the next grid."""
    for exponent in exponents:
        shift = np.float64(1.5 * 2.0 ** (52 + exponent - BITS))
        shifted = terms + shift
        yield exponent, shifted.view(np.int64) - shift.view(np.int64)
        if exponent != exponents[-1]:
            terms -= shifted - shift
