"""Settings of privacy: differential privacy and label counts."""

from dataclasses import dataclass

from fedsel_app.config.settings import Settings, setting


@dataclass(frozen=True)
class PrivacyConfig(Settings):
    """Privacy of the clients: differential privacy and the sharing of label counts."""

    dp_clip_norm: float = setting(0.0, "norm to which updates are clipped for differential privacy (0: off)", low=0.0)
    dp_noise_multiplier: float = setting(1.0, "standard deviation of its noise, in clip norms of one client", above=0.0)
    dp_delta: float = setting(1e-5, "delta at which its epsilon is reported", above=0.0, below=1.0)
    share_label_counts: bool = setting(True, "clients tell their examples of each class, where a method needs them")
