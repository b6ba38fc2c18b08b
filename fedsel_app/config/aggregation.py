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
    trim_share: float = setting(
        0.2, "values of an entry that trimmed-mean cuts at each end, as a share of the cohort", low=0.0, below=0.5
    )
    krum_malicious: int = setting(1, "hostile clients a round that krum and multi-krum withstand, f", low=0)
    quorum: float = setting(
        0.5,
        "share of the cohort that must have sent an entry for median and trimmed-mean to vote on it; below it, their "
        "mean",
        above=0.0,
        high=1.0,
    )
    update_clip: float = setting(
        1.0,
        "norm to which a robust aggregation first scales updates down, in multiples of the round's median (0: any)",
        low=0.0,
    )
    entry_malicious: int = setting(
        0,
        "hostile clients that a robust aggregation lets move no entry further than another client has lately, f (0: "
        "any); the server keeps 8 (f + 1) bytes an entry of the model",
        low=0,
    )
    max_update_norm: float = setting(
        100.0,
        "norm above which an update is left out, in multiples of the round's median (0: any; without effect under dp)",
        low=0.0,
    )

    @property
    def least_updates(self) -> int:
        """Updates of a round that the rule needs to withstand what it should: 2 f + 3 for Krum's two, else one."""
        return 2 * self.krum_malicious + 3 if self.aggregation in ("krum", "multi-krum") else 1
