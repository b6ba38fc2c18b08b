"""Links, simulated and measured, and the clock. NumPy only."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedsel_app.clock import LEAST_BYTES, Work
from fedsel_app.config import ConfigError, Settings, setting
from fedsel_app.seeds import Purpose, stream

Floats = NDArray[np.float64]

SMOOTHING = 0.5
"""Weight of the newest measurement."""


@dataclass(frozen=True)
class NetworkConfig(Settings):
    """Uplinks, computing speeds and the clock."""

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


class SimulatedLinks:
    """Uplinks U[min, max] per client and round, computing U[min, max] seconds a step per client."""

    measured = False

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

    def finish_s(self, work: Work, arrived_s: Floats) -> Floats:
        """Seconds of each client's computing and transfer together, float64 (r,)."""
        sent = work.wire_bytes if self._config.clock_bytes == "wire" else work.paper_bytes
        return work.step_s * work.work_steps + 8.0 * sent / work.uplink_bits_per_s

    def learn(self, client: int, work_steps: float, told: Mapping[str, object]) -> None:
        """Nothing: what clients really take is of no account."""

    def state(self) -> dict[str, NDArray[Any]]:
        """Nothing: everything is drawn from the seed."""
        return {}

    def load_state(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Nothing."""

    def round_seconds(self, work: Work, wall_s: float) -> float:
        """Seconds of a round: the slowest probe, then the slowest client, or what was waited for others."""
        clients_s = self.finish_s(work, np.zeros(0))
        probes_s = work.probe_s if self._config.clock_probes else np.zeros(1)
        return float(clients_s.max(initial=work.waited_s) + probes_s.max(initial=0.0))


class MeasuredLinks:
    """Wall-clock rounds, and what clients tell of their speed, smoothed exponentially.

    A client that has not told yet counts as the mean of those who have; as long as nobody has, as the middle of the
    simulated ranges. Uploads below `LEAST_BYTES` measure the delay, not the rate, and are passed over.
    """

    needs_losses = False
    measured = True

    def __init__(self, config: NetworkConfig, clients: int) -> None:
        self._uplinks, self._steps = np.full(clients, np.nan), np.full(clients, np.nan)
        self._prior = (
            (config.uplink_min_bits_per_s + config.uplink_max_bits_per_s) / 2,
            (config.step_min_s + config.step_max_s) / 2,
        )

    @property
    def mean_uplink_bits_per_s(self) -> float:
        """Of all clients."""
        return float(_filled(self._uplinks, self._prior[0]).mean())

    @property
    def mean_step_s(self) -> float:
        """Of all clients."""
        return float(_filled(self._steps, self._prior[1]).mean())

    def learn(self, client: int, work_steps: float, told: Mapping[str, object]) -> None:
        """Take in the metrics of one reply: compute_s for `work_steps`, upload-bytes and upload_s of the one before."""
        compute_s, sent, upload_s = (_number(told.get(name)) for name in ("compute_s", "upload-bytes", "upload_s"))
        if compute_s > 0.0 and work_steps > 0.0:
            _smooth(self._steps, client, compute_s / work_steps)
        if sent >= LEAST_BYTES and upload_s > 0.0:
            _smooth(self._uplinks, client, 8.0 * sent / upload_s)

    def observe(self, server_round: int, losses: Floats) -> tuple[Floats, Floats]:
        """Uplink bits/s and seconds a local step of every client, float64 (K,) each."""
        return _filled(self._uplinks, self._prior[0]), _filled(self._steps, self._prior[1])

    def finish_s(self, work: Work, arrived_s: Floats) -> Floats:
        """When each reply arrived."""
        return arrived_s

    def round_seconds(self, work: Work, wall_s: float) -> float:
        """Seconds that passed on the server's clock."""
        return wall_s

    def state(self) -> dict[str, NDArray[Any]]:
        """What `load_state` needs to go on identically."""
        return {"uplinks": self._uplinks.copy(), "steps": self._steps.copy()}

    def load_state(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Take up a state that `state` returned."""
        if state["uplinks"].shape != self._uplinks.shape or state["steps"].shape != self._steps.shape:
            raise ValueError(f"links of {state['uplinks'].shape} clients")
        self._uplinks, self._steps = state["uplinks"].astype(np.float64), state["steps"].astype(np.float64)


def _number(told: object) -> float:
    """A metric that a client sent; NaN if it is no finite number."""
    return float(told) if isinstance(told, int | float) and np.isfinite(told) else float("nan")


def _smooth(estimates: Floats, client: int, value: float) -> None:
    before = estimates[client]
    estimates[client] = value if np.isnan(before) else (1.0 - SMOOTHING) * before + SMOOTHING * value


def _filled(estimates: Floats, prior: float) -> Floats:
    known = estimates[~np.isnan(estimates)]
    return np.where(np.isnan(estimates), known.mean() if known.size else prior, estimates)


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
        return MeasuredLinks(config, clients)
    return SimulatedLinks(config, clients, seed)
