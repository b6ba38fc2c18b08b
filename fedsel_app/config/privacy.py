"""Settings of privacy: differential privacy and label counts."""

from dataclasses import dataclass

from fedsel_app.config.settings import Settings, setting, unless


@dataclass(frozen=True)
class PrivacyConfig(Settings, private=True):
    """Privacy of the clients: differential privacy and the sharing of label counts."""

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
    share_label_counts: bool = setting(
        True, "clients report their number of examples of each class, to methods that need it", owner="may"
    )
