"""Flower's legacy API for a user's ServerApp: its server calls the methods of the `Strategy` interface."""

import logging
from dataclasses import replace
from operator import itemgetter
from typing import cast

from flwr.common import Code, EvaluateIns, EvaluateRes, FitIns, FitRes, Parameters, Scalar
from flwr.server.client_manager import ClientManager
from flwr.server.client_proxy import ClientProxy
from flwr.server.strategy import Strategy

from fedsel_app.config import ConfigError
from fedsel_app.messages.reported_values import one_line
from fedsel_app.wire.codec import WireError
from simulation.apps.client.messages import refuse_endless, users_keys
from simulation.apps.server.app_run import AppRun
from simulation.apps.server.client_metrics import (
    aggregated_pairs,
    bounded_examples,
    finite_metrics,
    mean_metrics,
    note_left_out,
)
from simulation.apps.server.flowers_words import ALONE, MESSAGE, refuse_other_api
from simulation.apps.server.transports import UserManager
from simulation.apps.server.user_clients import counts
from strategies.method import evaluates, most_rounds
from strategies.round.federation import NodeError
from strategies.round.flower_manager import as_parameters

LOGGER = logging.getLogger("fedsel")
ClientFailures = list[tuple[ClientProxy, FitRes] | BaseException]
TestFailures = list[tuple[ClientProxy, EvaluateRes] | BaseException]


class LegacyApi(AppRun, Strategy):
    """The methods that Flower's legacy server calls, in this order."""

    def initialize_parameters(self, client_manager: ClientManager) -> Parameters:
        """The initial model, or the model of the checkpoint."""
        if not hasattr(self, "_inner"):
            raise ConfigError("Flower's legacy server needs the initial model: strategy(..., parameters=arrays).")
        refuse_other_api(self._options.given, MESSAGE)
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
        instructions: list[tuple[ClientProxy, FitIns]] = self._limited(
            lambda: self._inner.configure_fit(server_round, parameters, client_manager)
        )
        if instructions:
            self._limited(self._clients.refuse_lossless)
        return instructions

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
        number = self._inner.run.completed + server_round
        trained, weights = self._accepted(number)
        if (function := self._options.fit_metrics_aggregation_fn) and trained:
            told = {client: users_keys(reply.metrics) for client, reply in trained.items()}
            metrics = metrics | aggregated_pairs(told, weights, function, number)
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
        """Let clients evaluate the model of the round."""
        run, options, number = self._inner.run, self._options, self._inner.run.completed + server_round
        if run.record.round != number or not evaluates(self._inner, number):
            return []
        proxies, nodes = client_manager.all(), run.clients.nodes
        connected = [client for client in sorted(nodes) if nodes[client] in proxies]
        chosen = options.evaluating(connected, options.min_evaluate_clients, run.context.run.seed, number)
        self._evaluating = {nodes[client]: client for client in chosen}
        config = UserManager(client_manager, self._timeouts, options).users_config("evaluate", number)
        return [(proxies[node], EvaluateIns(parameters, config)) for node in self._evaluating]

    def aggregate_evaluate(
        self, server_round: int, results: list[tuple[ClientProxy, EvaluateRes]], failures: TestFailures
    ) -> tuple[float | None, dict[str, Scalar]]:
        """The mean of the clients' losses, weighted by their examples, and the user's aggregate of their metrics."""
        number, found = self._inner.run.completed + server_round, dict[int, EvaluateRes]()
        if failures and all(map(_lacks_evaluate, failures)) and not results:
            LOGGER.warning("The clients have no evaluate, so that they evaluate no model of this run.")
            self._options = replace(self._options, fraction_evaluate=0.0)
            return None, {}
        for failure in failures:
            reason = failure[1].status.message if isinstance(failure, tuple) else failure
            LOGGER.warning("Round %d: a client failed to evaluate: %s", number, one_line(reason))
        for client, reply in sorted(
            ((self._evaluating[proxy.cid], reply) for proxy, reply in results), key=itemgetter(0)
        ):
            try:
                refuse_endless(reply.metrics)
            except WireError as error:
                LOGGER.warning("Round %d: client %d failed to evaluate: %s", number, client, error)
                continue
            if counts(reply.num_examples):
                found[client] = reply
            else:
                note_left_out(client, number, "num_examples", reply.num_examples)
        examples = {client: float(reply.num_examples) for client, reply in found.items()}
        weights = bounded_examples(examples, self._config.reported_values.example_clip)
        told = [(weights[client], finite_metrics({"loss": found[client].loss}, client, number)) for client in found]
        loss = cast(float | None, mean_metrics(told, number).get("loss"))
        function = self._options.evaluate_metrics_aggregation_fn
        if function is None or not found:
            return loss, {}
        return loss, aggregated_pairs({client: found[client].metrics for client in found}, weights, function, number)

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


def _lacks_evaluate(failure: tuple[ClientProxy, EvaluateRes] | BaseException) -> bool:
    """True if the client has no function for an evaluation."""
    return isinstance(failure, tuple) and failure[1].status.code == Code.EVALUATE_NOT_IMPLEMENTED
