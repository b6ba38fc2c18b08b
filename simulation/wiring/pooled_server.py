"""Pooled server: Flower's server in a simulation whose workers answer for several clients in one message."""

from flwr.common import FitRes, Parameters, Scalar
from flwr.server import Server, SimpleClientManager
from flwr.server.client_proxy import ClientProxy
from flwr.server.server import FitResultsAndFailures

from strategies.base import SelectionStrategy


class PooledServer(Server):
    """Flower's server, which sends the instructions of a round in few messages instead of one to each client."""

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
        results: list[tuple[ClientProxy, FitRes]] = []
        failures: list[tuple[ClientProxy, FitRes] | BaseException] = []
        for client, answer in self._clients.train(instructions).items():
            if isinstance(answer, Exception):
                failures.append(answer)
            else:
                results.append((self._clients.proxies[client], answer))
        return *self.strategy.aggregate_fit(server_round, results, failures), (results, failures)
