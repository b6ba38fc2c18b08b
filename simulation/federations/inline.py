"""Inline federation: clients that answer in this process, one after the other."""

from collections.abc import Collection, Sequence

from flwr.common import ndarrays_to_parameters

from clients.client import SelectionClient
from fedsel_app.messages import read_evaluate_instruction
from fedsel_app.models.flat_model import FlatModel
from simulation.experiments.configuration import AppConfig
from simulation.wiring.client import own_client
from strategies.round.federation import ALL, Answer, Answers, Message, NodeError, Reply, Until


class Inline:
    """Federation of the K clients of a run, each built anew for every message, as in any engine."""

    simulated = True

    def __init__(self, config: AppConfig) -> None:
        self._config = config
        self._loaded: FlatModel | None = None

    def nodes(self) -> Collection[str]:
        """Ids of the nodes, which are the clients' own."""
        return list(map(str, range(self._config.run.clients)))

    def ask(self, messages: Sequence[Message], until: Until = ALL) -> Answers:
        """Let the clients answer one after the other; what one raises is its answer."""
        self._loaded = None
        return {message.node: self._answer(message) for message in messages}

    def _answer(self, message: Message) -> Answer:
        try:
            return self._answered(own_client(self._config, int(message.node), simulated=True), message)
        except Exception as error:  # noqa: BLE001 - whatever one client's message raises is that client's failure
            return NodeError(message.node, str(error))

    def _answered(self, client: SelectionClient, message: Message) -> Reply:
        """The client's own answer. A model to evaluate is loaded once for all."""
        config, arrays = message.instruction.to_config(), list(message.model.arrays)
        if message.instruction.message_type == "query":
            return Reply(client.get_properties(config))
        if message.instruction.message_type == "train":
            sent, examples, metrics = client.fit(arrays, config)
            return Reply(metrics, ndarrays_to_parameters(sent).tensors, examples)
        if self._loaded is None:
            self._loaded = client.load(arrays)
        loss, examples, metrics = client.evaluation(self._loaded, read_evaluate_instruction(config))
        return Reply(metrics, (), examples, loss)
