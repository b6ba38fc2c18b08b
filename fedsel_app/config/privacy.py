"""Settings of privacy: differential privacy, secure sums and label counts."""

from dataclasses import dataclass

from fedsel_app.config.settings import Settings, setting, unless


@dataclass(frozen=True)
class PrivacyConfig(Settings, private=True):
    """Privacy of the clients: differential privacy, secure sums, and the sharing of label counts."""

    dp_clip_norm: float = setting(
        0.0, "norm to which each update is clipped for differential privacy; 0 switches it off", low=0.0
    )
    dp_noise_multiplier: float = setting(
        1.0,
        "standard deviation of the noise of differential privacy, in multiples of dp-clip-norm",
        low=1e-100,
        high=1e100,
        read_by={"dp-clip-norm": unless(0.0)},
    )
    dp_delta: float = setting(
        1e-5, "delta at which the run reports its epsilon", above=0.0, below=1.0, read_by={"dp-clip-norm": unless(0.0)}
    )
    secure_sums: str = setting(
        "none",
        "what the server of a deployment learns of the updates of a round",
        choices={
            "none": "each update",
            "masks": "their sum alone: clients mask what they send, and the masks cancel (docs/security.md). A client"
            " whose owner sets this sends no update without a mask",
        },
        first=True,
        owner="may",
        private=("none",),
    )
    least_cohort: int = setting(
        3,
        "least number of clients in a secure sum; each client's owner may ask for more",
        low=3,
        owner="may",
        read_by={"secure-sums": unless("none")},
    )
    clear_number: str = setting(
        "none",
        "the one number of its update that a client tells beside a secure sum, for methods that select by it",
        choices={"none": "none", "norm": "its norm"},
        owner="may",
        read_by={"secure-sums": unless("none")},
    )
    share_label_counts: bool = setting(
        True, "clients report their number of examples of each class, to methods that need it", owner="may"
    )
    least_update_examples: int = setting(
        0,
        "least number of local steps times examples of a step: a client refuses to train or to calibrate with fewer. An"
        " update after one step on one example is that example",
        low=0,
        private=True,
        owner="may",
    )
    share_moments: bool = setting(
        True,
        "clients with data of their own report sums over their examples, for the normalisation and for what takes the"
        " place of a gap, if the server does not state these. Never with differential privacy or a robust aggregation",
        private=True,
        owner="may",
    )

    @property
    def masked(self) -> bool:
        """True if the server of a deployment learns only sums of updates."""
        return self.secure_sums == "masks"
