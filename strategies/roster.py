"""Roster of the clients, and the values that pass between a round and a method: needs, selection, outcome."""

from collections.abc import Iterable, Mapping
from copy import copy
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from fedsel_app.config import ConfigError

if TYPE_CHECKING:
    from fedsel_app.config import TrainingConfig
    from fedsel_app.messages.scalars import Report
    from fedsel_app.wire.codec import Update

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
NOBODY: Ints = np.zeros(0, np.int64)
MOST_WORK = 10
"""Most local work that a method may give a client, in multiples of the settings': one client cannot hold a round."""


@dataclass(frozen=True)
class RoundInfo:
    """Round `number` t = 1..T of `total` T.

    If the method has rounds of its own, `total` counts those; then this is iteration `iteration` of `method_round`.
    """

    number: int
    total: int
    method_round: int | None = None
    iteration: int | None = None

    @property
    def scheduled(self) -> int:
        """The round t = 1..T that the run's schedules use."""
        return self.number if self.method_round is None else self.method_round


@dataclass(frozen=True)
class Needs:
    """Needs of a method: knowledge beside the roster's counts. The round gathers it and charges the method for it."""

    loss_probe: bool = False
    """The candidates' loss of the current model, measured just before selection."""
    metrics: tuple[str, ...] = ()
    """The candidates' metrics of the current model, measured in the same probe: names as in the setting `score`, such
    as accuracy, f1-macro, f1-1 for class 1, or a score of your own task. `Roster.metric` returns them."""
    fit_metrics: tuple[str, ...] = ()
    """Metrics of the selected clients' models after local training, sent with the update: names as in `metrics`.
    `Roster.fit_metric` returns what each client last sent."""
    probe_batches: int | None = None
    """Mini-batches of this probe. None: the setting `probe-batches`; 0: all examples."""
    probe_test_part: bool = False
    """The probe and the `fit_metrics` use the clients' own test parts instead of their training data."""
    reports: "frozenset[Report]" = frozenset()
    """Numbers that the selected clients measure in addition to training, one each."""
    label_counts: bool = False
    """Every client's examples per class, sent once at enrolment."""
    class_biases: bool = False
    """An output layer that ends with one bias per class."""
    output_biases: bool = False
    """An output layer that ends with one bias per output, whatever the outputs are."""
    updates: bool = False
    """Each client's last update, in the method's `last_updates`. The server keeps it and saves it with the run."""
    round_updates: bool = True
    """A method that learns reads the single updates of a round, `Outcome.updates`. False lets simulated workers add
    them up, so that there are none."""
    norms: bool = False
    """The norm of each update of a round, `Outcome.norms`, without the updates themselves."""
    links: bool = False
    """Uplink in bits/s and seconds per step."""

    def __post_init__(self) -> None:
        for field_, names in (("metrics", self.metrics), ("fit_metrics", self.fit_metrics)):
            if isinstance(names, str):
                raise ConfigError(f"Write the metrics that a method needs as a tuple: {field_}=({names!r},).")

    @property
    def probed_numbers(self) -> int:
        """Numbers that each candidate measures before the selection and sends: its loss and metrics; 0: no probe."""
        return 1 + len(self.metrics) if self.loss_probe or self.metrics else 0


DECLARED = {
    "losses": "loss_probe",
    "label_counts": "label_counts",
    "uplink_bits_per_s": "links",
    "downlink_bits_per_s": "links",
    "step_s": "links",
}
"""Array of the roster -> the need that a method must declare to read it."""
METRIC, FIT_METRIC = "metric ", "fit metric "
"""Start of the name of the array of a metric of the candidates, and of one reported after training."""


def undeclared(field: str, need: str) -> ConfigError:
    """Error of a method that reads `field` and does not declare the `need` that brings it."""
    return ConfigError(
        f"The method reads '{field}', which it does not declare: write `return Needs({need}=True)` in the classmethod "
        "`needs(cls, config)` of its class."
    )


class Roster:
    """Roster of the K clients: arrays by partition id. Methods read it; only the round writes it.

    Attributes
    ----------
    available : bool (K,), connected in this round, and free to be selected
    under_way : bool (K,), in training since an earlier round; the cohort of a server that does not wait has these too
    examples : int64 (K,), training examples n_k; 0 until enrolled
    local_steps : int64 (K,), local steps a round; 0 until enrolled
    selections : int64 (K,), rounds in which the client was selected, h_k
    last_selected : int64 (K,), the last such round l_k; 0 = never
    last_returned : int64 (K,), the last round in which it was selected and whose update was aggregated; 0 = never
    taken : float64 (K,), share of its last aggregated update that was taken, see `strategies.aggregation.robust`
    failures : int64 (K,), rounds in which it was selected and sent no usable update
    losses : float64 (K,), loss of this round's global model; NaN = not measured
    fit_losses : float64 (K,), mean training loss that it reported when it last trained; NaN = never
    uplink_bits_per_s, step_s : float64 (K,), this round's link and seconds a local step; NaN = unknown
    downlink_bits_per_s : float64 (K,), this round's downlink; inf = downloads take no time, NaN = unknown
    label_counts : int64 (K, classes), or (K, 0) where the method does not need them

    `metric` and `fit_metric` return the columns of the metrics that the method needs.
    """

    def __init__(self, clients: int, metrics: Iterable[str] = (), fit_metrics: Iterable[str] = ()) -> None:
        self.available = np.zeros(clients, bool)
        self.under_way = np.zeros(clients, bool)
        self.examples = np.zeros(clients, np.int64)
        self.local_steps = np.zeros(clients, np.int64)
        self.selections = np.zeros(clients, np.int64)
        self.last_selected = np.zeros(clients, np.int64)
        self.last_returned = np.zeros(clients, np.int64)
        self.taken = np.ones(clients)
        self.failures = np.zeros(clients, np.int64)
        self.losses = np.full(clients, np.nan)
        self.fit_losses = np.full(clients, np.nan)
        self.uplink_bits_per_s = np.full(clients, np.nan)
        self.downlink_bits_per_s = np.full(clients, np.nan)
        self.step_s = np.full(clients, np.nan)
        self.label_counts = np.zeros((clients, 0), np.int64)
        columns = [*map(METRIC.__add__, metrics), *map(FIT_METRIC.__add__, fit_metrics)]
        vars(self).update({column: np.full(clients, np.nan) for column in columns})

    def metric(self, name: str) -> Floats:
        """Metric of this round's global model on each client, float64 (K,); NaN = not measured, or undefined there.

        It is what the client says: only its type and its bounds are checked. Raises ConfigError for a metric that the
        method does not declare.
        """
        return self._metric(METRIC + name, f"metrics=({name!r},)")

    def fit_metric(self, name: str) -> Floats:
        """Metric of each client's model after its training in round `last_returned`, float64 (K,); NaN = never
        reported, or undefined there. A claim of the client, as `metric`, and with the same error.
        """
        return self._metric(FIT_METRIC + name, f"fit_metrics=({name!r},)")

    def _metric(self, column: str, need: str) -> Floats:
        if column not in vars(self):
            raise ConfigError(
                f"The method reads the {column}, which it does not declare: write `return Needs({need})` in the "
                "classmethod `needs(cls, config)` of its class."
            )
        values: Floats = vars(self)[column]
        return values

    def known_to(self, needs: Needs) -> "Roster":
        """The same arrays, without those that a method with these needs may not read.

        Reading one of these raises ConfigError.
        """
        view = copy(self)
        for name, need in DECLARED.items():
            if not getattr(needs, need):
                vars(view).pop(name, None)
        return view

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> NoReturn:
            if name in DECLARED:
                raise undeclared(f"roster.{name}", DECLARED[name])
            raise AttributeError(f"'Roster' object has no attribute {name!r}")

    def state(self) -> dict[str, NDArray[Any]]:
        """Copies of all arrays by their names."""
        return {name: array.copy() for name, array in vars(self).items()}

    def load_state(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Load a state that `state` returned."""
        for name, array in vars(self).items():
            same = state[name].ndim == array.ndim and len(state[name]) == len(array)
            if state[name].dtype != array.dtype or not same:
                raise ValueError(f"{name} is {state[name].dtype} {state[name].shape}")
            setattr(self, name, state[name].copy())

    def record_round(
        self,
        server_round: int,
        selected: Ints,
        returned: Ints,
        fit_losses: Floats,
        taken: Floats,
        *,
        failed: Ints,
        staleness: Ints | int = 0,
        fit_metrics: Mapping[str, Floats] | None = None,
    ) -> None:
        """Count a round in which `selected` trained, the updates of `returned` were aggregated and `failed` failed.

        `fit_losses` are the mean training losses of `returned`, `taken` the shares of their updates that were
        aggregated, `staleness` the rounds since they were selected, and `fit_metrics` their metrics by name.
        """
        self.selections[selected] += 1
        self.last_selected[selected] = server_round
        self.last_returned[returned] = server_round - staleness
        self.fit_losses[returned] = fit_losses
        self.taken[returned] = taken
        self.failures[failed] += 1
        for name, values in (fit_metrics or {}).items():
            self.fit_metric(name)[returned] = values

    def forget_probe(self) -> None:
        """Set what a probe measures to NaN."""
        for name, column in vars(self).items():
            if name == "losses" or name.startswith(METRIC):
                column[:] = np.nan

    @property
    def ids(self) -> Ints:
        """Ids of the available clients, ascending."""
        return np.flatnonzero(self.available)

    @property
    def compared(self) -> Ints:
        """Ids of the available clients and of those under way, ascending."""
        return np.flatnonzero(self.available | self.under_way)


@dataclass(frozen=True)
class Selection:
    """Selection by a method: the cohort, and arrays of numbers aligned with `clients`.

    Attributes
    ----------
    clients : int64 (m,), distinct ids of available clients, ascending
    scores : float64 (m,), >= 0, for score-proportional kept fractions and weights; default: ones
    components : parts of the score, each float64 (m,), for the records
    weights : float64 (m,), the method's own aggregation weights; None: by examples
    normalise : True if weights are divided by their sum over the aggregated clients
    kept_fractions : float64 (m,), the method's own kept fractions; None: by the budget settings
    learning_rates : float64 (m,), the method's own local learning rates; None: the training settings' schedule
    local_steps, local_epochs : int64 (m,), each client's own local work; only one of them may be given. At most
        `MOST_WORK` times the steps of the settings; None: the settings' or the participation policy's work
    """

    clients: Ints
    scores: Floats = field(default_factory=lambda: np.zeros(0))
    components: Mapping[str, Floats] = field(default_factory=dict)
    weights: Floats | None = None
    normalise: bool = True
    kept_fractions: Floats | None = None
    learning_rates: Floats | None = None
    local_steps: Ints | None = None
    local_epochs: Ints | None = None

    def __post_init__(self) -> None:
        if not np.size(self.scores):
            object.__setattr__(self, "scores", np.ones(np.size(self.clients)))

    @property
    def own_work(self) -> bool:
        """True if the method gives each client its own local work."""
        return self.local_steps is not None or self.local_epochs is not None

    def steps(self, roster: Roster, training: "TrainingConfig", least: int = 1) -> Ints:
        """Local steps of each client, int64 (m,), by the method or by the settings; `least` is that of `passes`."""
        if self.local_epochs is not None:
            examples = np.ceil(roster.examples[self.clients]).astype(np.int64).tolist()
            return self.local_epochs * np.array([training.passes(count, least) for count in examples], np.int64)
        return roster.local_steps[self.clients] if self.local_steps is None else self.local_steps


@dataclass(frozen=True)
class Outcome:
    """Outcome of a round: the aggregated updates, in ascending order of client id.

    Attributes
    ----------
    round_info : the round
    selection : what `select` returned for it
    parameters : float32 (N,), the global model from which the clients started
    clients : int64 (r,), the clients whose update was aggregated
    updates : their decoded updates; none if the method's `needs` let workers add them up
    aggregate : float64 (N,), the weighted mean update, before the server optimiser; None if there was no update
    local_steps : int64 (r,), the local steps that they took, as the server counts them
    losses : float64 (r,), their mean training losses
    reports : name -> float64 (r,), the further numbers that the method's `needs` ask for
    failed : int64, ids of the selected clients that sent no usable update
    norms : float64 (r,), the norms of the updates; empty if the method's `needs` do not ask for them
    """

    round_info: RoundInfo
    selection: Selection
    parameters: NDArray[np.float32]
    clients: Ints
    updates: "tuple[Update, ...]"
    aggregate: Floats | None
    local_steps: Ints
    losses: Floats
    reports: Mapping[str, Floats]
    failed: Ints
    norms: Floats = field(default_factory=lambda: np.zeros(0))
