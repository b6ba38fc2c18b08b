"""Settings of the communication budget: kept fractions of a round and of each client."""

from dataclasses import dataclass

from fedsel_app.config.settings import Settings, setting


@dataclass(frozen=True)
class BudgetConfig(Settings):
    """Communication budget: kept fractions of a round and of each client."""

    kept_fraction: float = setting(0.2, "average kept fraction theta_avg over the run", above=0.0, high=1.0)
    kept_cosine: float = setting(0.4, "amplitude alpha_cos of the cosine schedule (0: constant)", low=0.0, high=1.0)
    kept_floor: float = setting(0.08, "smallest kept fraction of a round", low=0.0, high=1.0)
    kept_min: float = setting(0.01, "smallest kept fraction of a client, theta_min", above=0.0, high=1.0)
    kept_warmup_rounds: int = setting(1, "rounds at kept fraction 1 before the schedule", low=0)
    kept_warmup_full: bool = setting(True, "warm-up clients send everything, whatever their score and link")
    cosine_from: str = setting(
        "round-1", "the cosine runs over all T rounds, or over those after the warm-up", choices=("round-1", "warmup")
    )
    allocation: str = setting(
        "score",
        "a client's kept fraction: in proportion to its score, or the same for all",
        choices=("score", "uniform"),
    )
    link_cap: str = setting(
        "transfer",
        "a client may send what its link carries in the time a mean link takes for a dense update (transfer), or for"
        " an average update and an average client's computing (round); or whatever it wants (none)",
        choices=("transfer", "round", "none"),
    )
