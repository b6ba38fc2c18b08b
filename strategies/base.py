"""Selection strategy: a selection method and its run, as a Flower strategy.

`run_rounds` of `strategies.run_round` runs it with any federation. Flower's legacy server can run it too: it calls
`configure_fit` and `aggregate_fit`, which are the two halves of the same round.
"""

from flwr.common import EvaluateIns, EvaluateRes, FitIns, FitRes, Parameters, Scalar
from flwr.server.client_manager import ClientManager
from flwr.server.client_proxy import ClientProxy
from flwr.server.strategy import Strategy

from fedsel_app.config import ConfigError
from strategies.method import ConfigT
from strategies.opened import Dispatch
from strategies.round.federation import Answer, Federation, NodeError, sent_model
from strategies.round.flower_manager import FlowerManager, as_parameters, instructed, replies_of
from strategies.round.replies import first_answers
from strategies.run import RunningMethod
from strategies.run_round import aggregate, configure


class SelectionStrategy(RunningMethod[ConfigT], Strategy):
    """Selection method as a Flower strategy. Methods are its subclasses and contain only their own rules."""

    _dispatch: Dispatch | None = None

    def federation(self, client_manager: ClientManager) -> Federation:
        """The federation of the clients of Flower's client manager."""
        return FlowerManager(client_manager)

    def initialize_parameters(self, client_manager: ClientManager) -> Parameters:
        """The initial global model."""
        return as_parameters(sent_model(*self.run.model))

    def configure_fit(
        self, server_round: int, parameters: Parameters, client_manager: ClientManager
    ) -> list[tuple[ClientProxy, FitIns]]:
        """First half of a round: enrol clients, probe losses, select and instruct the cohort.

        Flower aggregates nothing if no client is instructed, so the round ends here then.

        Raises ConfigError if the server is not to wait for its cohort.
        """
        run, federation = self.run, self.federation(client_manager)
        if run.under_way is not None:
            raise ConfigError("Set 'waiting' to synchronous: Flower's legacy server waits for its cohort.")
        opened = None if run.ended else run.open(self, federation, run.completed + server_round)
        if opened is None:
            return []
        self._dispatch = dispatch = configure(run, opened)
        if dispatch is None:
            run.close(opened)
            return []
        messages = run.clients.messages(dispatch.instructions, opened.sent_to_train)
        return instructed(federation, messages, dispatch.until)

    def aggregate_fit(
        self,
        server_round: int,
        results: list[tuple[ClientProxy, FitRes]],
        failures: list[tuple[ClientProxy, FitRes] | BaseException],
    ) -> tuple[Parameters | None, dict[str, Scalar]]:
        """Second half of a round: weigh and aggregate the updates, update the method, evaluate and record."""
        run, number, dispatch = self.run, self.run.completed + server_round, self._dispatch
        if dispatch is None or dispatch.opened.info.number != number:
            raise RuntimeError(f"Round {number} was aggregated without having been configured.")
        failed = [(failure.node, failure) for failure in failures if isinstance(failure, NodeError)]
        answers: list[tuple[str, Answer]] = [*replies_of(results), *failed]
        client_of = run.clients.enrolment.client_of
        aggregate(run, dispatch, first_answers([(client_of[node], answer) for node, answer in answers], number))
        run.close(dispatch.opened)
        return as_parameters(sent_model(*run.model)), {}

    def evaluate(self, server_round: int, parameters: Parameters) -> tuple[float, dict[str, Scalar]] | None:
        """Loss and score of the round's evaluation on the server's test set; None if it had none."""
        record = self.run.record
        if record.round != self.run.completed + server_round or record.loss is None:
            return None
        return record.loss, {} if record.accuracy is None else {self.run.context.score: record.accuracy}

    def configure_evaluate(
        self, server_round: int, parameters: Parameters, client_manager: ClientManager
    ) -> list[tuple[ClientProxy, EvaluateIns]]:
        """No instruction: the round itself lets clients test the model (`client-eval`)."""
        return []

    def aggregate_evaluate(
        self,
        server_round: int,
        results: list[tuple[ClientProxy, EvaluateRes]],
        failures: list[tuple[ClientProxy, EvaluateRes] | BaseException],
    ) -> tuple[float | None, dict[str, Scalar]]:
        """Nothing, because there are no instructions."""
        return None, {}
