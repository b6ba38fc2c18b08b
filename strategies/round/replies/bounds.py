"""Bounds on what the server averages or sums, which no client can move by itself.

What a client sends is compared with what other clients send. If fewer than `LEAST` clients reply at a time, those that
replied before them are compared too, so that a lone reply never sets its own bound. With less than `LEAST` clients in
the run, all of its clients are enough: of two, the smaller norm counts, or the norm of the initial model.

`NormBounds` bounds the norms of updates and of changes of control variates, and `BoundedMean` the entries of BatchNorm
statistics and of other buffers.
"""

import math
from collections.abc import Sequence
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from fedsel_app.config import AggregationConfig
from fedsel_app.exact_sums import weighted_sum
from fedsel_app.wire.codec import Update
from strategies.checkpoint import Saved
from strategies.roster import Floats, Ints

LEAST = 3
"""Number of clients of which one cannot move the median beyond the others."""
GROWTH = 2.0
"""Largest factor by which a round raises a typical norm."""
FIRST = 3.0
"""Norm that one of a few first replies may have, in multiples of the initial model's norm."""
FAR = 10.0
"""A client is told if its vector is more than this many times as far from the median as the median client's."""


class LastReplies(Saved):
    """Values of the clients that replied last, at most `LEAST` clients.

    Parameters
    ----------
    size : number of values of a client
    """

    state_fields: ClassVar[tuple[str, ...]] = ("_clients", "_values")
    growing = True

    def __init__(self, size: int) -> None:
        self._clients, self._values = np.zeros(0, np.int64), np.zeros((0, size))

    def joined(self, clients: Ints, values: Floats) -> tuple[Ints, Floats]:
        """These clients with their values, (n, size), after earlier ones, if they are fewer than `LEAST`."""
        others = np.flatnonzero(~np.isin(self._clients, clients))
        others = others[max(others.size - max(LEAST - clients.size, 0), 0) :]
        return np.append(self._clients[others], clients), np.concatenate([self._values[others], values])

    def keep(self, clients: Ints, values: Floats) -> tuple[Ints, Floats]:
        """As `joined`; the last of these are kept."""
        clients, values = self.joined(clients, values)
        self._clients, self._values = clients[-LEAST:], values[-LEAST:]
        return clients, values


class NormBounds(LastReplies):
    """Largest norms of replies: `multiple` times the typical norms that earlier rounds established.

    The typical norm rises to the lower median of a round's accepted replies, but at most by the factor `GROWTH`, and
    never falls: the median of clients that have converged says little about one that still learns. With fewer than
    `LEAST` accepted replies, the last replies of other clients count with them. If no reply of a round is accepted,
    all of them count as accepted, so that the bound can follow honest clients whose norms grow fast.

    Before anything is established, the norms of a round are compared with their own lower median. With fewer than
    `LEAST` clients, or a median of 0, `FIRST` times the norm of the initial model always counts: a client that sends
    nearly nothing does not cause others to be left out. With fewer than `LEAST` clients in the run, nothing is ever
    established.

    Parameters
    ----------
    payloads : number of norms in a reply
    clients : number of all clients of the run
    multiple : setting `max-update-norm`
    initial : norm of the initial model; of a model of zeros, that of entries of 1

    Attributes
    ----------
    typical : float64 (payloads,), the typical norms; 0 as long as none is established
    """

    state_fields = ("typical", *LastReplies.state_fields)

    def __init__(self, payloads: int, clients: int, multiple: float, initial: float) -> None:
        super().__init__(payloads)
        self._total, self._multiple, self._initial = clients, multiple, initial
        self.typical = np.zeros(payloads)

    def take(self, clients: Ints, norms: Floats) -> Floats:
        """The largest norms that replies of this round may have, (payloads,), given their `norms`, (r, payloads).

        Rounds that follow are compared with what this one has established.
        """
        together, values = self.joined(clients, norms)
        alone = together.size < min(2, self._total)
        medians = np.zeros(self.typical.size) if alone else _lower_medians(values)
        compared = (medians > 0.0) & (together.size >= LEAST)
        first = self._multiple * medians
        first = np.where(compared, first, np.maximum(first, FIRST * self._initial))
        most = np.where(self.typical > 0.0, self._multiple * self.typical, first)
        accepted = (norms <= most).all(axis=1)
        counted = accepted if accepted.any() else ~accepted
        together, values = self.keep(clients[counted], norms[counted])
        if together.size >= LEAST:
            medians = _lower_medians(values)
            most_typical = np.where(self.typical > 0.0, GROWTH * self.typical, medians)
            self.typical = np.clip(medians, self.typical, most_typical)
        return most


class BoundedMean(LastReplies):
    """Mean of the clients' vectors by examples, in which no entry is further from their median than a typical client's.

    An entry that is further from the median of the clients than the lower median of these distances counts as being at
    that distance. A robust `aggregation` takes the median itself. With `max-update-norm` = 0 the mean has no bound.

    Parameters
    ----------
    size : number of entries
    clients : number of all clients of the run
    always : True if the bound holds in each round; False if only in rounds in which a client is `FAR`
    variances : bool, True for the variances among the first entries, each buffer of which follows that of its means
    """

    def __init__(
        self, size: int, clients: int, config: AggregationConfig, *, always: bool, variances: NDArray[np.bool_]
    ) -> None:
        super().__init__(size)
        self._total, self._config, self._always = clients, config, always
        self._variances = np.pad(variances, (0, size - variances.size))

    def take(self, clients: Ints, vectors: Sequence[Floats], examples: Ints) -> tuple[Floats | None, Ints]:
        """The mean, float64 (B,), with the `vectors` of this round's r >= 1 clients, and the clients that are `FAR`.

        With fewer than `LEAST` vectors, the last ones of other clients count with them; the mean is None if there are
        too few. `examples` are those of all clients of the run, (K,).
        """
        values, robust = np.stack(vectors), self._config.traits.robust
        plain = mean_vector(values, examples[clients])
        if not (robust or self._config.max_update_norm):
            return plain, clients[:0]
        sent = clients
        clients, values = self.keep(clients, values)
        if clients.size < min(LEAST, self._total):
            return None, clients[:0]
        middle = np.median(values, axis=0)
        distances = self._distances(values, middle)
        far = clients[(distances > FAR * _lower_medians(distances)) & np.isin(clients, sent)]
        if not (robust or self._always or far.size):
            return plain, far
        return middle if robust else mean_vector(winsorised_vectors(values), examples[clients]), far

    def _distances(self, values: Floats, middle: Floats) -> Floats:
        """How far each of the `values`, (m, B), is from the `middle`: in that buffer in which it is furthest.

        Each buffer has its own unit, so that a liar cannot hide in one whose numbers are small: the deviation for
        means, and else the size of the middle.
        """
        ends = np.flatnonzero(np.diff(self._variances)) + 1
        units = np.array([np.sqrt(np.mean(buffer**2)) for buffer in np.split(middle, ends)])
        of_variances = np.flatnonzero(self._variances[np.append(0, ends)])
        units[of_variances - 1] = np.sqrt(units[of_variances])
        apart = np.split(values - middle, ends, axis=1)
        sizes = np.stack([np.sqrt(np.mean(buffer**2, axis=1)) for buffer in apart], axis=1)
        furthest: Floats = (sizes / np.where(units > 0.0, units, 1.0)).max(axis=1)
        return furthest


def bounded_sums(sums: Floats, claimed: Floats, examples: Floats) -> Floats:
    """Clients' `fedsel_app.data.arrays.sums` such that none moves the total without bound.

    With fewer than `LEAST` clients there is no bound. A client counts for no more `examples`, for no mean further than
    `FAR` typical deviations from the median client's, and for no larger deviation than that. What is constant at most
    clients has no bound.

    Returns the same rows; those in which nothing is bounded have the same bits.

    Parameters
    ----------
    sums : float64 (m, 1 + 2 C), a row for each client
    claimed, examples : float64 (m,), the examples of each client, and for how many of them it counts
    """
    if len(sums) < LEAST:
        return sums
    # An image has several values of a channel, and each client's images have as many.
    counts = np.minimum(sums[:, 0], examples * _lower_medians(sums[:, 0] / claimed))
    means, squares = np.split(sums[:, 1:] / sums[:, :1], 2, axis=1)
    deviations = np.sqrt(np.maximum(squares - means**2, 0.0))
    middle, typical = np.median(means, axis=0), np.median(deviations, axis=0)
    reach = np.where(typical > 0.0, FAR * typical, np.inf)
    near, small = np.clip(means, middle - reach, middle + reach), np.minimum(deviations, reach)
    rows = np.concatenate([np.ones((len(sums), 1)), near, near**2 + small**2], axis=1)
    same = ((near == means) & (small == deviations)).all(axis=1) & (counts == sums[:, 0])
    return np.where(same[:, None], sums, counts[:, None] * rows)


def winsorised_vectors(vectors: Floats) -> Floats:
    """The vectors (m, B), no entry further from their median than the lower median of these distances."""
    middle = np.median(vectors, axis=0)
    distances = np.abs(vectors - middle)
    limits = _lower_medians(distances)
    return np.where(distances > limits, np.clip(vectors, middle - limits, middle + limits), vectors)


def mean_vector(vectors: Floats, examples: Ints) -> Floats:
    """Mean of the vectors (m, B) by `examples`, float64 (B,)."""
    total = weighted_sum([Update(values.size, None, values) for values in vectors], examples.tolist())
    return total / math.fsum(examples)


def _lower_medians(values: Floats) -> Floats:
    """Lower median of each column."""
    middle: Floats = np.sort(values, axis=0)[(len(values) - 1) // 2]
    return middle
