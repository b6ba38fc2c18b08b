"""Flower's legacy API for a user's ServerApp: its server calls the methods of the `Strategy` interface."""

import math
from collections.abc import Sequence, Set
from typing import Any, cast

from flwr.app import Message as FlowerMessage
from flwr.app import RecordDict
from flwr.common import EvaluateIns, EvaluateRes, FitIns, FitRes, Parameters, Scalar
from flwr.server.client_manager import ClientManager
from flwr.server.client_proxy import ClientProxy
from flwr.server.strategy import Strategy

from fedsel_app.config import ConfigError
from fedsel_app.messages.records import ERROR, FEDSEL, config_record, fedsel_config
from fedsel_app.messages.scalars import Config
from fedsel_app.network.reply_timeout import ReplyTimeout
from simulation.apps.client.messages import (
    ENROL,
    EVALUATION_PREFIX,
    AppTrainInstruction,
    embed,
)
from simulation.apps.server.app_run import AppRun
from simulation.apps.server.flowers_words import ALONE
from simulation.apps.server.settings import MESSAGE, AppOptions, round_config
from simulation.apps.server.transports import RAISED, UserTransport
from strategies.method import most_rounds
from strategies.round.federation import ALL, Answers, Message, NodeError, Reply, Until, Wait
from strategies.round.flower_manager import FlowerManager, as_parameters

ClientFailures = list[tuple[ClientProxy, FitRes] | BaseException]


class UserManager(FlowerManager, UserTransport):
    """Federation of a user's `client_fn` clients, behind Flower's legacy client manager."""

    loss_key, examples_key = "", "num_examples"  # of Flower's own results

    def __init__(self, manager: ClientManager, timeouts: ReplyTimeout, options: AppOptions) -> None:
        super().__init__(manager, timeouts)
        self._configs = {"train": round_config(options.fit_config), "evaluate": round_config(options.evaluate_config)}
        self.unchanged: Set[str] = frozenset()

    @property
    def flower_grid(self) -> Any:
        """Flower's grid behind the proxies; None without any."""
        return next((getattr(proxy, "grid", None) for proxy in self._manager.all().values()), None)

    def users_config(self, message_type: str, server_round: int) -> Config:
        """The user's config of the round; empty for an enrolment."""
        return dict(self._configs[message_type](server_round)) if message_type in self._configs else {}

    def ask(self, messages: Sequence[Message], until: Until = ALL) -> Answers:
        """Call the user's functions of the round here, where their errors end the run, and not in a client's thread."""
        for message in messages:
            self.config(message)
        return super().ask(messages, until)

    def config(self, message: Message) -> Config:
        """The user's config of the round; if the client has fedsel's line, also the instruction, with the prefix."""
        instruction = message.instruction
        users = self.users_config(instruction.message_type, number := getattr(instruction, "server_round", 0))
        if message.node in self.unchanged:
            return users
        if isinstance(instruction, AppTrainInstruction) and instruction.measures_loss:
            users = embed(self.users_config("evaluate", number), users, EVALUATION_PREFIX)
        return embed(instruction.to_config(), users)

    def _call(self, proxy: ClientProxy, message: Message, wait: Wait) -> Reply:
        """A client's reply. Enrolment goes past the proxy, because an unchanged client's own functions are not called.

        An unchanged client gives an empty reply, also if its client_fn or a mod of its own cannot take this message.
        Raises the errors of the client.
        """
        if message.instruction.message_type != "query":
            return super()._call(proxy, message, wait)
        ttl_s = wait.left_s if math.isfinite(wait.left_s) else None
        content = RecordDict({FEDSEL: config_record(message.instruction.to_config())})
        enrol = FlowerMessage(content, dst_node_id=int(message.node), message_type=ENROL, group_id="0", ttl=ttl_s)
        replies = list(proxy.grid.send_and_receive([enrol]))  # type: ignore[attr-defined]
        if not replies:
            raise NodeError(message.node, "it did not answer")
        [reply] = replies
        if reply.has_error():
            if reply.error.code in RAISED:
                return Reply()
            raise NodeError(message.node, reply.error.reason)
        numbers = fedsel_config(reply.content) or {}
        if ERROR in numbers:
            raise NodeError(message.node, str(numbers[ERROR]))
        return Reply(embed(numbers, {}), arrived_s=wait.elapsed_s)


class LegacyApi(AppRun, Strategy):
    """The methods that Flower's legacy server calls, in this order."""

    def initialize_parameters(self, client_manager: ClientManager) -> Parameters:
        """The initial model, or the model of the checkpoint."""
        if not hasattr(self, "_inner"):
            raise ConfigError("Flower's legacy server needs the initial model: strategy(..., parameters=arrays).")
        self._options.refuse_changed(
            MESSAGE,
            "Leave {!r} out of strategy(...): with Flower's legacy server, it has 'parameters', 'evaluate_fn', "
            "'fit_config' and 'evaluate_config'.",
        )
        self._returned = as_parameters(self._users_model())
        return self._returned

    def configure_fit(
        self, server_round: int, parameters: Parameters, client_manager: ClientManager
    ) -> list[tuple[ClientProxy, FitIns]]:
        """Select the round's cohort. Raises ConfigError if the clients cannot do what the method needs."""
        self._refuse_changed(parameters)
        self._refuse_overrun(server_round)
        self._clients.carrier = UserManager(client_manager, self._timeouts, self._options)
        self._inner.federation = lambda client_manager: self._clients  # type: ignore[method-assign]
        return cast(
            list[tuple[ClientProxy, FitIns]],
            self._limited(lambda: self._inner.configure_fit(server_round, parameters, client_manager)),
        )

    def aggregate_fit(
        self, server_round: int, results: list[tuple[ClientProxy, FitRes]], failures: ClientFailures
    ) -> tuple[Parameters | None, dict[str, Scalar]]:
        """Aggregate the replies of the round."""
        if len({id(reply.parameters) for _, reply in results}) < len(results):
            raise ConfigError(ALONE)  # the parameters of SecAgg+: the sum, for each client
        for failure in failures:
            if isinstance(failure, Exception) and not isinstance(failure, NodeError):  # of the server, such as its disk
                self._recorder.close()
                raise failure
        flat, metrics = self._limited(lambda: self._inner.aggregate_fit(server_round, results, failures))
        if flat is None:
            return None, metrics
        self._returned = as_parameters(self._users_model())
        return self._returned, metrics

    def evaluate(self, server_round: int, parameters: Parameters) -> tuple[float, dict[str, Scalar]] | None:
        """Evaluate the model with the user's function, before round 1 and every `eval-every` rounds."""
        self._refuse_changed(parameters)
        if not server_round and not self._inner.run.completed:
            return self._test_initial()
        return None if self._inner.evaluate(server_round, parameters) is None else self._tested

    def configure_evaluate(
        self, server_round: int, parameters: Parameters, client_manager: ClientManager
    ) -> list[tuple[ClientProxy, EvaluateIns]]:
        """None: in the legacy API, clients evaluate only where the method needs their losses."""
        return []

    def aggregate_evaluate(
        self, server_round: int, results: list[tuple[ClientProxy, EvaluateRes]], failures: list[Any]
    ) -> tuple[float | None, dict[str, Scalar]]:
        """Nothing."""
        return None, {}

    def _refuse_changed(self, parameters: Parameters) -> None:
        """Raise ConfigError if another strategy has changed the model, such as a wrapper that adds noise."""
        if parameters is not self._returned and parameters.tensors != self._returned.tensors:
            raise ConfigError(ALONE)

    def _refuse_overrun(self, server_round: int) -> None:
        """Raise ConfigError if Flower's server has more rounds than the strategy's setting `rounds`."""
        run = self._inner.run
        over = server_round > most_rounds(self._inner) and not run.completed
        if over and not run.context.evaluation.stop_at_target:
            raise ConfigError(
                f"The {run.context.run.rounds} 'rounds' of the strategy are over, and the ServerConfig's num_rounds "
                "are more: give both the same number. What was trained so far is on record."
            )
