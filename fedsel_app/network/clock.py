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
    RETURNED = 3
    """It is back, and goes on with a transfer."""


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
    leaves_s : time at which the client leaves for good, on the same clock
    compute_s : seconds of its computing
    download_s : seconds from its begin until the model has arrived
    """

    sequence: int
    begun_s: float
    leaves_s: float
    compute_s: float
    download_s: float = 0.0


class Interrupted(NamedTuple):
    """Transfer of a client that is away.

    Attributes
    ----------
    bits, own_s : what the server's link and the client's own have not passed, see `Transfer`
    upload : True if it is an upload
    returns_s : the run's clock at the client's return
    """

    bits: float
    own_s: float
    upload: bool
    returns_s: float


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

    def seconds(self, begun_s: float, transfer: Transfer, leaves_s: float = math.inf) -> tuple[float, Transfer | None]:
        """Duration of a transfer that begins at `begun_s`, and None; if its client leaves before it ends, the seconds
        until then, and what each link has not passed.
        """
        start_s, end_s = max(self.free_s, begun_s), begun_s
        if not math.isinf(self.bits_per_s):
            end_s = start_s + transfer.bits / self.bits_per_s
        seconds = max(transfer.own_s, end_s - begun_s)
        if begun_s + seconds <= leaves_s:
            self.free_s = max(self.free_s, end_s)
            return seconds, None
        left_s = max(end_s - max(start_s, leaves_s), 0.0)
        if start_s < leaves_s:
            self.free_s = max(self.free_s, min(end_s, leaves_s))
        bits = left_s * self.bits_per_s if left_s else 0.0
        return leaves_s - begun_s, Transfer(bits, max(transfer.own_s - (leaves_s - begun_s), 0.0))


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
        self._interrupted: dict[int, Interrupted] = {}
        self._sequence = 0

    def send(self, client: int, begun_s: float, download: Transfer, compute_s: float) -> None:
        """Send the model to a client at `begun_s`. It computes for `compute_s` seconds after its download."""
        leaves_s = math.inf
        if self.presence is not None and not self.presence.resumes:
            leaves_s = max(self.presence.leaves(client, self.origin_s + begun_s) - self.origin_s, begun_s)
        self._sequence += 1
        self.trips[client] = Trip(self._sequence, begun_s, leaves_s, compute_s)
        self._transfer(client, begun_s, 0.0, download, self.origin_s + begun_s, upload=False)

    def correct(self, computed_s: Mapping[int, float]) -> None:
        """Replace the seconds of computing of clients that have not uploaded yet."""
        for client in computed_s.keys() & self._interrupted.keys():
            self.trips[client].compute_s = computed_s[client]
        changed = {client for client, seconds in computed_s.items() if self.trips[client].compute_s != seconds}
        if changed:
            self._heap = [happening for happening in self._heap if happening.client not in changed]
            heapq.heapify(self._heap)
        for client in sorted(changed):
            self.trips[client].compute_s = computed_s[client]
            self._compute(client)

    def upload(self, client: int, upload: Transfer) -> None:
        """Let a client that has computed upload its reply."""
        passed_s = self._computed_s(client)
        self._transfer(client, self.now_s, passed_s, upload, self.origin_s + self.now_s, upload=True)

    @property
    def next(self) -> Happening:
        """The next event that concerns the server; the time stays."""
        while self._heap[0].event is Event.RETURNED:
            time_s, _, _, client = heapq.heappop(self._heap)
            bits, own_s, upload, returns_s = self._interrupted.pop(client)
            passed_s = time_s - self.trips[client].begun_s
            self._transfer(client, time_s, passed_s, Transfer(bits, own_s), returns_s, upload=upload)
        return self._heap[0]

    def pop(self) -> tuple[Happening, Trip]:
        """The next event, with the way of its client; the time moves to it.

        A client that has arrived or left is no longer under way.
        """
        happening = self.next
        heapq.heappop(self._heap)
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
        self._interrupted.pop(client, None)
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
            "interrupted": [[client, *rest] for client, rest in self._interrupted.items()],
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
        self._interrupted = {
            int(client): Interrupted(float(bits), float(own_s), bool(upload), float(returns_s))
            for client, bits, own_s, upload, returns_s in rows["interrupted"]
        }

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

    def _transfer(
        self, client: int, begun_s: float, passed_s: float, transfer: Transfer, run_s: float, *, upload: bool
    ) -> None:
        """Let a transfer begin, or go on, `passed_s` seconds after the begin of its client's way.

        This is at `begun_s`, and at `run_s` on the run's clock. A client that leaves and resumes goes on with the rest
        when it is back.
        """
        trip, leaves_s, resumes = self.trips[client], math.inf, self.presence is not None and self.presence.resumes
        if self.presence is not None and resumes:
            leaves_s = self.presence.leaves(client, run_s)
        link = self._up if upload else self._down
        seconds, rest = link.seconds(begun_s, transfer, max(leaves_s - self.origin_s, begun_s))
        if self.presence is not None and rest is not None:
            returns_s = self.presence.next_available(client, leaves_s)
            self._interrupted[client] = Interrupted(*rest, upload, returns_s)
            back = Happening(returns_s - self.origin_s, trip.sequence, Event.RETURNED, client)
            heapq.heappush(self._heap, back)
        elif upload:
            self._push(client, passed_s + seconds, Event.ARRIVED)
        else:
            trip.download_s = passed_s + seconds
            self._compute(client)

    def _compute(self, client: int) -> None:
        """Plan the end of a client's computing, after its download."""
        self._push(client, self._computed_s(client), Event.COMPUTED)

    def _computed_s(self, client: int) -> float:
        """Seconds from the begin of a client's way to the end of its computing."""
        trip, presence = self.trips[client], self.presence
        if presence is None or not presence.resumes:
            return trip.download_s + trip.compute_s
        begun_s = self.origin_s + trip.begun_s + trip.download_s
        time_s, absent_s = begun_s, 0.0
        while (leaves_s := presence.leaves(client, time_s)) < begun_s + absent_s + trip.compute_s:
            time_s = presence.next_available(client, leaves_s)
            absent_s += time_s - leaves_s
        return trip.download_s + trip.compute_s + absent_s

    def _push(self, client: int, passed_s: float, event: Event) -> None:
        """Plan an event of a client `passed_s` seconds after its begin, or its leaving if that is earlier."""
        trip = self.trips[client]
        time_s = trip.begun_s + passed_s
        if time_s > trip.leaves_s:
            time_s, event = trip.leaves_s, Event.LEFT
        heapq.heappush(self._heap, Happening(time_s, trip.sequence, event, client))
