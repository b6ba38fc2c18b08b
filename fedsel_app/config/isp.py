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
    isp_mix_first: bool = setting(
        False, "mix the first number that is found with the one before it too (the printed Algorithm 3)"
    )
    isp_rounding: str = setting(
        "nearest", "rounding of the mixed number: to the nearest, or down as the authors' code does",
        choices=("nearest", "down"),
    )  # fmt: skip
    isp_relative_exponent: float = setting(1.0, "alpha of isp-ri's improvement / m^alpha", low=0.0)
    isp_intermediate: str = setting(
        "discard",
        "updates of the round that is trained for the search: only searched, or aggregated as a round of their own",
        choices=("discard", "aggregate"),
    )
    isp_sample: float = setting(1.0, "share of the available clients that train for the search", above=0.0, high=1.0)
    isp_warmup_rounds: int = setting(0, "rounds before the first search, in which all clients train", low=0)
    isp_warmup_epochs: int = setting(0, "local epochs in these rounds (0: local work as in all others)", low=0)
    isp_first: int = setting(0, "number of clients until one is found (0: cohort)", low=0)
    isp_if_none: str = setting(
        "all", "what was found where no number of clients helps: all clients, or the number there was",
        choices=("all", "keep"),
    )  # fmt: skip
