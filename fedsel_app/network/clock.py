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

    resumes: bool
    """True if a client that leaves continues when it is available again; False if its work is lost."""

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


class Transfer(NamedTuple):
    """Transfer of a client: its size, and the seconds that it takes over the client's own link."""

    bits: float
    own_s: float


@dataclass
class Trip:
    """Way of one client: download, computing, upload.

    Attributes
    ----------
    sequence : see `Happening`
    begun_s : its begin, in seconds since the last step of the server
    leaves_s : time at which the client leaves, on the same clock
    download_s, compute_s : seconds of these two stages
    """

    sequence: int
    begun_s: float
    leaves_s: float
    download_s: float
    compute_s: float = 0.0


@dataclass
class SharedLink:
    """One direction of the server's link, which transfers share in the order in which they begin.

    A transfer ends when the client's link and the server's link have passed all of it. So the server's link is never
    faster than its rate, and no transfer delays an earlier one.

    Attributes
    ----------
    bits_per_s : its rate; inf: no limit
    free_s : time at which it has passed everything that has begun so far
    """

    bits_per_s: float = math.inf
    free_s: float = -math.inf

    def seconds(self, begun_s: float, transfer: Transfer) -> float:
        """Duration of a transfer that begins at `begun_s`."""
        if math.isinf(self.bits_per_s):
            return transfer.own_s
        self.free_s = max(self.free_s, begun_s) + transfer.bits / self.bits_per_s
        return max(transfer.own_s, self.free_s - begun_s)


@dataclass
class Clock:
    """Virtual clock of the clients that are under way.

    Times are seconds since the last step of the server, and `forward` moves this origin. So a round that no client of
    an earlier round disturbs takes the same time, to the last bit, wherever it stands in the run.

    Parameters
    ----------
    server_bits_per_s : rate of the server's link in each direction; inf: no limit
    presence : when each client is available; None: always
    origin_s : the run's clock at the last step of the server

    Attributes
    ----------
    now_s : time of the last event
    trips : client -> its way, of all clients that are under way
    """

    server_bits_per_s: float = math.inf
    presence: Presence | None = None
    origin_s: float = 0.0
    now_s: float = field(default=0.0, init=False)
    trips: dict[int, Trip] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        self._down, self._up = SharedLink(self.server_bits_per_s), SharedLink(self.server_bits_per_s)
        self._heap: list[Happening] = []
        self._sequence = 0

    def send(self, client: int, begun_s: float, download: Transfer, compute_s: float) -> None:
        """Send the model to a client at `begun_s`. It computes for `compute_s` seconds after its download."""
        leaves_s = math.inf
        if self.presence is not None and not self.presence.resumes:
            leaves_s = max(self.presence.leaves(client, self.origin_s + begun_s) - self.origin_s, begun_s)
        self._sequence += 1
        self.trips[client] = Trip(self._sequence, begun_s, leaves_s, self._down.seconds(begun_s, download))
        self._compute(client, compute_s)

    def correct(self, computed_s: Mapping[int, float]) -> None:
        """Replace the seconds of computing of clients that have not uploaded yet."""
        changed = {client for client, seconds in computed_s.items() if self.trips[client].compute_s != seconds}
        if changed:
            self._heap = [happening for happening in self._heap if happening.client not in changed]
            heapq.heapify(self._heap)
        for client in sorted(changed):
            self._compute(client, computed_s[client])

    def upload(self, client: int, upload: Transfer) -> None:
        """Let a client that has computed upload its reply."""
        trip = self.trips[client]
        passed_s = trip.download_s + trip.compute_s + self._up.seconds(self.now_s, upload)
        self._push(client, passed_s, Event.ARRIVED)

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
            "free_s": [self._down.free_s, self._up.free_s],
            "trips": [[client, *vars(trip).values()] for client, trip in self.trips.items()],
            "events": [list(happening) for happening in self._heap],
        }

    def load_rows(self, rows: Mapping[str, Any]) -> None:
        """Load what `rows` returned."""
        self.origin_s, self._sequence = float(rows["origin_s"]), int(rows["sequence"])
        self._down.free_s, self._up.free_s = map(float, rows["free_s"])
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
        self._down.free_s -= seconds
        self._up.free_s -= seconds
        for trip in self.trips.values():
            trip.begun_s -= seconds
            trip.leaves_s -= seconds
        self._heap = [Happening(each[0] - seconds, *each[1:]) for each in self._heap]
        heapq.heapify(self._heap)

    def _compute(self, client: int, compute_s: float) -> None:
        trip = self.trips[client]
        trip.compute_s = compute_s
        self._push(client, trip.download_s + compute_s, Event.COMPUTED)

    def _push(self, client: int, passed_s: float, event: Event) -> None:
        """Plan an event of a client after `passed_s` seconds of its presence, or its leaving if that is earlier."""
        trip = self.trips[client]
        time_s = trip.begun_s + self._with_absences(client, trip.begun_s, passed_s)
        if time_s > trip.leaves_s:
            time_s, event = trip.leaves_s, Event.LEFT
        heapq.heappush(self._heap, Happening(time_s, trip.sequence, event, client))

    def _with_absences(self, client: int, begun_s: float, passed_s: float) -> float:
        """Seconds from `begun_s` until the client has been present for `passed_s` of them."""
        if self.presence is None or not self.presence.resumes:
            return passed_s
        begun_s += self.origin_s
        time_s, absent_s = begun_s, 0.0
        while (leaves_s := self.presence.leaves(client, time_s)) < begun_s + absent_s + passed_s:
            time_s = self.presence.next_available(client, leaves_s)
            absent_s += time_s - leaves_s
        return passed_s + absent_s
