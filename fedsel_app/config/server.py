"""Settings of the server: aggregation, bounds on reported values, the server optimizer and BatchNorm calibration."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from fedsel_app.config.settings import ConfigError, ReadBy, Settings, having, meanings, setting, unless


@dataclass(frozen=True, kw_only=True)
class AggregationTraits:
    """Aggregation: how the server combines the clients' updates.

    Attributes
    ----------
    meaning : the result
    robust : it withstands a few malicious clients, and weighs all clients equally
    needs_single_updates : it compares the updates with one another, so that their sum is not enough
    least_updates : number of malicious clients f -> number of updates that it needs in a round to withstand them; a
        median of fewer than 3 is no median
    """

    meaning: str
    robust: bool = True
    needs_single_updates: bool = True
    least_updates: Callable[[int], int] = lambda malicious: 3


AGGREGATIONS = {
    "mean": AggregationTraits(
        meaning="the weighted mean", robust=False, needs_single_updates=False, least_updates=lambda malicious: 1
    ),
    "median": AggregationTraits(meaning="the median of each entry"),
    "trimmed-mean": AggregationTraits(meaning="the mean of each entry without its largest and smallest values"),
    "krum": AggregationTraits(
        meaning="the update closest to its neighbours", least_updates=lambda malicious: 2 * malicious + 3
    ),
    "multi-krum": AggregationTraits(
        meaning="the mean of the updates closest to their neighbours", least_updates=lambda malicious: 2 * malicious + 3
    ),
}
"""Values of the setting `aggregation`."""


@dataclass(frozen=True, kw_only=True)
class ServerOptimizerTraits:
    """Server optimizer: the step of the global weights w along the aggregated update.

    Attributes
    ----------
    meaning : the step
    strength : key of the setting with the decay of its momentum; empty: it has no momentum, or is adaptive
    adaptive : it divides the step of each entry by the root of a mean square
    """

    meaning: str
    strength: str = ""
    adaptive: bool = False

    @property
    def plain(self) -> bool:
        """True if the step is the update alone."""
        return not self.strength and not self.adaptive


SERVER_OPTIMIZERS = {
    "momentum": ServerOptimizerTraits(meaning="w += lr (momentum M + update)", strength="server-momentum"),
    "mean": ServerOptimizerTraits(meaning="w += lr update"),
    "fedadam": ServerOptimizerTraits(
        meaning="w += lr M / (sqrt(V) + tau), with V a moving average of squares", adaptive=True
    ),
    "fedyogi": ServerOptimizerTraits(meaning="as fedadam, with V moving by the sign of the difference", adaptive=True),
    "fedadagrad": ServerOptimizerTraits(meaning="as fedadam, with V the sum of squares", adaptive=True),
}
"""Values of the setting `server-optimizer`."""

SECOND_MOMENT: ReadBy = {"server-optimizer": having(SERVER_OPTIMIZERS, lambda optimizer: optimizer.adaptive)}
"""Condition with which settings of the server optimizer are read: see `setting`."""


@dataclass(frozen=True)
class AggregationConfig(Settings):
    """Aggregation: the weights of the client updates, and rules that are robust to malicious clients."""

    weighting: str = setting(
        "method",
        "weights of the client updates in the mean",
        choices={
            "method": "the selection method's own weights",
            "score": "in proportion to the clients' scores",
            "examples": "in proportion to the clients' examples",
            "uniform": "equal",
        },
        private=("uniform",),
        read_by={"waiting": unless("asynchronous")},
    )
    aggregation: str = setting(
        "mean",
        "how the server combines the client updates; all but the mean withstand a few malicious clients and weigh"
        " clients equally",
        choices=meanings(AGGREGATIONS),
        first=True,
    )
    trim_share: float = setting(
        0.2,
        "share of the cohort whose values trimmed-mean cuts at each end of an entry",
        low=0.0,
        below=0.5,
        read_by={"aggregation": ("trimmed-mean",)},
    )
    krum_malicious: int = setting(
        1,
        "number of malicious clients that krum and multi-krum withstand, f",
        low=0,
        read_by={"aggregation": ("krum", "multi-krum")},
    )
    update_clip: float = setting(
        1.0,
        "norm to which a robust aggregation first scales each update down, in multiples of the round's median norm;"
        " 0 does not scale",
        low=0.0,
        read_by={"aggregation": unless(*having(AGGREGATIONS, lambda rule: not rule.robust))},
    )
    entry_malicious: int = setting(
        0,
        "number of malicious clients, f, against which a robust aggregation bounds the change of each entry, by what"
        " other clients sent lately; 0 sets no bound. The server keeps 8 (f + 1) bytes for each entry of the model",
        low=0,
    )
    max_update_norm: float = setting(
        100.0,
        "norm above which an update is left out, in multiples of the largest median norm of all earlier rounds. It also"
        " bounds BatchNorm statistics and other averaged buffers, by the clients' median. 0 bounds nothing. It has no"
        " effect with dp-clip-norm",
        low=0.0,
        private=True,
        read_by={"dp-clip-norm": (0.0,)},
    )

    @property
    def traits(self) -> AggregationTraits:
        """Traits of the aggregation."""
        return AGGREGATIONS[self.aggregation]

    @property
    def least_updates(self) -> int:
        """Number of updates that the aggregation needs in a round to be robust: 2 f + 3 for krum and multi-krum, 3 for
        median and trimmed-mean.
        """
        return self.traits.least_updates(self.krum_malicious)


@dataclass(frozen=True)
class ReportedValueConfig(Settings):
    """Reported values: bounds on the numbers that clients report about themselves."""

    example_clip: float = setting(
        10.0,
        "upper bound on a client's number of examples, in multiples of the median client's; 0 sets no bound",
        low=0.0,
    )
    loss_clip: float = setting(
        0.0,
        "upper bound on the size of a loss, or of another number by which a method selects, in multiples of the median"
        " of the clients' last reports. Scores then change no kept fraction, for any allocation. 0 sets no bound",
        low=0.0,
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("example_clip", "loss_clip"):
            if 0.0 < getattr(self, name) < 1.0:
                raise ConfigError(
                    f"The '{name.replace('_', '-')}' parameter must be 0 or at least 1. Got {getattr(self, name)}."
                )


@dataclass(frozen=True)
class ServerOptimizerConfig(Settings, private=True):
    """Server optimizer: the step of the global model along the aggregated update."""

    server_optimizer: str = setting(
        "momentum",
        "step of the global weights w along the aggregated update",
        choices=meanings(SERVER_OPTIMIZERS),
        first=True,
    )
    server_momentum: float = setting(
        0.5,
        "decay beta_s of the server's momentum",
        low=0.0,
        below=1.0,
        read_by={"server-optimizer": having(SERVER_OPTIMIZERS, lambda optimizer: optimizer.strength)},
    )
    server_lr: float = setting(1.0, "server learning rate", above=0.0, first=True)
    server_beta1: float = setting(
        0.9, "decay of M in fedadam, fedyogi and fedadagrad", low=0.0, below=1.0, read_by=SECOND_MOMENT
    )
    server_beta2: float = setting(
        0.99,
        "decay of V in fedadam and fedyogi",
        low=0.0,
        below=1.0,
        read_by={"server-optimizer": ("fedadam", "fedyogi")},
    )
    server_tau: float = setting(
        1e-3,
        "tau of fedadam, fedyogi and fedadagrad; V of each entry starts at tau^2",
        above=0.0,
        read_by=SECOND_MOMENT,
    )

    @property
    def traits(self) -> ServerOptimizerTraits:
        """Traits of the server optimizer."""
        return SERVER_OPTIMIZERS[self.server_optimizer]


PLAIN_MODELS = ("linear", "logistic", "mlp", "cnn", "lenet", "cnn4", "cnn5", "cnn5-wide", "alexnet", "swin-t")
"""Models of which training changes no buffers, so that there is nothing to calibrate."""
CALIBRATED: ReadBy = {"model": unless(*PLAIN_MODELS)}
"""Condition with which settings of BatchNorm calibration are read: see `setting`."""


NORMS, STATISTICS = "norms", "*statistics*"
"""Patterns in `CalibrationConfig.local` of whole normalisation layers, and of their running statistics."""


@dataclass(frozen=True)
class CalibrationConfig(Settings, scope="training", private=True):
    """BatchNorm calibration: how the model gets its BatchNorm statistics, and what is local."""

    calibration_batches: int = setting(
        20,
        "number of mini-batches of each of them; with sequential, of all of them together",
        low=1,
        high=10_000_000,
        read_by={**CALIBRATED, "calibration-form": unless("training", "local")},
    )
    calibration_form: str = setting(
        "average",
        "how the BatchNorm statistics of the global model are computed",
        choices={
            "average": "clients recompute them side by side, and the server averages them by examples",
            "sequential": "three clients, drawn at random, recompute them one after another on the same statistics,"
            " with as many mini-batches as each has examples for (HeteRo-Select's code)",
            "training": "clients recompute nothing; the server averages the statistics of local training by examples,"
            " as when whole models are averaged (ISP's code)",
            "local": "each client keeps its own, and the server has none (SiloBN)",
        },
        private=("average", "sequential", "training"),
        read_by=CALIBRATED,
    )
    local_layers: str = setting(
        "",
        "parts of the model that stay with each client and are never sent: names of its layers or arrays, or patterns"
        " such as head.*, separated by commas; norms stands for all normalisation layers",
        private=("",),
    )

    @property
    def local(self) -> tuple[str, ...]:
        """Patterns of what stays with each client; `STATISTICS` is among them with the calibration form local."""
        named = tuple(part.strip() for part in self.local_layers.split(",") if part.strip())
        return named + ((STATISTICS,) if self.calibration_form == "local" else ())

    @property
    def of_training(self) -> bool:
        """True if the statistics are those of local training, which clients then send with their updates."""
        return self.calibration_form == "training"


ASYNCHRONOUS: Mapping[str, str | float] = {"server-optimizer": "mean", "server-lr": 0.6}
"""Defaults with `waiting` = asynchronous, where they differ: those of FedAsync."""
WAITS: ReadBy = {"waiting": unless("synchronous")}
"""Condition with which settings of a server that does not wait are read: see `setting`."""


@dataclass(frozen=True)
class WaitingConfig(Settings):
    """Waiting: for which replies the server waits before its next step, and the weight of late ones."""

    waiting: str = setting(
        "synchronous",
        "the replies for which the server waits before its next step",
        choices={
            "synchronous": "those of the whole cohort, or the first of them",
            "buffered": "buffer-size of the cohort, which trains at the same time; the others train on (FedBuff)",
            "asynchronous": "one; the server mixes its model into the global one (FedAsync); the defaults of"
            " server-optimizer and server-lr are mean and 0.6 then",
        },
    )
    buffer_size: int = setting(
        2, "number of replies for which a buffered server waits", low=1, read_by={"waiting": ("buffered",)}
    )
    staleness: str = setting(
        "polynomial",
        "how an update's weight falls with the number of steps that the server has made since it began",
        choices={"constant": "not at all", "polynomial": "as 1 / sqrt(1 + steps)"},
        read_by=WAITS,
    )
    max_staleness: int = setting(
        0,
        "number of steps of the server since its begin above which an update is left out; 0 leaves none out",
        low=0,
        read_by=WAITS,
    )
    max_client_share: float = setting(
        2.0,
        "replies of one client that a server takes that does not wait, in multiples of 1 / cohort of the last 10 cohort"
        " replies; a client that has given as many waits. 0 sets no bound",
        low=0.0,
        read_by=WAITS,
    )

    @property
    def wanted(self) -> int:
        """Replies for which a server waits that does not wait for the cohort."""
        return 1 if self.waiting == "asynchronous" else self.buffer_size
