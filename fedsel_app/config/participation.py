"""Settings of the participation policy: the number of clients that train in each round."""

from dataclasses import dataclass

from fedsel_app.config.settings import Settings, setting


@dataclass(frozen=True)
class ParticipationConfig(Settings):
    """Participation policy: the number of clients that train in each round."""

    participation: str = setting(
        "fixed",
        "clients a round: cohort; growing with the rounds (adafl-*); falling (decay); or searched for (isp, isp-ri)",
        choices={
            "fixed": "cohort in every round",
            "adafl-full": "ever more, from growth-first to all clients",
            "adafl-econom": "one more every growth-every rounds, up to growth-last",
            "adafl-staged": "a share of all clients that grows in stages",
            "decay": "the cohort, less decay-rate of it each round",
            "isp": "the number that a search finds best, every isp-interval rounds",
            "isp-ri": "the number whose improvement for each client is best",
        },
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

    @property
    def searches(self) -> bool:
        """True where the number of clients is searched for: see `ISPConfig`."""
        return self.participation in ("isp", "isp-ri")
