"""Straggler handling: deadline and over-selection (Bonawitz et al. 2019, Sec. 2.2).

K. Bonawitz et al., "Towards Federated Learning at Scale: System Design", MLSys 2019: more clients train than are
wanted, and the round ends with the first replies that are as many as wanted, or at its deadline. In deployment the
server does not wait for the other clients.
"""

import math
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from typing import TypeVar

import numpy as np
from flwr.common import FitIns, FitRes
from flwr.server.client_proxy import ClientProxy

from fedsel_app.config import ReplyConfig, SharedSettings
from fedsel_app.records.schema import Failure
from fedsel_app.seeds import Purpose, stream
from strategies.roster import Floats, Ints
from strategies.round.passing_proxy import PassingProxy
from strategies.round.replies import Replies

R = TypeVar("R")


def over_selected_count(wanted: int, over_selection: float, available: int) -> int:
    """Number of clients that train for `wanted` replies: ceil(wanted (1 + over-selection)), at most the `available`."""
    return min(math.ceil(round(wanted * (1.0 + over_selection), 9)), available)


def simulated_dropouts(selected: Ints, server_round: int, settings: SharedSettings) -> set[int]:
    """Clients whose replies a simulation drops in this round, each with probability `client-failure-rate`."""
    seed, rate = settings.run.seed, settings.replies.client_failure_rate
    draws = (stream(seed, Purpose.DROPOUT, server_round, client).random() for client in selected.tolist())
    return {client for client, draw in zip(selected.tolist(), draws, strict=True) if draw < rate}


def accept_replies(replies: Replies, finish_s: Floats, wanted: int, limits: ReplyConfig) -> Replies:
    """Replies to aggregate: the first `wanted` before the deadline; none where they are fewer than `min-returned`.

    Parameters
    ----------
    finish_s : float64 (r,)
        Seconds until each reply arrived; of equally fast ones the lower id goes first.
    """
    deadline_s = limits.round_deadline_s
    punctual = finish_s <= (deadline_s or math.inf)
    order = np.lexsort((replies.clients, finish_s))
    first = order[punctual[order]][:wanted]
    kept = np.sort(replies.clients[first]) if first.size >= limits.min_returned else replies.clients[:0]
    late: list[Failure] = [
        {
            "client": client,
            "reason": f"late: it took {seconds:.1f} s, and the deadline is {deadline_s:g} s",
        }
        for client, seconds in zip(replies.clients[~punctual].tolist(), finish_s[~punctual].tolist(), strict=True)
    ]
    waited_s = 0.0 if kept.size >= wanted else deadline_s or float(finish_s.max(initial=0.0))
    return replace(
        replies.only(kept),
        failures=sorted([*replies.failures, *late], key=lambda failure: failure["client"]),
        unused=np.setdiff1d(replies.clients[punctual], kept),
        waited_s=waited_s,
    )


class TooLate(RuntimeError):
    """A reply did not arrive before the deadline, or before the wanted number of others."""


class ReplyDeadline:
    """Deadline of a deployed round: it ends with the first `wanted` replies, or `deadline_s` after it began.

    Attributes
    ----------
    arrival_s : seconds from the beginning to each reply, by partition id
    """

    def __init__(self, wanted: int, deadline_s: float) -> None:
        self.arrival_s: dict[int, float] = {}
        self._wanted = wanted
        self._deadline_s = deadline_s or None
        self._started_s = time.monotonic()
        self._changed = threading.Condition()

    def timed_proxy(self, proxy: ClientProxy, client: int) -> ClientProxy:
        """A proxy of `client` whose fits are timed and end with the round."""
        return TimedClientProxy(proxy, client, self)

    def arrivals_s(self, clients: Ints) -> Floats:
        """Seconds to the replies of these clients, float64 (r,); 0 where a reply was not timed."""
        return np.array([self.arrival_s.get(client, 0.0) for client in clients.tolist()])

    def await_reply(self, client: int, call: Callable[[float | None], R]) -> R:
        """The reply that `call` returns; its argument is the seconds left. Raises TooLate if the round ends before."""
        replies: list[R | BaseException] = []
        left_s = None if self._deadline_s is None else self._deadline_s - (time.monotonic() - self._started_s)

        def attempt() -> None:
            try:
                reply: R | BaseException = call(left_s)
            except BaseException as error:  # noqa: BLE001 - it is raised where the reply is awaited
                reply = error
            with self._changed:
                replies.append(reply)
                if not isinstance(reply, BaseException):
                    self.arrival_s[client] = time.monotonic() - self._started_s
                self._changed.notify_all()

        # A daemon: Flower's call cannot be ended, and the process does not wait for it.
        threading.Thread(target=attempt, daemon=True).start()
        with self._changed:
            self._changed.wait_for(lambda: replies or len(self.arrival_s) >= self._wanted, left_s)
            if not replies:
                self.arrival_s.pop(client, None)
                others_were_faster = len(self.arrival_s) >= self._wanted
                raise TooLate("others were faster" if others_were_faster else f"no reply within {self._deadline_s:g} s")
        if isinstance(replies[0], BaseException):
            raise replies[0]
        return replies[0]


class TimedClientProxy(PassingProxy):
    """Client proxy whose fits are timed."""

    def __init__(self, proxy: ClientProxy, client: int, deadline: ReplyDeadline) -> None:
        super().__init__(proxy)
        self._client, self._deadline = client, deadline

    def fit(self, ins: FitIns, timeout: float | None, group_id: int | None) -> FitRes:
        """The reply to a timed fit; raises TooLate if the round ends before it arrives."""
        return self._deadline.await_reply(self._client, lambda left_s: self.proxy.fit(ins, left_s or timeout, group_id))
