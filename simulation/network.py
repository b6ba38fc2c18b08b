"""Simulated links and the virtual clock. NumPy only."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedsel_app.clock import Work
from fedsel_app.config import ConfigError, Settings, setting
from fedsel_app.seeds import Purpose, stream

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class NetworkConfig(Settings):
    """Uplinks, computing speeds and the clock."""

    links: str = setting(
        "simulated", "links and clock drawn from the seed, or wall-clock time", choices=("simulated", "measured")
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


class SimulatedLinks:
    """Uplinks U[min, max] per client and round, computing U[min, max] seconds a step per client."""

    def __init__(self, config: NetworkConfig, clients: int, seed: int) -> None:
        self._config = config
        self._seed = seed
        self._step_s = stream(seed, Purpose.NETWORK).uniform(config.step_min_s, config.step_max_s, clients)
        self.mean_uplink_bits_per_s = (config.uplink_min_bits_per_s + config.uplink_max_bits_per_s) / 2
        self.mean_step_s = (config.step_min_s + config.step_max_s) / 2
        self.needs_losses = config.link_coupling == "inverted-loss"

    def observe(self, server_round: int, losses: Floats) -> tuple[Floats, Floats]:
        """This round's uplink bits/s and seconds a local step of every client, float64 (K,) each."""
        low, high = self._config.uplink_min_bits_per_s, self._config.uplink_max_bits_per_s
        if self.needs_losses:
            return inverted_uplinks(losses, low, high), self._step_s
        return stream(self._seed, Purpose.NETWORK, server_round).uniform(low, high, self._step_s.size), self._step_s

    def round_seconds(self, work: Work, wall_s: float) -> float:
        """Seconds of a round: the slowest probe, then the slowest client's computing and transfer together."""
        sent = work.wire_bytes if self._config.clock_bytes == "wire" else work.paper_bytes
        clients_s = work.step_s * work.work_steps + 8.0 * sent / work.uplink_bits_per_s
        probes_s = work.probe_s if self._config.clock_probes else np.zeros(1)
        return float(clients_s.max(initial=0.0) + probes_s.max(initial=0.0))


class MeasuredLinks:
    """Wall-clock rounds; what single links can do is unknown to the methods."""

    mean_uplink_bits_per_s = float("nan")
    mean_step_s = float("nan")
    needs_losses = False

    def __init__(self, clients: int) -> None:
        self._unknown = np.full(clients, np.nan)

    def observe(self, server_round: int, losses: Floats) -> tuple[Floats, Floats]:
        """NaN for every client."""
        return self._unknown, self._unknown

    def round_seconds(self, work: Work, wall_s: float) -> float:
        """Seconds that passed on the server's clock."""
        return wall_s


def inverted_uplinks(losses: Floats, low: float, high: float) -> Floats:
    """The stress test: low + (high - low) (1 - loss / largest loss) bits/s (the authors' code).

    `losses` is float64 (K,); a client whose loss is unknown gets the slowest link.
    """
    known = losses[np.isfinite(losses)]
    top = known.max() if known.size else 0.0
    share = losses / top if top > 0 else np.ones(losses.shape)
    return np.asarray(low + (high - low) * (1.0 - np.where(np.isfinite(share), share, 1.0)))


def make_links(config: NetworkConfig, clients: int, seed: int) -> SimulatedLinks | MeasuredLinks:
    """The links that `config` asks for."""
    if config.links == "measured":
        return MeasuredLinks(clients)
    return SimulatedLinks(config, clients, seed)
