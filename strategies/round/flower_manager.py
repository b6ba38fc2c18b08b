"""Flower's legacy server as a federation: clients of its client manager, and rounds in two halves.

Flower's legacy server calls `configure_fit` and `aggregate_fit`. Between the two it calls each client's proxy in a
thread of its own.
"""

import time
from collections.abc import Sequence, Set
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from flwr.common import Code, EvaluateIns, EvaluateRes, FitIns, FitRes, GetPropertiesIns, GetPropertiesRes, Parameters
from flwr.server.client_manager import ClientManager
from flwr.server.client_proxy import ClientProxy

from strategies.round.federation import ALL, Answer, Answers, Message, NodeError, Reply, SentModel, Until

Result = GetPropertiesRes | FitRes | EvaluateRes


class FlowerManager:
    """Federation of the clients of Flower's legacy client manager."""

    simulated = False

    def __init__(self, manager: ClientManager) -> None:
        self._manager = manager

    def nodes(self) -> Set[str]:
        """Ids of the nodes that are connected now."""
        self._manager.num_available()
        return frozenset(self._manager.all())

    def ask(self, messages: Sequence[Message], until: Until = ALL) -> Answers:
        """Call the proxies of the nodes, each in a thread, with the deadline as their timeout."""
        begun_s, proxies = time.monotonic(), self._manager.all()

        def call(message: Message) -> Answer:
            try:
                result = _called(proxies[message.node], message, until.deadline_s or None)
            except Exception as error:  # noqa: BLE001 - it is the node's answer
                return NodeError(message.node, str(error))
            return answer_of(message.node, result, time.monotonic() - begun_s)

        with ThreadPoolExecutor(max(len(messages), 1)) as threads:
            return dict(zip([message.node for message in messages], threads.map(call, messages), strict=True))


def _called(proxy: ClientProxy, message: Message, timeout_s: float | None) -> Result:
    """A proxy's result of a message."""
    config, model = message.instruction.to_config(), as_parameters(message.model)
    group = getattr(message.instruction, "server_round", None)  # as Flower's own server says it to mods
    if message.instruction.message_type == "query":
        return proxy.get_properties(GetPropertiesIns(config), timeout_s, None)
    if message.instruction.message_type == "train":
        return proxy.fit(FitIns(model, config), timeout_s, group)
    return proxy.evaluate(EvaluateIns(model, config), timeout_s, group)


def answer_of(node: str, result: Result, arrived_s: float) -> Answer:
    """Flower's legacy result as an answer, an error if its status is not OK."""
    if result.status.code != Code.OK:
        return NodeError(node, result.status.message or f"status {result.status.code.name}")
    if isinstance(result, GetPropertiesRes):
        return Reply(result.properties, arrived_s=arrived_s)
    if isinstance(result, FitRes):
        return Reply(result.metrics, result.parameters.tensors, result.num_examples, arrived_s=arrived_s)
    return Reply(result.metrics, (), result.num_examples, result.loss, arrived_s)


def as_parameters(model: SentModel) -> Parameters:
    """The model in the form of Flower's legacy messages."""
    return Parameters(model.tensors, "numpy.ndarray")


class TimedClient(ClientProxy):
    """Proxy of a client whose training is timed from now on, and ends at a deadline."""

    def __init__(self, proxy: ClientProxy, deadline_s: float) -> None:
        super().__init__(proxy.cid)
        self._proxy, self._deadline_s, self._begun_s, self.arrived_s = proxy, deadline_s, time.monotonic(), 0.0

    def fit(self, ins: FitIns, timeout: float | None, group_id: int | None) -> FitRes:
        """The client's result. Raises NodeError without one."""
        try:
            return self._proxy.fit(ins, self._deadline_s or timeout, group_id)
        except Exception as error:
            raise NodeError(self.cid, str(error)) from error
        finally:
            self.arrived_s = time.monotonic() - self._begun_s

    def get_properties(self, ins: Any, timeout: float | None, group_id: int | None) -> Any:
        """Raise NotImplementedError: Flower's server does not call it on these proxies."""
        raise NotImplementedError

    evaluate = get_parameters = reconnect = get_properties


def instructed(manager: ClientManager, messages: Sequence[Message], until: Until) -> list[tuple[ClientProxy, FitIns]]:
    """Messages in the form of `configure_fit`."""
    proxies = manager.all()
    return [
        (
            TimedClient(proxies[message.node], until.deadline_s),
            FitIns(as_parameters(message.model), message.instruction.to_config()),
        )
        for message in messages
    ]
