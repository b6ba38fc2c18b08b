"""Settings of aggregation: weights and robust rules."""

from dataclasses import dataclass

from fedsel_app.config.settings import Settings, setting


@dataclass(frozen=True)
class AggregationConfig(Settings):
    """Aggregation of a round's updates: their weights, and rules robust to hostile clients."""

    weighting: str = setting(
        "method",
        "weights of the updates: the method's own choice, by score, by examples, or equal",
        choices=("method", "score", "examples", "uniform"),
    )
    aggregation: str = setting(
        "mean",
        "of the updates: the weighted mean, or what a few hostile clients cannot steer, each client counting alike",
        choices=("mean", "median", "trimmed-mean", "krum", "multi-krum"),
    )
    trim_share: float = setting(0.1, "share of its values that trimmed-mean cuts at each end", low=0.0, below=0.5)
    krum_malicious: int = setting(1, "hostile clients a round that krum and multi-krum withstand, f", low=0)
    max_update_norm: float = setting(
        1e6, "largest norm of an update, in multiples of the round's median (0: any; without effect under dp)", low=0.0
    )
