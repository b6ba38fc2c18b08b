"""Settings of a run in a user's own Flower app, what they require of its clients, and options of the app.

The settings concern the server and the method. Each client has its own settings. The options describe the app's model,
its clients and their records.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from operator import attrgetter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedsel_app.config import DECLARED, ConfigError, Value
from fedsel_app.config.participation import SEARCHES
from fedsel_app.config.server import SERVER_OPTIMIZERS
from fedsel_app.config.settings import having, plain_value
from fedsel_app.messages.answers import Ability
from fedsel_app.messages.scalars import Config, Report
from fedsel_app.records.schema import OWN_APP
from fedsel_app.seeds import Purpose, stream
from fedsel_app.wiring.configuration import AppConfig
from simulation.apps.client.array_layout import ArrayLayout
from simulation.apps.server.results import RecordFunction
from simulation.engines.idle_settings import refuse_idle
from strategies import find_strategy

FEDAVG = "fedavg"
"""Another name of the strategy random, which is Flower's FedAvg with the defaults below."""
DEFAULTS: Mapping[str, Value] = {
    "partition": "own",
    # A client's `evaluate` uses its own test data; the amount is unknown.
    "holdout-fraction": 0.5,
    "solver": "sgd",
    "local-steps": 0,
    "local-epochs": 1,
    "lr-decay": 0.0,
    "calibration-form": "training",
    "example-clip": 0.0,
    "server-optimizer": "mean",
    "compressor": "none",
    "curvature-layers": 0,
    "links": "measured",
    # After each round, unless writing it takes longer than the rounds since the last one.
    "checkpoint-every": 1,
    # Before its first answer a client loads its data, and perhaps downloads it.
    "connect-timeout-s": 600,
    "enrol-timeout-s": 600.0,
}
"""Defaults of such a run that differ from those of fedsel's own app."""
FIXED = [value for value in DECLARED["participation"].choices if value not in SEARCHES["participation"]]
"""Values of `participation` without a search."""
UNLIKE: Mapping[str, tuple[Sequence[Value], str]] = {
    "waiting": (["synchronous"], "the server of a Flower app of your own waits for its cohort"),
    "participation": (FIXED, "the others let clients train for models that are then dropped"),
    "secure-sums": (["none"], "masks need fedsel's own clients, which `fedsel start` runs with their keys"),
    "solver": (["sgd"], "the local steps are your clients', to whom 'train_config' of start can send proximal-mu"),
    "curvature-layers": ([0], "only fedsel's own clients know the curvature of their loss"),
    "probe-bits": ([32], "your clients would have to restore a rounded model"),
}
"""Setting -> the values that such a run can have, and why it has no others."""
FLOWERS_STEP: Mapping[str, Value] = {"server-lr": 0.1}
"""Default of an adaptive server optimizer, as in Flower's own strategies."""
LINE = "fedsel_app.client_app({}) in place of ClientApp()"


def app_config(strategy: str, keywords: Mapping[str, Value]) -> AppConfig:
    """Configuration of a run of `strategy` with the settings `keywords`.

    A keyword is a setting's key with underscores instead of dashes. The method's own settings may omit its name.

    Raises ConfigError for an unknown setting, a setting of the clients, a value out of range, or incompatible settings.
    """
    strategy = "random" if strategy == FEDAVG else strategy
    method = find_strategy(strategy)
    of_method = method.Config.keys(f"{method.name}.")
    values: dict[str, Value] = {}
    for keyword, value in keywords.items():
        key = keyword.replace("_", "-")
        settable = key in DECLARED and DECLARED[key].scope.own_app
        if not settable and f"{method.name}.{key}" in of_method:
            key = f"{method.name}.{key}"
        if key in DECLARED and not settable:
            raise ConfigError(
                f"Set '{key}' in your client, and leave it out here: it belongs to the clients, which are yours in a "
                "Flower app of your own."
            )
        values[key] = value
    for key, (allowed, reason) in UNLIKE.items():
        if values.get(key, allowed[0]) not in allowed:
            raise ConfigError(f"Set '{key}' to {' or '.join(map(str, allowed))}: {reason}.")
    step = FLOWERS_STEP if values.get("server-optimizer") in having(SERVER_OPTIMIZERS, attrgetter("adaptive")) else {}
    config = AppConfig.from_values({**DEFAULTS, **step, **values, "strategy": strategy})
    refuse_idle(values, [config.values()])
    if config.strategy.needs(config.method).metrics:
        raise ConfigError(
            f"Let {method.name} need 'fit_metrics' in place of 'metrics', or choose another 'strategy': the clients of "
            "a Flower app of your own report only losses before a selection, and metrics after their training."
        )
    return config


def round_config(*configs: Mapping[str, Any] | Callable[[int], Mapping[str, Any]] | None) -> Callable[[int], Config]:
    """Function of the round that joins the user's `configs`, of which each may be a function of the round.

    The clients of a round get the same config, also from a function that draws.
    """

    @lru_cache(maxsize=1)
    def config(number: int) -> Config:
        joined: Config = {}
        for each in configs:
            joined |= each(number) if callable(each) else each or {}
        return joined

    return config


def recorded(config: AppConfig, layout: ArrayLayout) -> dict[str, Value]:
    """The settings for config.json; data and model are the user's own, and a run goes on with the same arrays only."""
    return config.values() | {"data": OWN_APP, "model": f"{OWN_APP} ({layout})"}


def requirements(config: AppConfig) -> Iterator[tuple[str, Ability | None]]:
    """All requirements of a run that a client without fedsel's line does not meet.

    Each is the end of a sentence about it, and the function that meets it; None: the line meets it.
    """
    needs, name = config.strategy.needs(config.method), config.run.strategy
    for report in sorted(needs.reports - {Report.INITIAL_LOSS}):  # this one comes from a client's `evaluate`
        ability = Ability.GRADIENT_DEVIATION if report == Report.GRADIENT_DEVIATION else None
        yield f"the strategy {name} needs the {report.replace('_', ' ')} of the selected", ability
    if needs.label_counts:
        yield f"the strategy {name} needs each client's label counts", Ability.LABEL_COUNTS
    if not config.compression.lossless:
        coded = f"'compressor' {config.compression.compressor}, 'value-bits' {config.compression.value_bits}"
        yield f"compression ({coded}) needs clients that compress", None


def unmet(config: AppConfig, abilities: Collection[Ability] | None) -> str:
    """Sentence on the first requirement that a client with these functions does not meet; empty if it meets all.

    `abilities` are None for a client without fedsel's line.
    """
    for subject, ability in requirements(config):
        if ability is not None and ability not in (abilities or ()):
            return f"Write {LINE.format(f'{ability}=...')}: {subject}, which only a function of yours tells."
        if abilities is None:
            return f"Write {LINE.format('')}: {subject}, and this client's app lacks fedsel's line."
    return ""


@dataclass(frozen=True, kw_only=True)
class AppOptions:
    """Options of a user's Flower app. Each is a keyword of `strategy`."""

    train_config_fn: Callable[[int], Mapping[str, Any]] | None = None
    """Function of the round that returns config for the training, such as a learning rate."""
    evaluate_config_fn: Callable[[int], Mapping[str, Any]] | None = None
    """Function of the round that returns config for the evaluation."""
    statistics: Sequence[int] | None = None
    """Positions of BatchNorm's running statistics among the arrays; None: found by PyTorch's names."""
    arrayrecord_key: str = "arrays"
    """Name of the record of arrays in a message."""
    configrecord_key: str = "config"
    """Name of the record of the config in a message."""
    weighted_by_key: str = "num-examples"
    """Metric that is the number of examples."""
    loss_key: str | None = None
    """Metric of an evaluation that is its loss; None: the first of the usual names."""
    score_key: str | None = None
    """Metric of an evaluation that is its score; None: the first of the usual names."""
    fraction_evaluate: float = 1.0
    """Share of the connected clients that evaluate the model after a round; 0: none."""
    min_evaluate_nodes: int = 2
    """Least number of clients that evaluate, if `fraction_evaluate` is above 0."""
    train_metrics_aggr_fn: RecordFunction | None = None
    """Aggregation of the clients' metrics of training; None: their means, weighted."""
    evaluate_metrics_aggr_fn: RecordFunction | None = None
    """Aggregation of the clients' metrics of evaluation; None: their means, weighted."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "statistics", plain_value(self.statistics))
        if not 0.0 <= self.fraction_evaluate <= 1.0:
            raise ConfigError(f"Set 'fraction_evaluate' to a number from 0 to 1. Got {self.fraction_evaluate!r}.")

    def evaluating(self, connected: Sequence[int], least: int, seed: int, server_round: int) -> list[int]:
        """The clients that evaluate after a round, ascending: drawn from the `connected`, at `least` so many."""
        count = min(max(int(len(connected) * self.fraction_evaluate), least), len(connected))
        if not self.fraction_evaluate or not count:
            return []
        rng = stream(seed, Purpose.EVALUATION, server_round)
        drawn: NDArray[np.int64] = rng.choice(np.asarray(connected), count, replace=False)
        return sorted(drawn.tolist())
