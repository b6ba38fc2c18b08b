"""Which of a round's replies count, and in deployment nobody waits for the others.

Deadline and over-selection as in K. Bonawitz et al., "Towards Federated Learning at Scale: System Design", MLSys 2019,
Sec. 2.2: more clients are told to train than are wanted, and the round ends with the first of them, or at its deadline.
"""

import math
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from typing import TypeVar

import numpy as np
from flwr.common import (
    DisconnectRes,
    EvaluateIns,
    EvaluateRes,
    FitIns,
    FitRes,
    GetParametersIns,
    GetParametersRes,
    GetPropertiesIns,
    GetPropertiesRes,
    ReconnectIns,
)
from flwr.server.client_proxy import ClientProxy

from fedsel_app.config import ReplyConfig, SharedSettings
from fedsel_app.seeds import Purpose, stream
from strategies.roster import Floats, Ints
from strategies.round.replies import Replies

R = TypeVar("R")


def over_selected_count(wanted: int, over_selection: float, available: int) -> int:
    """How many train so that `wanted` come back: ceil(wanted (1 + over-selection)), as far as there are so many."""
    return min(math.ceil(round(wanted * (1.0 + over_selection), 9)), available)


def simulated_dropouts(selected: Ints, server_round: int, settings: SharedSettings) -> set[int]:
    """Whose replies a simulation loses in this round, each with the probability `client-failure-rate`."""
    seed, rate = settings.run.seed, settings.replies.client_failure_rate
    draws = (stream(seed, Purpose.DROPOUT, server_round, client).random() for client in selected.tolist())
    return {client for client, draw in zip(selected.tolist(), draws, strict=True) if draw < rate}


def accept_replies(replies: Replies, finish_s: Floats, wanted: int, limits: ReplyConfig) -> Replies:
    """The first `wanted` of the replies that made the deadline; none of them where they are fewer than `min-returned`.

    Parameters
    ----------
    finish_s : float64 (r,)
        Seconds after which each came; of equally fast ones the lower id goes first.
    """
    deadline_s = limits.round_deadline_s
    punctual = finish_s <= (deadline_s or math.inf)
    order = np.lexsort((replies.clients, finish_s))
    first = order[punctual[order]][:wanted]
    kept = np.sort(replies.clients[first]) if first.size >= limits.min_returned else replies.clients[:0]
    late: list[dict[str, int | str]] = [
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
    """A client's reply that nobody waits for any more."""


class ReplyDeadline:
    """The real time that each fit of a cohort takes; it ends with the first `wanted` replies, or at the deadline.

    Attributes
    ----------
    arrived_s : seconds after the start of the race, by partition id
    """

    def __init__(self, wanted: int, deadline_s: float) -> None:
        self.arrived_s: dict[int, float] = {}
        self._wanted = wanted
        self._deadline_s = deadline_s or None
        self._started_s = time.monotonic()
        self._news = threading.Condition()

    def enter(self, proxy: ClientProxy, client: int) -> ClientProxy:
        """A proxy of `client` that takes part with its fits."""
        return TimedClientProxy(proxy, client, self)

    def arrivals(self, clients: Ints) -> Floats:
        """When these clients' replies came, float64 (r,); 0 for who took no part."""
        return np.array([self.arrived_s.get(client, 0.0) for client in clients.tolist()])

    def run(self, client: int, call: Callable[[float | None], R]) -> R:
        """The answer of `call`, which is told how many seconds it has. Raises TooLate when the race ends before it."""
        answers: list[R | BaseException] = []
        left_s = None if self._deadline_s is None else self._deadline_s - (time.monotonic() - self._started_s)

        def attempt() -> None:
            try:
                answer: R | BaseException = call(left_s)
            except BaseException as error:  # noqa: BLE001 - it is raised where the answer is awaited
                answer = error
            with self._news:
                answers.append(answer)
                if not isinstance(answer, BaseException):
                    self.arrived_s[client] = time.monotonic() - self._started_s
                self._news.notify_all()

        # A daemon: Flower's call cannot be ended, and the process does not wait for it.
        threading.Thread(target=attempt, daemon=True).start()
        with self._news:
            self._news.wait_for(lambda: answers or len(self.arrived_s) >= self._wanted, left_s)
            if not answers:
                self.arrived_s.pop(client, None)
                over = len(self.arrived_s) >= self._wanted
                raise TooLate("others were faster" if over else f"no reply within {self._deadline_s:g} s")
        if isinstance(answers[0], BaseException):
            raise answers[0]
        return answers[0]


class TimedClientProxy(ClientProxy):
    """A proxy whose fits are timed; everything else it passes on."""

    def __init__(self, proxy: ClientProxy, client: int, deadline: ReplyDeadline) -> None:
        super().__init__(proxy.cid)
        self._proxy, self._client, self._deadline = proxy, client, deadline

    def fit(self, ins: FitIns, timeout: float | None, group_id: int | None) -> FitRes:
        """The reply to a timed training."""
        return self._deadline.run(self._client, lambda left_s: self._proxy.fit(ins, left_s or timeout, group_id))

    def evaluate(self, ins: EvaluateIns, timeout: float | None, group_id: int | None) -> EvaluateRes:
        """Passed on."""
        return self._proxy.evaluate(ins, timeout, group_id)

    def get_properties(self, ins: GetPropertiesIns, timeout: float | None, group_id: int | None) -> GetPropertiesRes:
        """Passed on."""
        return self._proxy.get_properties(ins, timeout, group_id)

    def get_parameters(self, ins: GetParametersIns, timeout: float | None, group_id: int | None) -> GetParametersRes:
        """Passed on."""
        return self._proxy.get_parameters(ins, timeout, group_id)

    def reconnect(self, ins: ReconnectIns, timeout: float | None, group_id: int | None) -> DisconnectRes:
        """Passed on."""
        return self._proxy.reconnect(ins, timeout, group_id)
