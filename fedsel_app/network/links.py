"""Links: uplink rates and computing speeds of the clients, simulated or measured, and the resulting times."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedsel_app.config import AvailabilityConfig, NetworkConfig
from fedsel_app.messages.answers import TrainAnswer
from fedsel_app.messages.reported_values import lower_median
from fedsel_app.network.clock import Clock, Event, Presence, Transfer
from fedsel_app.seeds import Purpose, stream

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
LEAST_BYTES = 16_384
"""Smallest upload that measures the rate of a link; a smaller one measures its delay."""
SMOOTHING = 0.5
"""Weight of the newest measurement."""
FASTEST = 10.0
"""Upper bound on a client's reported speed, in multiples of the median of all clients."""
DOWNLINK = 5.0
"""Ends of the range of simulated downlinks, in multiples of those of the uplinks."""
TWO_SIDED_95 = 1.959964
"""Standard deviations on each side of the mean that hold 95% of a normal distribution."""


@dataclass(frozen=True)
class Work:
    """Work of clients that begin at the same time, for the clock.

    Attributes
    ----------
    clients : int64 (r,)
    compute_s : float64 (r,), seconds of computing
    downlink_bits_per_s, uplink_bits_per_s : float64 (r,)
    download_bytes : bytes that each client receives
    uplink_bytes, uplink_value_bytes : int64 (r,), upload of each: as measured, and as 4 bytes per kept value
    begun_s : the run's clock at the begin
    """

    clients: Ints
    compute_s: Floats
    downlink_bits_per_s: Floats
    uplink_bits_per_s: Floats
    download_bytes: int
    uplink_bytes: Ints
    uplink_value_bytes: Ints
    begun_s: float = 0.0


class SimulatedLinks:
    """Simulated links: rates and seconds per local step of each client by `spread`, and the clock that they make.

    Parameters
    ----------
    presence : when each client is available; None: always

    Attributes
    ----------
    mean_uplink_bits_per_s, mean_step_s : mean uplink and seconds of a local step, for clients of which none is known
    needs_losses : True if the links depend on the clients' losses; then all losses are measured
    measured : True in deployment, where times are measured and deadlines are real
    """

    measured = False

    def __init__(self, config: NetworkConfig, clients: int, seed: int, presence: Presence | None = None) -> None:
        self._config, self._clients, self._seed, self.presence = config, clients, seed, presence
        self._redrawn = config.spread == "uniform"
        self._uplinks, self._downlinks, self._step_s = self._speeds()
        if self._redrawn:
            self.mean_uplink_bits_per_s = (config.uplink_min_bits_per_s + config.uplink_max_bits_per_s) / 2
            self.mean_step_s = (config.step_min_s + config.step_max_s) / 2
        else:
            self.mean_uplink_bits_per_s, self.mean_step_s = float(self._uplinks.mean()), float(self._step_s.mean())
        self.needs_losses = config.link_coupling == "inverted-loss"

    def _speeds(self) -> tuple[Floats, Floats, Floats]:
        """Uplinks and downlinks in bits/s, and seconds per local step, float64 (K,) each, drawn once."""
        config, seed = self._config, self._seed
        low, high = config.uplink_min_bits_per_s, config.uplink_max_bits_per_s
        up, down = stream(seed, Purpose.NETWORK, 0, 1), stream(seed, Purpose.NETWORK, 0, 2)
        return (
            draw_values(config.spread, low, high, self._clients, up),
            draw_values(config.spread, DOWNLINK * low, DOWNLINK * high, self._clients, down),
            draw_values(
                config.spread, config.step_min_s, config.step_max_s, self._clients, stream(seed, Purpose.NETWORK)
            ),
        )

    def observe(self, server_round: int, losses: Floats) -> tuple[Floats, Floats]:
        """Uplink bits/s of this round and seconds per local step of every client, float64 (K,) each."""
        low, high = self._config.uplink_min_bits_per_s, self._config.uplink_max_bits_per_s
        if self.needs_losses:
            return inverted_uplinks(losses, low, high), self._step_s
        if self._redrawn:
            return stream(self._seed, Purpose.NETWORK, server_round).uniform(low, high, self._clients), self._step_s
        return self._uplinks, self._step_s

    def downlinks(self, server_round: int) -> Floats:
        """Downlink bits/s of this round, float64 (K,); inf if downloads take no time."""
        low, high = DOWNLINK * self._config.uplink_min_bits_per_s, DOWNLINK * self._config.uplink_max_bits_per_s
        if not self._config.full:
            return np.full(self._clients, np.inf)
        if self._redrawn:
            return stream(self._seed, Purpose.NETWORK, server_round, 1).uniform(low, high, self._clients)
        return self._downlinks

    def clock(self, origin_s: float = 0.0) -> Clock:
        """A clock with no client under way; the run's clock is at `origin_s`."""
        shared = self._config.server_bits_per_s if self._config.full else 0.0
        return Clock(shared or math.inf, self.presence, origin_s)

    def transfers(self, work: Work) -> Iterator[tuple[int, Transfer, float, Transfer]]:
        """Each client, with its download, its seconds of computing and its upload."""
        sent = work.uplink_value_bytes if self._config.clock == "values" else work.uplink_bytes
        down, up = 8.0 * work.download_bytes, 8.0 * sent
        with np.errstate(over="ignore"):  # a round that takes inf seconds ends the run
            download_s, upload_s = down / work.downlink_bits_per_s, up / work.uplink_bits_per_s
        columns = (work.clients, download_s, work.compute_s, up, upload_s)
        for client, own_s, compute_s, bits, upload in zip(*(column.tolist() for column in columns), strict=True):
            yield client, Transfer(down, own_s), compute_s, Transfer(bits, upload)

    def leaving(self, work: Work) -> set[int]:
        """The clients that leave before they have computed."""
        clock = self.clock(work.begun_s)
        for client, download, compute_s, _ in self.transfers(work):
            clock.send(client, 0.0, download, compute_s)
        return clock.leaving()

    def finish_s(self, work: Work, arrived_s: Floats) -> tuple[Floats, NDArray[np.bool_]]:
        """Seconds until each reply arrives, float64 (r,), and for which clients this is when they left instead."""
        return self._finish_s(self.clock(work.begun_s), work)

    def probe_s(self, work: Work) -> Floats:
        """Seconds of each client that evaluates a model, float64 (c,): on the papers' clock only its computing.

        No client leaves before it has answered.
        """
        if self._config.full:
            return self._finish_s(replace(self.clock(), presence=None), work)[0]
        return np.zeros(1) if self._config.clock == "values" else work.compute_s

    def _finish_s(self, clock: Clock, work: Work) -> tuple[Floats, NDArray[np.bool_]]:
        row = {client: row for row, client in enumerate(work.clients.tolist())}
        finish_s, left = np.zeros(work.clients.size), np.zeros(work.clients.size, np.bool_)
        uploads = dict[int, Transfer]()
        for client, download, compute_s, uploads[client] in self.transfers(work):
            clock.send(client, 0.0, download, compute_s)
        while clock.trips:
            happening, _ = clock.pop()
            if happening.event is Event.COMPUTED:
                clock.upload(happening.client, uploads[happening.client])
            else:
                finish_s[row[happening.client]] = happening.time_s
                left[row[happening.client]] = happening.event is Event.LEFT
        return finish_s, left

    def learn(self, client: int, answer: TrainAnswer) -> None:
        """Ignore a reply: simulated speeds are drawn from the seed, not measured."""

    def state(self) -> dict[str, NDArray[Any]]:
        """State of the links: empty, because everything is drawn from the seed."""
        return {}

    def load_state(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Load no state: simulated links have none."""

    def round_seconds(self, finish_s: Floats, probe_s: Floats, wall_s: float, waited_s: float = 0.0) -> float:
        """Seconds of a round: the slowest probe, then the slowest client or the wait for missing replies."""
        return float(finish_s.max(initial=waited_s) + probe_s.max(initial=0.0))


class MeasuredLinks:
    """Measured links: durations by the wall clock, and speeds that clients report, smoothed exponentially.

    Clients measure and report their own speeds. So the median stands for the typical client, and no client counts as
    more than `FASTEST` times as fast. A client without a report has the median of the others. Before the first report
    all clients have the middle of the simulated ranges. Uploads below `LEAST_BYTES` measure the delay, not the rate,
    and are ignored.
    """

    needs_losses = False
    measured = True
    presence = None

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

    def downlinks(self, server_round: int) -> Floats:
        """Downlink bits/s of every client: unknown, NaN (K,)."""
        return np.full(self._steps.size, np.nan)

    def finish_s(self, work: Work, arrived_s: Floats) -> tuple[Floats, NDArray[np.bool_]]:
        """Seconds until each reply arrived, as given; a client that left has sent none."""
        return arrived_s, np.zeros(arrived_s.size, np.bool_)

    def probe_s(self, work: Work) -> Floats:
        """Seconds of computing: the wall clock has the rest."""
        return work.compute_s

    def round_seconds(self, finish_s: Floats, probe_s: Floats, wall_s: float, waited_s: float = 0.0) -> float:
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


def draw_values(spread: str, low: float, high: float, clients: int, rng: np.random.Generator) -> Floats:
    """Values of all clients, float64 (K,), in [`low`, `high`]; with log-normal, 95% of them."""
    if spread == "constant":
        return np.full(clients, (low + high) / 2)
    if spread == "uniform":
        return rng.uniform(low, high, clients)
    middle, deviation = math.log(low * high) / 2, math.log(high / low) / (2 * TWO_SIDED_95)
    return rng.lognormal(middle, deviation, clients)


def inverted_uplinks(losses: Floats, low: float, high: float) -> Floats:
    """Stress test of uplinks: low + (high - low) (1 - loss / largest loss) bits/s (the authors' code).

    `losses` is float64 (K,); a client whose loss is unknown gets the slowest link, and a negative loss counts as 0.
    """
    finite = losses[np.isfinite(losses)]
    top = finite.max() if finite.size else 0.0
    share = np.maximum(losses, 0.0) / top if top > 0 else np.ones(losses.shape)
    return np.asarray(low + (high - low) * (1.0 - np.where(np.isfinite(share), share, 1.0)))


Links = SimulatedLinks | MeasuredLinks
ALWAYS = AvailabilityConfig()


def make_links(config: NetworkConfig, clients: int, seed: int, availability: AvailabilityConfig = ALWAYS) -> Links:
    """Build the links of the 'links' setting. Raises ConfigError if a trace cannot be read."""
    if config.links == "measured":
        return MeasuredLinks(config, clients)
    presence = None
    if availability.availability != ALWAYS.availability:
        from fedsel_app.network.availability import Diurnal, Trace

        presence = (Trace if availability.availability == "trace" else Diurnal)(availability, clients, seed)
    return SimulatedLinks(config, clients, seed, presence)
