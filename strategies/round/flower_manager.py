"""Flower's legacy server as a federation: clients behind its client manager, and rounds in its two halves.

Flower's legacy server calls `configure_fit` and `aggregate_fit`, and between the two every client's proxy in a thread
of its own. `flower_instructions` gives it proxies that ask all clients at once, as every other federation does.
"""

import math
import queue
import threading
from collections.abc import Callable, Sequence, Set

from flwr.common import (
    Code,
    DisconnectRes,
    EvaluateIns,
    EvaluateRes,
    FitIns,
    FitRes,
    GetParametersIns,
    GetParametersRes,
    GetPropertiesIns,
    GetPropertiesRes,
    Parameters,
    ReconnectIns,
    Status,
)
from flwr.server.client_manager import ClientManager
from flwr.server.client_proxy import ClientProxy

from fedsel_app.messages.instructions import Instruction
from fedsel_app.messages.scalars import Config
from fedsel_app.network.reply_timeout import ReplyTimeout
from strategies.round.federation import ALL, Answers, Federation, Message, NodeError, Reply, SentModel, Until, Wait

OK = Status(Code.OK, "")
MAX_THREADS = 128


class FlowerManager:
    """Federation of the clients that Flower's legacy client manager has.

    Parameters
    ----------
    timeouts : times within which clients answer; None: any
    """

    simulated = False

    def __init__(self, manager: ClientManager, timeouts: ReplyTimeout | None = None) -> None:
        self._manager, self._timeouts = manager, timeouts

    def nodes(self) -> Set[str]:
        """Ids of the nodes that are connected now."""
        self._manager.num_available()
        return frozenset(self._manager.all())

    def ask(self, messages: Sequence[Message], until: Until = ALL) -> Answers:
        """Call the proxies of all nodes, each in a thread; what a proxy raises is its node's answer."""
        if not messages:
            return {}
        proxies, kind = self._manager.all(), messages[0].instruction.message_type
        waves = -(-len(messages) // MAX_THREADS)
        timeout_s = math.inf if self._timeouts is None else waves * self._timeouts.longest_wait_s(kind)
        wait = Wait((message.node for message in messages), until, timeout_s)
        changed = threading.Condition()
        unsent = queue.SimpleQueue[Message]()
        for message in messages:
            unsent.put(message)

        def call_each() -> None:
            while wait.left_s:
                try:
                    message = unsent.get_nowait()
                except queue.Empty:
                    return
                try:
                    answer: Reply | Exception = self._call(proxies[message.node], message, wait)
                except Exception as error:  # noqa: BLE001 - it is the node's answer
                    answer = NodeError(message.node, str(error))
                with changed:
                    wait.add(message.node, answer)
                    changed.notify_all()

        # Daemons: Flower's call cannot be ended, and the process does not wait for it.
        for _ in range(min(len(messages), MAX_THREADS)):
            threading.Thread(target=call_each, daemon=True).start()
        with changed:
            while left_s := wait.left_s:
                changed.wait(min(left_s, threading.TIMEOUT_MAX))
            answers = wait.result()
        if self._timeouts is not None:
            for answer in answers.values():
                if isinstance(answer, Reply):
                    self._timeouts.learn(kind, answer.arrived_s)
        return answers

    def _call(self, proxy: ClientProxy, message: Message, wait: Wait) -> Reply:
        """A proxy's reply to a message. Raises what the proxy raises, and as `reply` does."""
        config, model = self.config(message.instruction), as_parameters(message.model)
        timeout_s = wait.left_s if math.isfinite(wait.left_s) else None
        result: GetPropertiesRes | FitRes | EvaluateRes
        if message.instruction.message_type == "query":
            result = proxy.get_properties(GetPropertiesIns(config), timeout=timeout_s, group_id=None)
        elif message.instruction.message_type == "train":
            result = proxy.fit(FitIns(model, config), timeout=timeout_s, group_id=None)
        else:
            result = proxy.evaluate(EvaluateIns(model, config), timeout=timeout_s, group_id=None)
        return self.reply(result, wait.elapsed_s)

    def config(self, instruction: Instruction) -> Config:
        """Config of a message with this instruction."""
        return instruction.to_config()

    def reply(self, result: GetPropertiesRes | FitRes | EvaluateRes, arrived_s: float) -> Reply:
        """The reply in a result of Flower's. Raises RuntimeError where its status is not OK."""
        if result.status.code != Code.OK:
            raise RuntimeError(result.status.message or f"status {result.status.code.name}")
        return reply_of(result, arrived_s)


def reply_of(result: GetPropertiesRes | FitRes | EvaluateRes, arrived_s: float = 0.0) -> Reply:
    """Flower's legacy result as a reply."""
    if isinstance(result, GetPropertiesRes):
        return Reply(result.properties, arrived_s=arrived_s)
    if isinstance(result, FitRes):
        return Reply(result.metrics, result.parameters.tensors, result.num_examples, arrived_s=arrived_s)
    return Reply(result.metrics, (), result.num_examples, result.loss, arrived_s)


def as_parameters(model: SentModel) -> Parameters:
    """The model as Flower's legacy messages have it."""
    return Parameters(model.tensors, "numpy.ndarray")


class AskedClient(ClientProxy):
    """Client of a question that Flower's legacy server asks of many clients, each by its own proxy.

    Parameters
    ----------
    answers : asks all of them, once, and returns their answers
    """

    def __init__(self, node: str, answers: Callable[[], Answers]) -> None:
        super().__init__(node)
        self._answers = answers
        self.arrived_s = 0.0

    def _reply(self) -> Reply:
        answer = self._answers()[self.cid]
        if isinstance(answer, Exception):
            raise answer
        self.arrived_s = answer.arrived_s
        return answer

    def fit(self, ins: FitIns, timeout: float | None, group_id: int | None) -> FitRes:
        """The client's reply to its train message; raises NodeError where there is none."""
        reply = self._reply()
        return FitRes(OK, Parameters(list(reply.tensors), "numpy.ndarray"), reply.examples, dict(reply.metrics))

    def evaluate(self, ins: EvaluateIns, timeout: float | None, group_id: int | None) -> EvaluateRes:
        """The client's reply to its evaluate message; raises NodeError where there is none."""
        reply = self._reply()
        return EvaluateRes(OK, reply.loss, reply.examples, dict(reply.metrics))

    def get_properties(self, ins: GetPropertiesIns, timeout: float | None, group_id: int | None) -> GetPropertiesRes:
        """Raise NotImplementedError: Flower's server asks for no properties."""
        raise NotImplementedError

    def get_parameters(self, ins: GetParametersIns, timeout: float | None, group_id: int | None) -> GetParametersRes:
        """Raise NotImplementedError: the server starts from its own model."""
        raise NotImplementedError

    def reconnect(self, ins: ReconnectIns, timeout: float | None, group_id: int | None) -> DisconnectRes:
        """Raise NotImplementedError: the server ends without a word to its clients."""
        raise NotImplementedError


def asked_clients(federation: Federation, messages: Sequence[Message], until: Until = ALL) -> list[AskedClient]:
    """Proxies of the messages' clients for Flower's legacy server, whose first call asks all of them."""
    lock = threading.Lock()
    answers: list[Answers] = []

    def ask_once() -> Answers:
        with lock:
            if not answers:
                answers.append(federation.ask(messages, until))
        return answers[0]

    return [AskedClient(message.node, ask_once) for message in messages]


def fit_instructions(
    federation: Federation, messages: Sequence[Message], until: Until
) -> list[tuple[ClientProxy, FitIns]]:
    """Train messages as `configure_fit` returns them."""
    return [
        (client, FitIns(as_parameters(message.model), message.instruction.to_config()))
        for client, message in zip(asked_clients(federation, messages, until), messages, strict=True)
    ]


def evaluate_instructions(federation: Federation, messages: Sequence[Message]) -> list[tuple[ClientProxy, EvaluateIns]]:
    """Evaluate messages as `configure_evaluate` returns them."""
    return [
        (client, EvaluateIns(as_parameters(message.model), message.instruction.to_config()))
        for client, message in zip(asked_clients(federation, messages), messages, strict=True)
    ]


def replies_of(results: Sequence[tuple[ClientProxy, FitRes | EvaluateRes]]) -> list[tuple[str, Reply]]:
    """Node and reply of each result of Flower's legacy server."""
    return [
        (proxy.cid, reply_of(result, proxy.arrived_s if isinstance(proxy, AskedClient) else 0.0))
        for proxy, result in results
    ]
