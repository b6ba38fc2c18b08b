"""Settings of the network: uplinks, computing speeds and the clock."""

from dataclasses import dataclass

from fedsel_app.config.settings import ConfigError, Settings, setting


@dataclass(frozen=True)
class NetworkConfig(Settings):
    """Network: uplinks, computing speeds and the clock."""

    links: str = setting(
        "simulated", "links and clock drawn from the seed, or measured ones", choices=("simulated", "measured")
    )
    uplink_min_bits_per_s: float = setting(1e6, "slowest uplink, drawn per client and round", above=0.0)
    uplink_max_bits_per_s: float = setting(5e6, "fastest uplink", above=0.0)
    step_min_s: float = setting(0.1, "fewest seconds a local step takes, drawn once per client", low=0.0)
    step_max_s: float = setting(0.5, "most seconds a local step takes", low=0.0)
    link_coupling: str = setting(
        "independent",
        "uplinks drawn independently of the data, or the largest loss gets the slowest link (the stress test)",
        choices=("independent", "inverted-loss"),
    )
    clock_bytes: str = setting(
        "wire", "bytes that the clock transfers: those measured, or 4 a kept value (paper)", choices=("wire", "paper")
    )
    clock_probes: bool = setting(True, "the clock counts loss probes (a forward pass is a third of a step)")

    def __post_init__(self) -> None:
        super().__post_init__()
        for low, high in (("uplink_min_bits_per_s", "uplink_max_bits_per_s"), ("step_min_s", "step_max_s")):
            if getattr(self, low) > getattr(self, high):
                names = low.replace("_", "-"), high.replace("_", "-")
                raise ConfigError(f"The '{names[0]}' parameter must be at most '{names[1]}'. Got {getattr(self, low)}.")
