"""Settings of claims: bounds on what clients say of themselves."""

from dataclasses import dataclass

from fedsel_app.config.settings import ConfigError, Settings, setting


@dataclass(frozen=True)
class ClaimConfig(Settings):
    """Claims: bounds on what clients say of themselves, in multiples of the median of all clients."""

    example_clip: float = setting(
        10.0, "most examples that a client counts for, in multiples of the clients' median (0: any)", low=0.0
    )
    loss_clip: float = setting(
        0.0,
        "largest loss, or other number to select by, that a client counts for, in multiples of the median of what the "
        "clients said last; scores change no kept fraction then (0: any, and 'allocation' decides)",
        low=0.0,
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("example_clip", "loss_clip"):
            if 0.0 < getattr(self, name) < 1.0:
                raise ConfigError(
                    f"The '{name.replace('_', '-')}' parameter must be 0 or at least 1. Got {getattr(self, name)}."
                )
