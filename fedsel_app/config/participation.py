"""Settings of participation: the number of clients that train in a round, and the search for it."""

from dataclasses import dataclass

from fedsel_app.config.settings import ReadBy, Settings, setting, unless

SEARCHES: ReadBy = {"participation": ("isp", "isp-ri")}
"""Conditions with which settings of these groups are read: see `setting`."""


@dataclass(frozen=True)
class ParticipationConfig(Settings, private=True):
    """Participation policy: the number of clients that train in each round."""

    participation: str = setting(
        "fixed",
        "number of clients that train in a round",
        choices={
            "fixed": "cohort in every round",
            "adafl-full": "grows from growth-first to all clients",
            "adafl-econom": "grows by one every growth-every rounds, up to growth-last",
            "isp": "the number that a search finds best, every isp-interval rounds",
            "isp-ri": "the number with the best improvement per client, by the same search",
        },
        first=True,
        private=("fixed", "adafl-full", "adafl-econom"),
    )
    growth_first: int = setting(
        0,
        "first cohort of adafl-full and adafl-econom; 0 takes the papers' 10 and 5",
        low=0,
        read_by={"participation": ("adafl-full", "adafl-econom")},
    )
    growth_last: int = setting(20, "last cohort of adafl-econom", low=1, read_by={"participation": ("adafl-econom",)})
    growth_every: float = setting(
        40.0,
        "number of rounds in which adafl-econom grows by one client",
        above=0.0,
        read_by={"participation": ("adafl-econom",)},
    )
    growth_warmup: int = setting(
        12, "number of rounds before adafl-econom begins to grow", low=0, read_by={"participation": ("adafl-econom",)}
    )

    @property
    def searches(self) -> bool:
        """True if a search finds the number of clients; see `ISPConfig`."""
        return self.participation in ("isp", "isp-ri")


@dataclass(frozen=True)
class ISPConfig(Settings, read_by=SEARCHES):
    """ISP: the search for the number of clients that improves the global model most."""

    isp_interval: int = setting(20, "number of rounds between two searches, Delta", low=1)
    isp_draws: int = setting(
        10, "number of subsets drawn for each number of clients that is tried, N", low=1, high=10_000_000
    )
    isp_step: int = setting(
        1, "step w between the numbers of clients that are tried: 1, 1 + w, 1 + 2w, and so on", low=1
    )
    isp_momentum: float = setting(
        0.5,
        "weight beta of the number that the search found; the number before has the weight 1 - beta",
        above=0.0,
        high=1.0,
    )
    isp_form: str = setting(
        "text",
        "form of the search",
        choices={
            "text": "the updates that are trained for it serve only the search; the number is rounded to the nearest;"
            " all clients train if no number improves the model",
            "code": "they are also aggregated as a round; the number is rounded down; it stays if none improves the"
            " model (the authors' code)",
        },
    )
    isp_sample: float = setting(
        1.0, "share of the available clients that train for the search; the method selects them", above=0.0, high=1.0
    )
    isp_warmup_rounds: int = setting(0, "number of rounds before the first search, in which all clients train", low=0)
    isp_warmup_epochs: int = setting(
        0,
        "local epochs in these rounds; 0 trains as in all other rounds",
        low=0,
        high=10_000_000,
        read_by={"isp-warmup-rounds": unless(0)},
    )


@dataclass(frozen=True)
class SearchLossConfig(Settings, read_by=SEARCHES):
    """ISP search loss: the examples on which the search measures a model, and its smoothing."""

    isp_loss: str = setting(
        "clients",
        "examples on which the search measures the loss of a model",
        choices={"clients": "the test parts of the clients", "surrogate": "the surrogate set of the server"},
    )
    isp_jury: str = setting(
        "same",
        "clients that measure a candidate model with isp-loss=clients",
        choices={
            "same": "all available clients, as for the global model",
            "subset": "the clients whose updates are in the candidate, as in the printed Algorithm 4",
        },
        read_by={"isp-loss": ("clients",)},
    )
    surrogate_path: str = setting(
        "", "surrogate set: an .npz file with x and y, shaped as the training part of the data set"
    )
    surrogate_augment: str = setting(
        "none",
        "random changes of the surrogate images, made once",
        choices={"none": "none", "corrupted": "the strong ones of ISP's Table 22, and the moments of ImageNet"},
        read_by={"isp-loss": ("surrogate",)},
    )
    isp_smoothing: float = setting(
        2 / 6, "weight of the newest loss in the moving average; 1 does not smooth", above=0.0, high=1.0
    )
    isp_smoothing_rule: str = setting(
        "text",
        "what the search compares",
        choices={
            "text": "the moving average that includes the candidate's loss, and the loss of the global model",
            "code": "the candidate's loss, and the moving average of the global models' losses",
        },
        read_by={"isp-smoothing": unless(1.0)},
    )
