"""FedCG: the selection of clients and the kept fraction of each client, decided together.

Jiang, Xu, Xu, Wang and Qian, "Adaptive Control of Client Selection and Gradient Compression for Efficient Federated
Learning", arXiv:2212.09483, 2022; Xu, Jiang, Xu, Wang, Qian and Qiao, "Federated Learning With Client Selection and
Gradient Compression in Heterogeneous Edge Systems", IEEE Transactions on Mobile Computing, 2024.

Deviations
----------
Reconstructed. Three things are known: the cohort is a representative subset, found by submodular maximisation; a linear
programme derives the kept fractions from the clients' links; and the method alternates the two steps under a
convergence bound. The rest is our choice. The method minimises

    T + V [ sum_j min_{i in S} d_ij + c sum_{i in S} gamma_i (1 - theta_i) ],    a_i + theta_i M / b_i <= T,

over the cohort S, the kept fractions theta_i in [`kept_min`, 1] and the deadline T. The symbols are:

- d_ij = ||g_i - g_j|| divided by the mean distance, where g_i is the last update of client i;
- gamma_i, the number of clients that i represents, itself included; a client that is equally near to several counts for
  each of them in equal parts;
- a_i, the seconds of training; b_i, the uplink; M, the bits of a full update;
- V = 2 (mean a_i + M / b_i) / n and c = 0.2.

The two weights are our choice. If the number of rounds is proportional to the error, and the error is about one half,
then a decrease of the error by 1 is worth about the time of two rounds. Top-k loses far less of an update than the
share 1 - theta.

- Given S and T, theta_i = clip((T - a_i) b_i / M, theta_min, 1) solves the programme. So the optimal T is the end of a
  client's full upload or the earliest feasible time. The search over these points is exact.
- Given T, S is the greedy minimiser of sum_j min_i [d_ij + c (1 - theta_i(T))] among the clients that can send
  theta_min in time. If there are fewer of these than the cohort needs, the fastest are added. The alternation ends when
  a cohort recurs. It never removes a slow client from the cohort, so it starts from several deadlines; the first one
  gives theta_i = 1.
- Until every client was selected once, cohorts are drawn uniformly from the clients that were not yet selected (then
  from the others), and only their kept fractions are optimised. A client that has sent no update counts with the mean
  distance.
- If clients have no kept fractions of their own, every theta_i is 1 and only the cohort is chosen.
- The weights are gamma_i / n. The quantisation levels of Q-FedCG are not implemented.
"""

from dataclasses import dataclass
from typing import final

import numpy as np
from numpy.typing import NDArray

from fedsel_app.config import RunConfig, Settings
from strategies.base import SelectionStrategy
from strategies.method import MethodContext
from strategies.roster import Floats, Ints, Needs, Outcome, Roster, RoundInfo, Selection
from strategies.round.budget import client_seconds, fitting_fractions
from strategies.selection_math.sampling import unseen_first
from strategies.selection_math.similarity import among, euclidean, refreshed_gram

STARTS = 16
"""Number of deadlines from which the search starts, beside the infinite one."""
ALTERNATIONS = 10
"""Largest number of alternations of cohort and kept fractions from one start."""
ERROR_WEIGHT = 2.0
"""Mean rounds that a decrease of the mean distance between clients and their representatives by one is worth."""
COMPRESSION_WEIGHT = 0.2
"""Cost c of a kept fraction of 0, in mean distances."""


@dataclass(frozen=True)
class Decision:
    """A cohort as ascending positions, and the quantities that follow from it; arrays (m,).

    Attributes
    ----------
    cohort, gamma, fractions : positions, gamma_i, kept fractions theta_i
    deadline_s : T, in seconds
    value : the objective, in seconds
    """

    cohort: Ints
    gamma: Floats
    fractions: Floats
    deadline_s: float
    value: float


def relative_distances(distances: Floats, known: NDArray[np.bool_]) -> Floats:
    """Distances (n, n) divided by the mean between `known` clients; 1 if either is unknown, 0 on the diagonal."""
    pairs = np.outer(known, known)
    np.fill_diagonal(pairs, False)
    mean = distances[pairs].mean() if pairs.any() else 0.0
    relative = np.where(pairs, distances / mean, 1.0) if mean > 0 else np.where(pairs, 0.0, 1.0)
    np.fill_diagonal(relative, 0.0)
    return relative


def cover(costs: Floats, count: int, allowed: NDArray[np.bool_]) -> Ints:
    """`count` rows, ascending, that make sum_j min_i costs[i, j] small, chosen greedily; ties go to the lowest row.

    `costs` is float64 (n, n): the cost if i represents j. Only `allowed` rows are chosen; there must be at least
    `count`.
    """
    nearest = np.full(costs.shape[1], np.inf)
    free = allowed.copy()
    for _ in range(count):
        totals = np.where(free, np.minimum(costs, nearest).sum(axis=1), np.inf)
        pick = int(np.argmin(totals))
        free[pick] = False
        nearest = np.minimum(nearest, costs[pick])
    return np.flatnonzero(allowed & ~free)


def represented(distances: Floats, cohort: Ints) -> Floats:
    """gamma_i, float64 (m,): the number of clients that each of `cohort` represents; they sum to n."""
    rows = distances[cohort]
    nearest = rows == rows.min(axis=0)
    return np.asarray((nearest / nearest.sum(axis=0)).sum(axis=1))


def best_deadline(compute_s: Floats, upload_s: Floats, gamma: Floats, price: float, least: float) -> float:
    """The T that minimises T + price sum gamma_i (1 - theta_i(T)), if each client can send `least` by T; arrays (m,).

    The objective is convex and piecewise linear in T, so a corner is optimal. Among equal corners the earliest is
    taken.
    """
    earliest = float((compute_s + least * upload_s).max())
    ends = np.unique(compute_s + upload_s)
    corners = np.concatenate([[earliest], ends[ends > earliest]])
    fractions = fitting_fractions(corners[:, None], compute_s, upload_s, least)
    return float(corners[np.argmin(corners + price * (((1.0 - fractions) * gamma).sum(axis=1)))])


class Problem:
    """One round's choice among n clients.

    `distances` are relative, float64 (n, n); `compute_s` and `upload_s` (n,) are a_i and M / b_i; `least` is theta_min.
    """

    def __init__(
        self, distances: Floats, compute_s: Floats, upload_s: Floats, least: float, error_weight: float = ERROR_WEIGHT
    ) -> None:
        self._distances, self._compute_s, self._upload_s, self._least = distances, compute_s, upload_s, least
        self._price = error_weight * float((compute_s + upload_s).mean()) / upload_s.size

    def ratios(self, cohort: Ints) -> Decision:
        """The linear programme: the best deadline and kept fractions for a cohort."""
        compute_s, upload_s = self._compute_s[cohort], self._upload_s[cohort]
        gamma = represented(self._distances, cohort)
        penalty = COMPRESSION_WEIGHT
        deadline_s = best_deadline(compute_s, upload_s, gamma, self._price * penalty, self._least)
        fractions = fitting_fractions(deadline_s, compute_s, upload_s, self._least)
        error = float(self._distances[cohort].min(axis=0).sum() + penalty * (gamma * (1.0 - fractions)).sum())
        return Decision(cohort, gamma, fractions, deadline_s, deadline_s + self._price * error)

    def cohort(self, deadline_s: float, count: int) -> Ints:
        """The greedy cohort of the clients that can send theta_min by the deadline."""
        fractions = fitting_fractions(deadline_s, self._compute_s, self._upload_s, self._least)
        quickest_s = self._compute_s + self._least * self._upload_s
        allowed = quickest_s <= deadline_s
        if allowed.sum() < count:
            allowed[np.argsort(quickest_s, kind="stable")[:count]] = True
        penalties = COMPRESSION_WEIGHT * (1.0 - fractions)
        return cover(self._distances + penalties[:, None], count, allowed)

    def solve(self, count: int) -> Decision:
        """Alternate `cohort` and `ratios`, and return the best decision.

        It starts from infinity and from quantiles of the clients' finish times.
        """
        quickest_s = np.sort(self._compute_s + self._least * self._upload_s)
        ends = np.concatenate([quickest_s[count - 1 :], self._compute_s + self._upload_s])
        starts = np.quantile(ends, np.linspace(0.0, 1.0, STARTS), method="inverted_cdf").tolist()
        met: dict[tuple[int, ...], Decision] = {}
        for deadline_s in [np.inf, *starts]:
            for _ in range(ALTERNATIONS):
                cohort = self.cohort(deadline_s, count)
                key = tuple(cohort.tolist())
                if key in met:
                    break
                met[key] = self.ratios(cohort)
                deadline_s = met[key].deadline_s
        return min(met.values(), key=lambda decision: decision.value)


@final
class FedCG(SelectionStrategy):
    """A representative cohort that uploads in time; a client's weight is the number of clients that it represents."""

    name = "fedcg"
    paper = "Jiang et al. 2022, arXiv:2212.09483 (reconstructed)"
    needs_whole_cohort = "it minimises the duration of a whole cohort's round"
    state_fields = ("_gram",)

    def __init__(self, context: MethodContext) -> None:
        super().__init__(context)
        self._gram = np.zeros((context.run.clients, context.run.clients))
        """Inner products of the clients' last updates."""

    @classmethod
    def needs(cls, config: Settings) -> Needs:
        """Every client's link and seconds a step, and its last update."""
        return Needs(links=True, updates=True)

    @classmethod
    def uniform_rounds(cls, config: Settings, run: RunConfig) -> int:
        """The first pass over all clients."""
        return -(-run.clients // run.cohort)

    def select(self, roster: Roster, round_info: RoundInfo, count: int, rng: np.random.Generator) -> Selection:
        """`count` clients and their kept fractions; drawn uniformly while some clients were never selected."""
        ids = roster.ids
        known = np.isin(ids, list(self.last_updates))
        distances = relative_distances(euclidean(among(self._gram, ids)), known)
        budget, compression = self.context.budget, self.context.compression
        usual, least = (budget.kept_fraction, compression.kept_min) if compression.own_fractions else (1.0, 1.0)
        compute_s, upload_s = client_seconds(roster, ids, self.context.initial.size, usual, compression)
        problem = Problem(distances, compute_s, upload_s, least)
        seen = known | (roster.selections[ids] > 0)
        if known.any() and seen.all():
            decision = problem.solve(count)
        else:
            decision = problem.ratios(unseen_first(seen, count, rng))
        return Selection(
            clients=ids[decision.cohort],
            components={"represents": decision.gamma, "deadline_s": np.full(count, decision.deadline_s)},
            weights=decision.gamma,
            kept_fractions=decision.fractions,
        )

    def update(self, outcome: Outcome) -> None:
        """Compute the inner products of the new updates with all others."""
        self._gram = refreshed_gram(self._gram, self.last_updates, outcome.clients.tolist())
