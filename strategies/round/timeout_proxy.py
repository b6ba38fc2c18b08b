"""Reply timeout in deployment: a client that does not answer in time has failed, and nobody waits for it any more."""

import queue
import threading
import time
from collections.abc import Callable
from math import isfinite
from typing import TypeVar

from flwr.common import EvaluateIns, EvaluateRes, FitIns, FitRes
from flwr.server import SimpleClientManager
from flwr.server.client_proxy import ClientProxy

from fedsel_app.network.reply_timeout import ReplyTimeout
from strategies.round.passing_proxy import PassingProxy

R = TypeVar("R")


class NodeError(RuntimeError):
    """Failure of a node: there is no answer, or it is an error.

    Attributes
    ----------
    node : Flower's id of the node
    """

    def __init__(self, node: str, reason: str) -> None:
        super().__init__(reason)
        self.node = node


class TimeoutProxy(PassingProxy):
    """Client proxy whose fits and evaluations end in time, with an answer or a NodeError."""

    def __init__(self, proxy: ClientProxy, timeouts: ReplyTimeout) -> None:
        super().__init__(proxy)
        self._timeouts = timeouts

    def fit(self, ins: FitIns, timeout: float | None, group_id: int | None) -> FitRes:
        """The reply to a fit."""
        return self._in_time("train", lambda: self.proxy.fit(ins, timeout, group_id))

    def evaluate(self, ins: EvaluateIns, timeout: float | None, group_id: int | None) -> EvaluateRes:
        """The reply to an evaluation."""
        return self._in_time("evaluate", lambda: self.proxy.evaluate(ins, timeout, group_id))

    def _in_time(self, kind: str, call: Callable[[], R]) -> R:
        limit_s, began_s = self._timeouts.longest_wait_s(kind), time.monotonic()
        answers = queue.SimpleQueue[R | Exception]()

        def attempt() -> None:
            try:
                answers.put(call())
            except Exception as error:  # noqa: BLE001 - it is raised where the answer is awaited
                answers.put(error)

        # A daemon: Flower's call cannot be ended, and the process does not wait for it.
        threading.Thread(target=attempt, daemon=True).start()
        try:
            answer = answers.get(timeout=limit_s if isfinite(limit_s) else None)
        except queue.Empty:
            raise NodeError(self.cid, f"no answer within {limit_s:.0f} s (see 'reply-timeout-s')") from None
        if isinstance(answer, Exception):
            raise NodeError(self.cid, str(answer)) from answer
        self._timeouts.learn(kind, time.monotonic() - began_s)
        return answer


class TimeoutClientManager(SimpleClientManager):
    """Flower's client manager, whose clients answer in time or have failed."""

    def __init__(self, timeouts: ReplyTimeout) -> None:
        super().__init__()
        self._timeouts = timeouts

    def register(self, client: ClientProxy) -> bool:
        """Add a connected client; False if it was there already."""
        return super().register(TimeoutProxy(client, self._timeouts))
