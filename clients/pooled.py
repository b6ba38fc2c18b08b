"""Pooled messages: in a simulation every process has every client's data, so one client can answer for many."""

from dataclasses import replace

from flwr.common import NDArrays

from clients.client import SelectionClient
from fedsel_app.messages import (
    Config,
    Evaluation,
    PooledAnswers,
    PooledFit,
    PooledFits,
    PooledTraining,
    pooled_clients,
    read_evaluate_instruction,
)


class PooledClient(SelectionClient):
    """Simulated client that answers for all clients which a message names, one after the other.

    Each answer is the one that the client named would give to a message of its own.
    """

    def fit(self, parameters: NDArrays, config: Config) -> tuple[NDArrays, int, Config]:
        """Answer a `PooledTraining` as `PooledFits`, all clients' arrays in a row; a message to one client, as its."""
        training = PooledTraining.from_config(config)
        if not training.configs:
            return super().fit(parameters, config)
        sent: NDArrays = []
        fits: list[PooledFit | str] = []
        for client, own in training.configs.items():
            try:
                arrays, examples, metrics = self._client(client).fit(parameters, own)
            except Exception as error:  # noqa: BLE001 - whatever one client's message raises is that client's failure
                fits.append(str(error))
                continue
            sent += arrays
            fits.append(PooledFit(len(arrays), examples, metrics))
        return sent, len(fits), PooledFits(tuple(fits)).to_metrics()

    def evaluate(self, parameters: NDArrays, config: Config) -> Evaluation:
        """Answer a `PooledInstruction` as `PooledAnswers`; where no client is named, for this one alone."""
        clients = pooled_clients(config)
        if not clients:
            return super().evaluate(parameters, config)
        instruction = read_evaluate_instruction(config)
        try:
            model = self.load(parameters)
        except Exception as error:  # noqa: BLE001 - each client would fail at it alike
            return PooledAnswers(dict.fromkeys(clients, str(error))).to_evaluation()
        answers: dict[int, Evaluation | str] = {}
        for client in clients:
            try:
                answers[client] = self._client(client).evaluation(model, instruction)
            except Exception as error:  # noqa: BLE001 - whatever one client's message raises is that client's failure
                answers[client] = str(error)
        return PooledAnswers(answers).to_evaluation()

    def _client(self, client: int) -> SelectionClient:
        return SelectionClient(replace(self._context, client=client))
