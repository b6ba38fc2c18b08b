"""Selection strategy: a selection method and its run, as a Flower strategy.

`run_rounds` of `strategies.run_round` runs it with any federation. Flower's legacy server can run it too: it calls
`configure_fit` and `aggregate_fit`, which are the two halves of the same round.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from flwr.common import EvaluateIns, EvaluateRes, FitIns, FitRes, Parameters, Scalar
from flwr.server.client_manager import ClientManager
from flwr.server.client_proxy import ClientProxy
from flwr.server.strategy import Strategy
from numpy.typing import NDArray

from fedsel_app.config import ConfigError
from strategies.checkpoint import Arrays
from strategies.method import ConfigT, MethodContext, SelectionMethod

if TYPE_CHECKING:
    from strategies.opened import Dispatch
    from strategies.round.federation import Answer
    from strategies.run import Run


class SelectionStrategy(SelectionMethod[ConfigT], Strategy):
    """Selection method as a Flower strategy. Methods are its subclasses and contain only their own rules.

    A method that is only imported does not import the round: its functions do, when a run begins.

    Attributes
    ----------
    run : the run, which each round changes
    """

    run: "Run"
    _dispatch: "Dispatch | None" = None

    def __init__(self, context: MethodContext) -> None:
        from strategies.run import Run
        from strategies.run_context import RunContext

        super().__init__(context)
        if not isinstance(context, RunContext):
            raise TypeError(f"{self.name} takes a RunContext. Got {type(context).__name__}.")
        self.check_settings(self.config, context)
        self.run = Run(context, self.whole_roster, self.needs(self.config))

    def snapshot(self) -> Arrays:
        """Checkpoint of the run after its last finished round, as named arrays."""
        return self.run.snapshot(self)

    def restore(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        """Load what `snapshot` returned. Raises ConfigError if it is from a different run."""
        self.run.restore(arrays, self)

    def initialize_parameters(self, client_manager: ClientManager) -> Parameters:
        """The initial global model."""
        from strategies.round.federation import sent_model
        from strategies.round.flower_manager import as_parameters

        return as_parameters(sent_model(*self.run.model))

    def configure_fit(
        self, server_round: int, parameters: Parameters, client_manager: ClientManager
    ) -> list[tuple[ClientProxy, FitIns]]:
        """First half of a round: enrol clients, probe losses, select and instruct the cohort.

        Flower aggregates nothing if no client is instructed, so the round ends here then.

        Raises ConfigError if the server is not to wait for its cohort.
        """
        from strategies.round.flower_manager import FlowerManager, instructed
        from strategies.run_round import configure

        run = self.run
        if run.under_way is not None:
            raise ConfigError("Set 'waiting' to synchronous: Flower's legacy server waits for its cohort.")
        opened = None if run.ended else run.open(self, FlowerManager(client_manager), run.completed + server_round)
        if opened is None:
            return []
        self._dispatch = dispatch = configure(run, opened)
        if dispatch is None:
            run.close(opened)
            return []
        messages = run.clients.messages(dispatch.instructions, opened.sent_to_train)
        return instructed(client_manager, messages, dispatch.until)

    def aggregate_fit(
        self,
        server_round: int,
        results: list[tuple[ClientProxy, FitRes]],
        failures: list[tuple[ClientProxy, FitRes] | BaseException],
    ) -> tuple[Parameters | None, dict[str, Scalar]]:
        """Second half of a round: weigh and aggregate the updates, update the method, evaluate and record."""
        from strategies.round.federation import NodeError, sent_model
        from strategies.round.flower_manager import TimedClient, answer_of, as_parameters
        from strategies.run_round import aggregate

        run, number, dispatch = self.run, self.run.completed + server_round, self._dispatch
        if dispatch is None or dispatch.opened.info.number != number:
            raise RuntimeError(f"Round {number} was aggregated without having been configured.")
        answers: dict[str, Answer] = {each.node: each for each in failures if isinstance(each, NodeError)}
        for proxy, result in [*results, *(each for each in failures if isinstance(each, tuple))]:
            arrived_s = proxy.arrived_s if isinstance(proxy, TimedClient) else 0.0
            answers[proxy.cid] = answer_of(proxy.cid, result, arrived_s)
        client_of = run.clients.enrolment.client_of
        aggregate(run, dispatch, dict(sorted((client_of[node], answer) for node, answer in answers.items())))
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
