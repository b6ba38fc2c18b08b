"""Links: uplink rates and computing speeds of the clients, simulated or measured, and the resulting duration of a
round.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedsel_app.config import NetworkConfig
from fedsel_app.messages.answers import TrainAnswer
from fedsel_app.messages.reported_values import lower_median
from fedsel_app.seeds import Purpose, stream

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
LEAST_BYTES = 16_384
"""Smallest upload that measures the rate of a link; a smaller one measures its delay."""
SMOOTHING = 0.5
"""Weight of the newest measurement."""
FASTEST = 10.0
"""Upper bound on a client's reported speed, in multiples of the median of all clients."""


@dataclass(frozen=True)
class RoundWork:
    """Work of a round: what its clients computed and sent, for the clock.

    Attributes
    ----------
    uplink_bits_per_s, step_s : float64 (r,), link speed and seconds per local step of each client that trained
    work_steps : float64 (r,), computing of each, in local steps
    uplink_bytes, uplink_value_bytes : int64 (r,), upload of each: as measured, and as 4 bytes per kept value
    probe_s : float64 (c,), seconds of each probed client
    waited_s : least duration of the training, from waiting for clients that did not reply
    """

    uplink_bits_per_s: Floats
    step_s: Floats
    work_steps: Floats
    uplink_bytes: Ints
    uplink_value_bytes: Ints
    probe_s: Floats
    waited_s: float = 0.0


class SimulatedLinks:
    """Simulated links: uplinks U[min, max] per client and round, seconds per local step U[min, max] per client.

    Attributes
    ----------
    mean_uplink_bits_per_s, mean_step_s : mean uplink and seconds of a local step, for clients of which none is known
    needs_losses : True if the links depend on the clients' losses; then all losses are measured
    measured : True in deployment, where times are measured and deadlines are real
    """

    measured = False

    def __init__(self, config: NetworkConfig, clients: int, seed: int) -> None:
        self._config = config
        self._seed = seed
        self._step_s = stream(seed, Purpose.NETWORK).uniform(config.step_min_s, config.step_max_s, clients)
        self.mean_uplink_bits_per_s = (config.uplink_min_bits_per_s + config.uplink_max_bits_per_s) / 2
        self.mean_step_s = (config.step_min_s + config.step_max_s) / 2
        self.needs_losses = config.link_coupling == "inverted-loss"

    def observe(self, server_round: int, losses: Floats) -> tuple[Floats, Floats]:
        """Uplink bits/s of this round and seconds per local step of every client, float64 (K,) each."""
        low, high = self._config.uplink_min_bits_per_s, self._config.uplink_max_bits_per_s
        if self.needs_losses:
            return inverted_uplinks(losses, low, high), self._step_s
        return stream(self._seed, Purpose.NETWORK, server_round).uniform(low, high, self._step_s.size), self._step_s

    def finish_s(self, work: RoundWork, arrived_s: Floats) -> Floats:
        """Seconds from the start of the round to each reply, computing and transfer together, float64 (r,)."""
        sent = work.uplink_bytes if self._config.clock_bytes == "wire" else work.uplink_value_bytes
        return work.step_s * work.work_steps + 8.0 * sent / work.uplink_bits_per_s

    def learn(self, client: int, answer: TrainAnswer) -> None:
        """Ignore a reply: simulated speeds are drawn from the seed, not measured."""

    def state(self) -> dict[str, NDArray[Any]]:
        """State of the links: empty, because everything is drawn from the seed."""
        return {}

    def load_state(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Load no state: simulated links have none."""

    def round_seconds(self, work: RoundWork, wall_s: float) -> float:
        """Seconds of a round: the slowest probe, then the slowest client or the wait for missing replies."""
        clients_s = self.finish_s(work, np.zeros(0))
        probes_s = work.probe_s if self._config.clock_probes else np.zeros(1)
        return float(clients_s.max(initial=work.waited_s) + probes_s.max(initial=0.0))


class MeasuredLinks:
    """Measured links: durations by the wall clock, and speeds that clients report, smoothed exponentially.

    Clients measure and report their own speeds. So the median stands for the typical client, and no client counts as
    more than `FASTEST` times as fast. A client without a report has the median of the others. Before the first report
    all clients have the middle of the simulated ranges. Uploads below `LEAST_BYTES` measure the delay, not the rate,
    and are ignored.
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
        """Median uplink bits/s of all clients."""
        return _middle(self._uplinks, self._prior[0])

    @property
    def mean_step_s(self) -> float:
        """Median seconds per local step of all clients."""
        return _middle(self._steps, self._prior[1])

    def learn(self, client: int, answer: TrainAnswer) -> None:
        """Learn a client's speed from one reply: its computing, and the upload of its previous reply."""
        if answer.compute_s > 0.0 and answer.work_steps > 0.0:
            _smooth(self._steps, client, answer.compute_s / answer.work_steps)
        if answer.upload_bytes >= LEAST_BYTES and answer.upload_s > 0.0:
            _smooth(self._uplinks, client, 8.0 * answer.upload_bytes / answer.upload_s)

    def observe(self, server_round: int, losses: Floats) -> tuple[Floats, Floats]:
        """Uplink bits/s and seconds per local step of every client, float64 (K,) each."""
        uplink, step_s = self.mean_uplink_bits_per_s, self.mean_step_s
        uplinks = np.minimum(np.where(np.isnan(self._uplinks), uplink, self._uplinks), FASTEST * uplink)
        return uplinks, np.maximum(np.where(np.isnan(self._steps), step_s, self._steps), step_s / FASTEST)

    def finish_s(self, work: RoundWork, arrived_s: Floats) -> Floats:
        """Seconds until each reply arrived, as given."""
        return arrived_s

    def round_seconds(self, work: RoundWork, wall_s: float) -> float:
        """Seconds that passed on the server's clock."""
        return wall_s

    def state(self) -> dict[str, NDArray[Any]]:
        """State of the links; after `load_state` they continue identically."""
        return {"uplinks": self._uplinks.copy(), "steps": self._steps.copy()}

    def load_state(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Load a state that `state` returned. Raises ValueError if its number of clients differs."""
        if state["uplinks"].shape != self._uplinks.shape or state["steps"].shape != self._steps.shape:
            raise ValueError(f"links of {state['uplinks'].shape} clients")
        self._uplinks, self._steps = state["uplinks"].astype(np.float64), state["steps"].astype(np.float64)


def _smooth(estimates: Floats, client: int, value: float) -> None:
    before = estimates[client]
    estimates[client] = value if np.isnan(before) else (1.0 - SMOOTHING) * before + SMOOTHING * value


def _middle(estimates: Floats, prior: float) -> float:
    """Lower median of the known `estimates` (K,); `prior` if there are none."""
    return prior if np.isnan(estimates).all() else lower_median(estimates)


def inverted_uplinks(losses: Floats, low: float, high: float) -> Floats:
    """Stress test of uplinks: low + (high - low) (1 - loss / largest loss) bits/s (the authors' code).

    `losses` is float64 (K,); a client whose loss is unknown gets the slowest link.
    """
    known = losses[np.isfinite(losses)]
    top = known.max() if known.size else 0.0
    share = losses / top if top > 0 else np.ones(losses.shape)
    return np.asarray(low + (high - low) * (1.0 - np.where(np.isfinite(share), share, 1.0)))


Links = SimulatedLinks | MeasuredLinks


def make_links(config: NetworkConfig, clients: int, seed: int) -> Links:
    """Build the links of the 'links' setting."""
    if config.links == "measured":
        return MeasuredLinks(config, clients)
    return SimulatedLinks(config, clients, seed)
