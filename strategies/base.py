"""Selection strategy: a selection method and its run, as a Flower strategy.

`run_rounds` of `strategies.run_round` runs it with any federation. Flower's legacy server can run it too: it calls
`configure_fit` and `aggregate_fit`, which are the two halves of the same round.
"""

from flwr.common import EvaluateIns, EvaluateRes, FitIns, FitRes, Parameters, Scalar
from flwr.server.client_manager import ClientManager
from flwr.server.client_proxy import ClientProxy
from flwr.server.strategy import Strategy

from strategies.method import ConfigT
from strategies.round.federation import ALL, Federation, NodeError, sent_model
from strategies.round.flower_manager import FlowerManager, as_parameters, instructed, replies_of
from strategies.run import Plan, RunningMethod
from strategies.run_round import (
    close_round,
    complete_round,
    evaluate_model,
    local_tests,
    plan_round,
    record_tests,
)


class SelectionStrategy(RunningMethod[ConfigT], Strategy):
    """Selection method as a Flower strategy. Methods are its subclasses and contain only their own rules."""

    _plan: Plan | None = None

    def federation(self, client_manager: ClientManager) -> Federation:
        """The federation of the clients of Flower's client manager."""
        return FlowerManager(client_manager)

    def initialize_parameters(self, client_manager: ClientManager) -> Parameters:
        """The initial global model."""
        return as_parameters(sent_model(self.run.parameters, self.run.buffers))

    def configure_fit(
        self, server_round: int, parameters: Parameters, client_manager: ClientManager
    ) -> list[tuple[ClientProxy, FitIns]]:
        """First half of a round: enrol clients, probe losses, select and instruct the cohort."""
        run, federation = self.run, self.federation(client_manager)
        if run.ended:
            return []
        self._plan = plan = plan_round(self, federation, run.completed + server_round)
        if plan is None:
            return []
        return instructed(federation, run.clients.messages(plan.instructions, plan.model), plan.until, FitIns)

    def aggregate_fit(
        self,
        server_round: int,
        results: list[tuple[ClientProxy, FitRes]],
        failures: list[tuple[ClientProxy, FitRes] | BaseException],
    ) -> tuple[Parameters | None, dict[str, Scalar]]:
        """Second half of a round: weigh and aggregate the updates, step the server optimiser, update the method."""
        run, number = self.run, self.run.completed + server_round
        if self._plan is None or self._plan.round_info.number != number:
            raise RuntimeError(f"Round {number} was aggregated without having been configured.")
        failed = [(failure.node, failure) for failure in failures if isinstance(failure, NodeError)]
        answers = run.clients.by_client([*replies_of(results), *failed], number)
        complete_round(self, self._plan, answers)
        return as_parameters(sent_model(run.parameters, run.buffers)), {}

    def evaluate(self, server_round: int, parameters: Parameters) -> tuple[float, dict[str, Scalar]] | None:
        """Evaluate the global model on the server's test set, every `eval-every` rounds and in the last."""
        if not server_round or self.run.ended:
            return None
        evaluate_model(self)
        record = self.run.record
        if record.loss is None:
            return None
        return record.loss, {} if record.accuracy is None else {"accuracy": record.accuracy}

    def configure_evaluate(
        self, server_round: int, parameters: Parameters, client_manager: ClientManager
    ) -> list[tuple[ClientProxy, EvaluateIns]]:
        """With `client-eval`, ask every client to evaluate the model on its test part; else end the round."""
        run = self.run
        if run.ended:
            return []
        tests = local_tests(self)
        if not tests:
            close_round(self)
            return []
        messages = run.clients.messages(tests, sent_model(run.parameters, run.buffers))
        return instructed(self.federation(client_manager), messages, ALL, EvaluateIns)

    def aggregate_evaluate(
        self,
        server_round: int,
        results: list[tuple[ClientProxy, EvaluateRes]],
        failures: list[tuple[ClientProxy, EvaluateRes] | BaseException],
    ) -> tuple[float | None, dict[str, Scalar]]:
        """Record the clients' own tests, and end the round."""
        record_tests(self, self.run.clients.by_client(replies_of(results)))
        close_round(self)
        return None, {}
