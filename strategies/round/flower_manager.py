"""Flower's legacy server as a federation: clients of its client manager, and rounds in two halves.

Flower's legacy server calls `configure_fit` and `aggregate_fit`. Between the two it calls each client's proxy in a
thread of its own. `instructed` gives it proxies that ask all clients at once, as every other federation does.
"""

import math
import threading
from collections.abc import Callable, Sequence, Set
from concurrent.futures import Future
from typing import Any

from flwr.common import (
    Code,
    EvaluateIns,
    EvaluateRes,
    FitIns,
    FitRes,
    GetPropertiesIns,
    GetPropertiesRes,
    Parameters,
    Status,
)
from flwr.server.client_manager import ClientManager
from flwr.server.client_proxy import ClientProxy

from fedsel_app.network.reply_timeout import ReplyTimeout
from strategies.round.federation import ALL, Answers, Federation, Message, NodeError, Reply, SentModel, Until, Wait

OK = Status(Code.OK, "")


class FlowerManager:
    """Federation of the clients of Flower's legacy client manager.

    Parameters
    ----------
    timeouts : timeouts of the clients' answers; None: no timeout
    """

    simulated = False

    def __init__(self, manager: ClientManager, timeouts: ReplyTimeout | None = None) -> None:
        self._manager, self._timeouts = manager, timeouts

    def nodes(self) -> Set[str]:
        """Ids of the nodes that are connected now."""
        self._manager.num_available()
        return frozenset(self._manager.all())

    def ask(self, messages: Sequence[Message], until: Until = ALL) -> Answers:
        """Call the proxies of all nodes, each in a thread. An exception of a proxy is the answer of its node."""
        if not messages:
            return {}
        proxies, changed = self._manager.all(), threading.Condition()
        wait = Wait(messages, until, self._timeouts)

        def call(message: Message) -> None:
            try:
                answer: Reply | NodeError = self._call(proxies[message.node], message, wait)
            except Exception as error:  # noqa: BLE001 - it is the node's answer
                answer = NodeError(message.node, str(error))
            with changed:
                wait.add(message.node, answer)
                changed.notify_all()

        # Daemon threads: a call of Flower's cannot be cancelled, and the process must not wait for it.
        for message in messages:
            threading.Thread(target=call, args=(message,), daemon=True).start()
        with changed:
            while left_s := wait.left_s:
                changed.wait(min(left_s, threading.TIMEOUT_MAX))
            return wait.result()

    def _call(self, proxy: ClientProxy, message: Message, wait: Wait) -> Reply:
        """A proxy's reply to a message. Raises the proxy's exceptions, and RuntimeError if its status is not OK."""
        config, model = message.instruction.to_config(), as_parameters(message.model)
        timeout_s = wait.left_s if math.isfinite(wait.left_s) else None
        group = getattr(message.instruction, "server_round", None)  # as Flower's own server says it to mods
        result: GetPropertiesRes | FitRes | EvaluateRes
        if message.instruction.message_type == "query":
            result = proxy.get_properties(GetPropertiesIns(config), timeout_s, None)
        elif message.instruction.message_type == "train":
            result = proxy.fit(FitIns(model, config), timeout_s, group)
        else:
            result = proxy.evaluate(EvaluateIns(model, config), timeout_s, group)
        if result.status.code != Code.OK:
            raise RuntimeError(result.status.message or f"status {result.status.code.name}")
        return reply_of(result, wait.elapsed_s)


def reply_of(result: GetPropertiesRes | FitRes | EvaluateRes, arrived_s: float = 0.0) -> Reply:
    """Flower's legacy result as a reply."""
    if isinstance(result, GetPropertiesRes):
        return Reply(result.properties, arrived_s=arrived_s)
    if isinstance(result, FitRes):
        return Reply(result.metrics, result.parameters.tensors, result.num_examples, arrived_s=arrived_s)
    return Reply(result.metrics, (), result.num_examples, result.loss, arrived_s)


def as_parameters(model: SentModel) -> Parameters:
    """The model in the form of Flower's legacy messages."""
    return Parameters(model.tensors, "numpy.ndarray")


class AskedClient(ClientProxy):
    """Proxy of one client; all proxies of a question ask their clients together.

    Parameters
    ----------
    answers : asks all clients on its first call, and returns their answers
    """

    def __init__(self, node: str, answers: Callable[[], Answers]) -> None:
        super().__init__(node)
        self._answers, self.arrived_s = answers, 0.0

    def fit(self, ins: FitIns, timeout: float | None, group_id: int | None) -> FitRes:
        """The client's reply to its train message. Raises NodeError without a reply."""
        answer = self._answers()[self.cid]
        if isinstance(answer, NodeError):
            raise answer
        self.arrived_s = answer.arrived_s
        return FitRes(OK, Parameters(list(answer.tensors), "numpy.ndarray"), answer.examples, dict(answer.metrics))

    def get_properties(self, ins: Any, timeout: float | None, group_id: int | None) -> Any:
        """Raise NotImplementedError: Flower's server does not call it on these proxies."""
        raise NotImplementedError

    evaluate = get_parameters = reconnect = get_properties


def instructed(federation: Federation, messages: Sequence[Message], until: Until) -> list[tuple[ClientProxy, FitIns]]:
    """Messages in the form of `configure_fit`. The first proxy that is called asks all clients."""
    lock, asked = threading.Lock(), Future[Answers]()

    def ask_once() -> Answers:
        with lock:
            if not asked.done():
                try:
                    asked.set_result(federation.ask(messages, until))
                except Exception as error:  # noqa: BLE001 - each proxy raises it
                    asked.set_exception(error)
        return asked.result()

    return [
        (AskedClient(message.node, ask_once), FitIns(as_parameters(message.model), message.instruction.to_config()))
        for message in messages
    ]


def replies_of(results: Sequence[tuple[ClientProxy, FitRes]]) -> list[tuple[str, Reply]]:
    """Node and reply of each result of Flower's legacy server."""
    return [
        (proxy.cid, reply_of(result, proxy.arrived_s if isinstance(proxy, AskedClient) else 0.0))
        for proxy, result in results
    ]
