"""Settings of the participation policy: how many clients train in each round."""

from dataclasses import dataclass

from fedsel_app.config.settings import ConfigError, Settings, setting


@dataclass(frozen=True)
class ParticipationConfig(Settings):
    """How many of the available clients train in each round."""

    participation: str = setting(
        "fixed",
        "clients a round: cohort; growing with the rounds (adafl-*); falling (decay); or searched for (isp, isp-ri)",
        choices=("fixed", "adafl-full", "adafl-econom", "adafl-staged", "decay", "isp", "isp-ri"),
    )
    growth_first: int = setting(0, "first cohort of adafl-full and adafl-econom (0: the papers' 10 and 5)", low=0)
    growth_last: int = setting(20, "last cohort of adafl-econom", low=1)
    growth_every: float = setting(40.0, "rounds in which adafl-econom grows by one client", above=0.0)
    growth_warmup: int = setting(12, "rounds before adafl-econom grows", low=0)
    stages: int = setting(5, "stages of equal length in adafl-staged", low=1)
    stage_first: float = setting(0.1, "share of all clients in the first stage", above=0.0, high=1.0)
    stage_last: float = setting(0.5, "share of all clients in the last stage", above=0.0, high=1.0)
    decay_rate: float = setting(0.01, "share of the cohort lost each round in decay", low=0.0, below=1.0)
    decay_last: int = setting(1, "fewest clients in decay", low=1)
    isp_interval: int = setting(20, "rounds between searches, Delta", low=1)
    isp_draws: int = setting(10, "subsets drawn for each number of clients tried, N", low=1)
    isp_step: int = setting(1, "resolution w: 1, 1 + w, 1 + 2w, ... clients are tried", low=1)
    isp_momentum: float = setting(0.5, "share beta of what was found in the next number", above=0.0, high=1.0)
    isp_smoothing: float = setting(
        2 / 6, "weight of the newest loss in the moving average (1: no smoothing)", above=0.0, high=1.0
    )
    isp_window: int = setting(5, "rounds whose global losses the moving average takes, this one included", low=1)
    isp_relative_exponent: float = setting(1.0, "alpha of isp-ri's improvement / m^alpha", low=0.0)
    isp_intermediate: str = setting(
        "discard",
        "updates of the round that is trained for the search: only searched, or aggregated as a round of their own",
        choices=("discard", "aggregate"),
    )
    isp_sample: float = setting(1.0, "share of the available clients that train for the search", above=0.0, high=1.0)
    isp_first: int = setting(0, "number of clients before the first search, in its momentum (0: cohort)", low=0)
    isp_if_none: str = setting(
        "all", "what was found where no number of clients helps: all clients, or the number there was",
        choices=("all", "keep"),
    )  # fmt: skip
    isp_loss: str = setting(
        "clients",
        "loss of a candidate model: on its clients' own test parts, or on the server's surrogate set",
        choices=("clients", "surrogate"),
    )
    surrogate_path: str = setting("", "the surrogate set: an .npz file with x and y, as the data set's training part")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.searches and (self.isp_loss == "surrogate") != bool(self.surrogate_path):
            raise ConfigError(
                "The 'isp-loss' parameter surrogate and the file's path in 'surrogate-path' go together; set both, or "
                "set isp-loss to clients and no path."
            )

    @property
    def searches(self) -> bool:
        """Whether the number of clients is searched for."""
        return self.participation in ("isp", "isp-ri")
