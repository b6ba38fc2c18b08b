"""Availability: when each client is there, from a daily rhythm or from a trace of real devices.

`diurnal` follows K. Bonawitz et al., "Towards Federated Learning at Scale: System Design", MLSys 2019, Sec. 9: devices
are more likely idle and charging at night, and the largest number of participating devices within 24 hours is 4 times
the smallest (`PEAK_RATIO`).

Deviations
----------
- The paper gives neither the mean share of the devices nor the length of their stay: these are settings.
- The share of available clients follows a cosine with its peak at the begin of the run and of each day after it. Stays
  are exponential, and those that reach into the next day may end there.
"""

import csv
import math
from functools import lru_cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fedsel_app.config import AvailabilityConfig, ConfigError
from fedsel_app.config.plugins import described
from fedsel_app.seeds import Purpose, stream

Floats = NDArray[np.float64]
DAY_S = 86_400.0
PEAK_RATIO = 4.0
"""Largest number of available clients within a day over the smallest."""
WAVE = (PEAK_RATIO - 1.0) / (PEAK_RATIO + 1.0)
"""Amplitude a of the wave 1 + a cos(2 pi t / day) with this ratio."""
SHORTEST_S = 0.001
"""Shortest stay of a trace. A shorter absence is lost in the rounding of a late time."""


def share(time_s: float, mean: float) -> float:
    """Share of the clients that are available at `time_s`, over a day `mean` on average."""
    return mean * (1.0 + WAVE * math.cos(2.0 * math.pi * time_s / DAY_S))


def stays_of_day(mean: float, stay_s: float, rng: np.random.Generator) -> Floats:
    """Begin and end of a client's stays within a day, float64 (n, 2), ascending, in seconds from its begin.

    The client comes at the rate p / (s (1 - p)) and leaves at the rate 1 / s, with s = `stay_s`; so it is available
    with probability p(t) = `share`, as long as p changes little within s. Arrivals are thinned from the largest rate
    (P. A. W. Lewis, G. S. Shedler, "Simulation of nonhomogeneous Poisson processes by thinning", 1979).
    """

    def rate(time_s: float) -> float:
        present = share(time_s, mean)
        return present / (stay_s * (1.0 - present))

    largest, stays, time_s = rate(0.0), list[tuple[float, float]](), 0.0
    if rng.random() < share(0.0, mean):
        time_s = min(rng.exponential(stay_s), DAY_S)
        stays.append((0.0, time_s))
    while (time_s := time_s + rng.exponential(1.0 / largest)) < DAY_S:
        if rng.random() * largest < rate(time_s):
            begun_s, time_s = time_s, min(time_s + rng.exponential(stay_s), DAY_S)
            stays.append((begun_s, time_s))
    return np.array(stays, np.float64).reshape(-1, 2)


class Stays:
    """Availability of K clients by their stays, which a subclass knows for one period after the other.

    Attributes
    ----------
    resumes : see `fedsel_app.network.clock.Presence`
    """

    def __init__(self, clients: int, *, resumes: bool) -> None:
        self.resumes = resumes
        self._available = np.zeros(clients, np.bool_)
        self._changes_s = np.full(clients, -math.inf)
        """Time of each client's next change."""
        self._seen_s = -math.inf

    def period_s(self, client: int) -> float:
        """Length of a client's periods."""
        raise NotImplementedError

    def stays(self, client: int, period: int) -> Floats:
        """Begin and end of a client's stays in a period, float64 (n, 2), ascending, from the begin of the period."""
        raise NotImplementedError

    def next_available(self, client: int, time_s: float) -> float:
        """First time from `time_s` on at which the client is available."""
        period = math.floor(time_s / self.period_s(client))
        while (stay := self._stay_after(client, period, time_s)) is None:
            period += 1
        return max(time_s, stay[0])

    def leaves(self, client: int, time_s: float) -> float:
        """End of the stay in which the client is at `time_s`, perhaps in a later period; `time_s` if it is away."""
        length_s = self.period_s(client)
        period = math.floor(time_s / length_s)
        while (stay := self._stay_after(client, period, time_s)) is not None and stay[0] <= time_s:
            time_s, period = stay[1], period + 1
            if time_s < period * length_s:
                break
        return time_s

    def _stay_after(self, client: int, period: int, time_s: float) -> tuple[float, float] | None:
        """Begin and end, on the run's clock, of the client's first stay of a period that ends after `time_s`."""
        stays = self.stays(client, period) + period * self.period_s(client)
        first = int(np.searchsorted(stays[:, 1], time_s, side="right"))
        return (float(stays[first, 0]), float(stays[first, 1])) if first < len(stays) else None

    def available(self, time_s: float) -> NDArray[np.bool_]:
        """True for the clients that are available at `time_s`, (K,). Fast if the times of the calls ascend."""
        if time_s < self._seen_s:
            self._changes_s[:] = -math.inf
        self._seen_s = time_s
        for client in np.flatnonzero(self._changes_s <= time_s).tolist():
            next_s = self.next_available(client, time_s)
            self._available[client] = next_s <= time_s
            self._changes_s[client] = self.leaves(client, time_s) if next_s <= time_s else next_s
        return self._available


class Diurnal(Stays):
    """Availability by the daily rhythm of `stays_of_day`, drawn from the seed for each client and day."""

    def __init__(self, config: AvailabilityConfig, clients: int, seed: int) -> None:
        super().__init__(clients, resumes=config.leaving == "resumes")
        self._config, self._seed = config, seed
        self._drawn = lru_cache(maxsize=clients)(self._draw)

    def period_s(self, client: int) -> float:
        """A day."""
        return DAY_S

    def stays(self, client: int, period: int) -> Floats:
        """Stays of a day."""
        return self._drawn(client, period)

    def _draw(self, client: int, day: int) -> Floats:
        rng = stream(self._seed, Purpose.AVAILABILITY, day, client)
        return stays_of_day(self._config.availability_share, self._config.stay_s, rng)


class Trace(Stays):
    """Availability of recorded devices. The seed gives each client a device, unless the trace names the clients.

    The trace repeats after its last stay. Raises ConfigError if the file cannot be read, or is no trace.
    """

    def __init__(self, config: AvailabilityConfig, clients: int, seed: int) -> None:
        super().__init__(clients, resumes=config.leaving == "resumes")
        column, stays = read_trace(Path(config.availability_trace))
        names = list(stays)
        order: list[str] = [names[place] for place in stream(seed, Purpose.AVAILABILITY).permutation(len(names))]
        if column == "client" and set(names) != set(order := list(map(str, range(clients)))):
            raise ConfigError(
                f"The trace 'availability-trace' must have stays of the clients 0 to {clients - 1}, and of no other."
            )
        self._devices = [stays[order[client % len(order)]] for client in range(clients)]
        self._period_s = max(float(of_device[-1, 1]) for of_device in stays.values())

    def period_s(self, client: int) -> float:
        """Length of the trace."""
        return self._period_s

    def stays(self, client: int, period: int) -> Floats:
        """Stays of the client's device, the same in each period."""
        return self._devices[client]

    def leaves(self, client: int, time_s: float) -> float:
        """End of the stay; inf for a device that is there all the time, but for less than `SHORTEST_S` of a period."""
        begun_s, end_s = self.stays(client, 0)[0]
        return math.inf if self._period_s - (end_s - begun_s) < SHORTEST_S else super().leaves(client, time_s)


def read_trace(path: Path) -> tuple[str, dict[str, Floats]]:
    """The first column of a trace, device or client, and the stays of each, float64 (n, 2), ascending.

    They are in seconds from the begin of the trace. Raises ConfigError if the file cannot be read, or is no trace.
    """
    rows = dict[str, list[tuple[float, float]]]()
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            table = csv.DictReader(file)
            column = "client" if "client" in (table.fieldnames or ()) else "device"
            for row in table:
                rows.setdefault(row[column], []).append((float(row["begin_s"]), float(row["end_s"])))
        stays = {name: np.array(sorted(of_device)) for name, of_device in rows.items()}
        if not stays:
            raise ValueError("it has no stay")
        for edges in map(np.ravel, stays.values()):
            if not np.isfinite(edges).all() or edges[0] < 0.0 or (np.diff(edges)[::2] < SHORTEST_S).any():
                raise ValueError(f"each stay must begin at 0 or later, and last {SHORTEST_S:g} s or longer")
            if (np.diff(edges)[1::2] <= 0.0).any():
                raise ValueError("the stays of a device must not touch each other")
    except (OSError, UnicodeDecodeError, csv.Error, KeyError, TypeError, ValueError) as error:
        raise ConfigError(
            f"The trace 'availability-trace' {path} cannot be read ({described(error)}). It must be a CSV file with a "
            "row for each stay of a device, in the columns device (or client), begin_s, end_s."
        ) from error
    return column, stays
