"""FedCVR-Bolt: one client from each coalition of similar models, drawn by how much it reduces the variance of the
global model.

Licciardi, Raineri, Proskurnikov, Rondoni and Zino, "Sociodynamics-inspired Adaptive Coalition and Client Selection in
Federated Learning", 2025. Algorithm 1; Eq. 4 (affinity), Eqs. 5-6 (variance reduction), Eq. 8 (Boltzmann
probabilities), Eq. 9 (expected models), Eqs. 10-11 (covariance), App. B.2 (warm-up, final layer).

The method reads only C^d alpha and the diagonal of each K x K matrix C^d. Under Eq. 11 each of the two can be updated
by itself: C alpha <- (1 - g) C alpha + g delta (delta . alpha) and diag C <- (1 - g) diag C + g delta^2, where delta is
theta - theta-bar. So a round costs O(K D), and no K x K matrix is kept.

The paper leaves three points open. Here theta~ in the affinity and in rho is theta_k divided by its norm (Alg. 1,
lines 3-5), theta-bar of a client that trained is its new model (line 13 with rho = 1), so that its delta is 0, and t of
g_t = 1/t counts from the end of the warm-up.

Deviations
----------
- At the end of the warm-up, C^d starts as a diagonal matrix with the variance of theta^d over all clients, and
  theta-bar starts as theta. This start affects only the first selection. The paper gives no value for the homophily
  gamma of Eq. 4; here it is 1. A coordinate without variance adds nothing (0/0 = 0).
- W_kk of Eq. 4 is left out: the Laplacian has no diagonal affinities. Separated models give the same coalitions.
- All clients are divided into as many coalitions as the cohort has clients. A coalition without available members gives
  no client. Free places go, one at a time, to the coalition with the most available members left (ties to the lowest
  label). If several clients of a coalition trained, theta-bar of each member follows the most similar one of them.
- A client that fails does not change the theta-bar of its coalition. A round without updates changes nothing.
- With more than 256 clients, only that many, drawn at random, are clustered: the landmarks. Each other client joins
  the coalition of its nearest landmark.
- alpha is computed at the end of the warm-up.
"""

import warnings
from dataclasses import dataclass
from functools import cache
from typing import final

import numpy as np
import scipy
from numpy.typing import NDArray
from threadpoolctl import ThreadpoolController

from fedsel_app.config import RunConfig, Settings, setting
from fedsel_app.seeds import Purpose, stream
from strategies.base import SelectionStrategy
from strategies.method import MethodContext
from strategies.roster import Floats, Ints, Outcome, Roster, RoundInfo, Selection
from strategies.selection_math.sampling import gumbel_top, shares
from strategies.selection_math.similarity import layer_part

HOMOPHILY = 1.0
"""gamma in the affinity exp(-gamma distance^2)."""
LANDMARKS = 256
"""Number of clients up to which clustering is exact; of more clients, that many represent the others."""
TIE_BREAK = 1e-9
"""Size of the noise on the affinities: far above rounding errors, far below affinities that matter."""


@dataclass(frozen=True)
class FedCVRBoltConfig(Settings):
    """Settings of FedCVR-Bolt: warm-up, coalitions, and the temperature of the draw."""

    warmup_rounds: int = setting(30, "number of rounds of uniform selection before the coalitions", low=0)
    inverse_temperature: float = setting(
        1.0, "inverse temperature beta of the Boltzmann probabilities; 0 makes them uniform", low=0.0
    )
    coordinates: int = setting(
        300, "number of entries of the output layer that represent a client's model, drawn once; 0 takes all", low=0
    )


def normalised(models: Floats) -> Floats:
    """theta~ (K, D): rows divided by their norms; x/0 is 0."""
    scale = np.sqrt(np.square(models).sum(axis=1, keepdims=True))
    return np.asarray(np.divide(models, scale, out=np.zeros_like(models), where=scale > 0))


def affinities(left: Floats, right: Floats) -> Floats:
    """exp(-gamma ||theta~_k - theta~_j||^2) of rows (a, D) and (b, D): float64 (a, b), the weights of Eq. 4."""
    squares = np.square(left).sum(axis=1)[:, None] + np.square(right).sum(axis=1)
    return np.asarray(np.exp(-HOMOPHILY * np.maximum(squares - 2.0 * left @ right.T, 0.0)))


@cache
def _libraries() -> ThreadpoolController:
    """The libraries with thread pools, cached: finding them takes longer than clustering a few clients."""
    return ThreadpoolController()


def spectral_labels(models: Floats, coalitions: int, rng: np.random.Generator) -> Ints:
    """Spectral clustering of normalised models (n, D): labels 0 ... `coalitions` - 1, int64 (n,).

    scikit-learn's own clustering finds the eigenvectors by ARPACK. For models that hardly differ ARPACK fails, and the
    labels then differ from call to call. For so few models the dense solver is as fast, and exact. If there are fewer
    kinds of models than coalitions, eigenvectors are not unique: then the noise from `rng`, not rounding, decides.
    """
    # Imported here because it takes seconds. It also loads SciPy's BLAS, which must happen before `_libraries` runs.
    from sklearn.cluster import k_means
    from sklearn.exceptions import ConvergenceWarning

    if coalitions >= len(models):
        return np.arange(len(models))
    if coalitions == 1:
        return np.zeros(len(models), np.int64)
    # One thread: sums then have one order, and for so few points, starting threads takes longer.
    with _libraries().limit(limits=1), warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # fewer distinct models than coalitions
        graph = affinities(models, models)
        laplacian, scale = scipy.sparse.csgraph.laplacian(graph, normed=True, return_diag=True)
        noise = TIE_BREAK * rng.standard_normal(laplacian.shape)
        _, vectors = scipy.linalg.eigh(laplacian + noise + noise.T, subset_by_index=(0, coalitions - 1))
        _, labels, _ = k_means(vectors / scale[:, None], coalitions, n_init=10, random_state=int(rng.integers(2**31)))
    return np.asarray(labels, np.int64)


def find_coalitions(points: Floats, coalitions: int, landmarks: int, rng: np.random.Generator) -> Ints:
    """Labels, int64 (K,), of clients with models theta~ (K, D); above `landmarks` clients, through landmarks.

    The number of landmarks is at least twice the number of coalitions. The cost is O(K (landmarks + coalitions) D).
    """
    drawn = max(landmarks, 2 * coalitions)
    if len(points) <= drawn:
        return spectral_labels(points, coalitions, rng)
    chosen = np.sort(rng.choice(len(points), drawn, replace=False))
    labels = spectral_labels(points[chosen], coalitions, rng)
    nearest: Ints = labels[affinities(points, points[chosen]).argmax(axis=1)]
    nearest[chosen] = labels
    return nearest


def variance_reduction(products: Floats, diagonal: Floats) -> Floats:
    """v_k = sum_d (C^d alpha)_k^2 / C^d_kk (Eqs. 5-6) from C alpha and diag C, (K, D) each; float64 (K,)."""
    scale = np.sqrt(diagonal)
    return np.asarray(np.square(np.divide(products, scale, out=np.zeros_like(scale), where=scale > 0)).sum(axis=1))


def moved_covariance(
    products: Floats, diagonal: Floats, deltas: Floats, alpha: Floats, step: float
) -> tuple[Floats, Floats]:
    """C alpha and diag C after C^d <- (1 - g) C^d + g delta^d delta^d^T (Eq. 11). `deltas` (K, D), `alpha` (K,)."""
    along = (alpha[:, None] * deltas).sum(axis=0)
    return (1.0 - step) * products + step * deltas * along, (1.0 - step) * diagonal + step * np.square(deltas)


def expected_models(expected: Floats, before: Floats, after: Floats, labels: Ints, trained: Ints) -> Floats:
    """theta-bar_k = rho_kj theta_j for every k in the coalition of a trained client j (Eq. 9), (K, D).

    The theta-bar of other coalitions are unchanged. rho is the cosine of the models `before` the round, and
    theta_j is the model `after` it; rho_jj = 1.
    """
    moved = expected.copy()
    points = normalised(before)
    for label in np.unique(labels[trained]).tolist():
        members = np.flatnonzero(labels == label)
        leaders = trained[labels[trained] == label]
        similarity = points[members] @ points[leaders].T
        follows = similarity.argmax(axis=1)
        moved[members] = similarity[np.arange(members.size), follows, None] * after[leaders[follows]]
        moved[leaders] = after[leaders]
    return moved


def boltzmann_cohort(values: Floats, labels: Ints, count: int, beta: float, rng: np.random.Generator) -> Ints:
    """`count` positions, ascending: one of each coalition, drawn with probabilities softmax(beta v) inside it (Eq. 8).

    If there are more coalitions than places, the largest come first. Free places go one at a time to the coalition with
    the most members left. `values` and `labels` are (n,), of available clients.
    """
    free = np.ones(values.size, bool)
    present, sizes = np.unique(labels, return_counts=True)
    seats = present[np.argsort(-sizes, kind="stable")][:count].tolist()
    for seat in range(count):
        label = seats[seat] if seat < len(seats) else int(np.bincount(labels[free]).argmax())
        members = np.flatnonzero(free & (labels == label))
        free[members[gumbel_top(beta * values[members], 1, rng)]] = False
    return np.flatnonzero(~free)


@final
class FedCVRBolt(SelectionStrategy[FedCVRBoltConfig]):
    """Coalitions by spectral clustering, one Boltzmann draw from each."""

    name = "fedcvr-bolt"
    paper = "Licciardi et al. 2025 (FedCVR-Bolt)"
    needs_whole_cohort = "it compares models that the clients trained from the same global model"
    state_fields = ("_models", "_expected", "_products", "_diagonal", "_alpha", "_labels", "_age")

    def __init__(self, context: MethodContext) -> None:
        super().__init__(context)
        layer, clients = context.layers[-1], context.run.clients
        size, wanted = layer.stop - layer.start, self.config.coordinates
        self._coordinates = np.arange(size)
        if 0 < wanted < size:
            rng = stream(context.run.seed, Purpose.SELECT, 0, 1)
            self._coordinates = np.sort(rng.choice(size, wanted, replace=False))
        self._models = np.tile(self._read(context.initial), (clients, 1))
        """theta, float64 (K, D): the coordinates of each client's last model."""
        self._expected = self._models.copy()
        """theta-bar."""
        self._products, self._diagonal = np.zeros_like(self._models), np.zeros_like(self._models)
        """C alpha and diag C."""
        self._alpha = np.zeros(clients)
        self._labels = np.zeros(0, np.int64)
        """Coalition of each client; empty before the end of the warm-up."""
        self._age = -1
        """Rounds since the warm-up; -1 during the warm-up."""

    def _read(self, parameters: NDArray[np.float32]) -> Floats:
        layer = self.context.layers[-1]
        return parameters[layer.start : layer.stop][self._coordinates].astype(np.float64)

    def coalitions(self, count: int, server_round: int) -> Ints:
        """Each client's coalition, int64 (K,): the last ones, or new ones if `count` is not the cohort's size."""
        if self._labels.size and count == self.context.run.cohort:
            return self._labels
        return self._found(count, server_round, 1)

    def _found(self, count: int, server_round: int, use: int) -> Ints:
        rng = stream(self.context.run.seed, Purpose.SELECT, server_round, use)
        return find_coalitions(normalised(self._models), count, LANDMARKS, rng)

    @classmethod
    def uniform_rounds(cls, config: FedCVRBoltConfig, run: RunConfig) -> int:
        """The warm-up."""
        return config.warmup_rounds

    def select(self, roster: Roster, round_info: RoundInfo, count: int, rng: np.random.Generator) -> Selection:
        """Uniform in the warm-up; then one client of each of `count` coalitions."""
        ids = roster.ids
        if round_info.number <= self.config.warmup_rounds:
            return Selection(np.sort(rng.choice(ids, size=count, replace=False)))
        labels = self.coalitions(count, round_info.number)
        values = variance_reduction(self._products, self._diagonal)
        beta = self.config.inverse_temperature
        clients = ids[boltzmann_cohort(values[ids], labels[ids], count, beta, rng)]
        return Selection(
            clients=clients,
            components={"coalition": labels[clients].astype(np.float64), "variance_reduction": values[clients]},
        )

    def update(self, outcome: Outcome) -> None:
        """Store the clients' new models, update the covariances, and search for coalitions again."""
        clients, number = outcome.clients, outcome.round_info.number
        if not clients.size:
            return
        warm = number > self.config.warmup_rounds
        if warm and self._age < 0:
            self._begin()
        layer, start = self.context.layers[-1], self._read(outcome.parameters)
        after = self._models.copy()
        for client, update in zip(clients.tolist(), outcome.updates, strict=True):
            after[client] = start + layer_part(update, layer.start, layer.stop).dense()[self._coordinates]
        if warm:
            labels = self.coalitions(clients.size + outcome.failed.size, number)
            self._age += 1
            self._expected = expected_models(self._expected, self._models, after, labels, clients)
            self._products, self._diagonal = moved_covariance(
                self._products, self._diagonal, after - self._expected, self._alpha, 1.0 / self._age
            )
        self._models = after
        if number == self.config.warmup_rounds:
            self._begin()
        if self._age >= 0:
            self._labels = self._found(self.context.run.cohort, number, 2)

    def _begin(self) -> None:
        """End of the warm-up: C^d becomes the diagonal of the variance over clients."""
        self._age = 0
        self._alpha = shares(self.roster.examples)
        self._expected = self._models.copy()
        self._diagonal = np.tile(self._models.var(axis=0), (len(self._models), 1))
        self._products = self._diagonal * self._alpha[:, None]
