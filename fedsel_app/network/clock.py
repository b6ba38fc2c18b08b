"""Clock: clients under way as a heap of events, and the time at which each reply arrives.

One clock serves every way in which a server waits: for the whole cohort, for the first replies of a larger one, until a
deadline, or for a few of the clients that train at the same time. It reads no files, draws nothing and asks no client.
"""

import heapq
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray


class Presence(Protocol):
    """When each client is available. All times are seconds on the run's clock."""

    def next_available(self, client: int, time_s: float) -> float:
        """First time from `time_s` on at which the client is available."""

    def leaves(self, client: int, time_s: float) -> float:
        """Time at which a client that is available at `time_s` leaves; inf: never."""

    def available(self, time_s: float) -> NDArray[np.bool_]:
        """True for the clients that are available at `time_s`, (K,)."""


class Event(IntEnum):
    """What happens to a client that is under way."""

    COMPUTED = 0
    """Its training has ended, and its upload begins."""
    ARRIVED = 1
    """The server has its reply."""
    LEFT = 2
    """It has left, and its work is lost."""


class Happening(NamedTuple):
    """Event of a client.

    Attributes
    ----------
    time_s : seconds since the last step of the server
    sequence : place of the client in the order in which clients were sent to train; it decides between equal times
    """

    time_s: float
    sequence: int
    event: Event
    client: int


@dataclass
class Trip:
    """Way of one client: download, computing, upload.

    Attributes
    ----------
    sequence : see `Happening`
    begun_s : its begin, in seconds since the last step of the server
    leaves_s : time at which the client leaves, on the same clock
    download_s, compute_s : seconds of its download and of its computing
    """

    sequence: int
    begun_s: float
    leaves_s: float
    download_s: float
    compute_s: float

    @property
    def computed_s(self) -> float:
        """Seconds from its begin to the end of its computing."""
        return self.download_s + self.compute_s


@dataclass
class Clock:
    """Virtual clock of the clients that are under way.

    Times are seconds since the last step of the server, and `forward` moves this origin. So a round that no client of
    an earlier round disturbs takes the same time, to the last bit, wherever it stands in the run.

    Parameters
    ----------
    presence : when each client is available; None: always
    origin_s : the run's clock at the last step of the server

    Attributes
    ----------
    now_s : time of the last event
    trips : client -> its way, of all clients that are under way
    """

    presence: Presence | None = None
    origin_s: float = 0.0
    now_s: float = field(default=0.0, init=False)
    trips: dict[int, Trip] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        self._heap: list[Happening] = []
        self._sequence = 0

    def send(self, client: int, begun_s: float, download_s: float, compute_s: float) -> None:
        """Send the model to a client at `begun_s`. It computes for `compute_s` seconds after its download."""
        leaves_s = math.inf
        if self.presence is not None:
            leaves_s = max(self.presence.leaves(client, self.origin_s + begun_s) - self.origin_s, begun_s)
        self._sequence += 1
        self.trips[client] = Trip(self._sequence, begun_s, leaves_s, download_s, compute_s)
        self._push(client, self.trips[client].computed_s, Event.COMPUTED)

    def correct(self, computed_s: Mapping[int, float]) -> None:
        """Replace the seconds of computing of clients that have not uploaded yet."""
        changed = {client for client, seconds in computed_s.items() if self.trips[client].compute_s != seconds}
        if changed:
            self._heap = [happening for happening in self._heap if happening.client not in changed]
            heapq.heapify(self._heap)
        for client in sorted(changed):
            self.trips[client].compute_s = computed_s[client]
            self._push(client, self.trips[client].computed_s, Event.COMPUTED)

    def upload(self, client: int, upload_s: float) -> None:
        """Let a client that has computed upload its reply, which takes `upload_s` seconds."""
        self._push(client, self.trips[client].computed_s + upload_s, Event.ARRIVED)

    @property
    def next(self) -> Happening:
        """The next event; the time stays."""
        return self._heap[0]

    def pop(self) -> tuple[Happening, Trip]:
        """The next event, with the way of its client; the time moves to it.

        A client that has arrived or left is no longer under way.
        """
        happening = heapq.heappop(self._heap)
        self.now_s = max(self.now_s, happening.time_s)
        trip = self.trips[happening.client]
        if happening.event is not Event.COMPUTED:
            del self.trips[happening.client]
        return happening, trip

    def leaving(self) -> set[int]:
        """Clients whose next event is that they leave."""
        return {happening.client for happening in self._heap if happening.event is Event.LEFT}

    def drop(self, client: int) -> None:
        """Forget a client that is under way."""
        del self.trips[client]
        self._heap = [happening for happening in self._heap if happening.client != client]
        heapq.heapify(self._heap)

    def rows(self) -> dict[str, Any]:
        """All of the clock's state but its parameters, as JSON can hold it."""
        return {
            "origin_s": self.origin_s,
            "sequence": self._sequence,
            "trips": [[client, *vars(trip).values()] for client, trip in self.trips.items()],
            "events": [list(happening) for happening in self._heap],
        }

    def load_rows(self, rows: Mapping[str, Any]) -> None:
        """Load what `rows` returned."""
        self.origin_s, self._sequence = float(rows["origin_s"]), int(rows["sequence"])
        self.trips = {int(client): Trip(int(sequence), *map(float, rest)) for client, sequence, *rest in rows["trips"]}
        self._heap = [
            Happening(float(time_s), int(sequence), Event(event), int(client))
            for time_s, sequence, event, client in rows["events"]
        ]
        heapq.heapify(self._heap)

    def forward(self, seconds: float) -> None:
        """Move the origin of all times by `seconds`, after a step of the server."""
        self.origin_s += seconds
        self.now_s = 0.0
        for trip in self.trips.values():
            trip.begun_s -= seconds
            trip.leaves_s -= seconds
        self._heap = [Happening(each[0] - seconds, *each[1:]) for each in self._heap]
        heapq.heapify(self._heap)

    def _push(self, client: int, passed_s: float, event: Event) -> None:
        """Plan an event of a client `passed_s` seconds after its begin, or its leaving if that is earlier."""
        trip = self.trips[client]
        time_s = trip.begun_s + passed_s
        if time_s > trip.leaves_s:
            time_s, event = trip.leaves_s, Event.LEFT
        heapq.heappush(self._heap, Happening(time_s, trip.sequence, event, client))
