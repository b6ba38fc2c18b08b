"""Settings of ISP, the search for the number of clients."""

from dataclasses import dataclass

from fedsel_app.config.settings import Settings, setting


@dataclass(frozen=True)
class ISPConfig(Settings):
    """ISP: the search for the number of clients that improves the global model most."""

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
