"""Pooled server: Flower's server in a simulation, where one message can be to several clients."""

from collections.abc import Iterable
from typing import TypeVar

from flwr.common import EvaluateRes, FitRes, Parameters, Scalar
from flwr.server import Server, SimpleClientManager
from flwr.server.client_proxy import ClientProxy
from flwr.server.server import FitResultsAndFailures

from strategies.base import SelectionStrategy
from strategies.round.timeout_proxy import NodeError

Res = TypeVar("Res", FitRes, EvaluateRes)


class PooledServer(Server):
    """Flower's server, which lets the strategy's connections send a round's instructions, pooled as the engine can."""

    def __init__(self, strategy: SelectionStrategy) -> None:
        super().__init__(client_manager=SimpleClientManager(), strategy=strategy)
        self._clients = strategy.clients

    def fit_round(
        self, server_round: int, timeout: float | None
    ) -> tuple[Parameters | None, dict[str, Scalar], FitResultsAndFailures] | None:
        """Train one round; None where no client is instructed."""
        instructions = self.strategy.configure_fit(server_round, self.parameters, self._client_manager)
        if not instructions:
            return None
        answers = results_and_failures(
            (self._clients.proxies[client], answer) for client, answer in self._clients.train(instructions).items()
        )
        return *self.strategy.aggregate_fit(server_round, *answers), answers


def results_and_failures(
    answers: Iterable[tuple[ClientProxy, Res | Exception]],
) -> tuple[list[tuple[ClientProxy, Res]], list[tuple[ClientProxy, Res] | BaseException]]:
    """Divide answers as Flower's server does; an exception becomes a NodeError, which names its client."""
    results: list[tuple[ClientProxy, Res]] = []
    failures: list[tuple[ClientProxy, Res] | BaseException] = []
    for proxy, answer in answers:
        if isinstance(answer, Exception):
            failures.append(NodeError(proxy.cid, str(answer)))
        else:
            results.append((proxy, answer))
    return results, failures
