"""Flower without machines: proxies that answer from a script, what they answer, and a server over them."""

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
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
    ndarrays_to_parameters,
    parameters_to_ndarrays,
)
from flwr.server import Server, SimpleClientManager
from flwr.server.client_proxy import ClientProxy

from fedsel_app.config import NetworkConfig, Settings
from fedsel_app.messages import Config, EnrolAnswer, LocalTestAnswer, TrainAnswer, read_fit_instruction
from fedsel_app.network.links import SimulatedLinks
from fedsel_app.records.schema import as_row
from fedsel_app.wire.codec import Update, encode
from tests.support.contexts import NoRecords, make_context

SIZE = 4
"""Parameters of the model that stub clients train."""

OK = Status(Code.OK, "")


def fit_reply(parameters: Parameters, *, examples: int = 10, **numbers: Any) -> FitRes:
    """A reply that carries anything; with the fields of a `TrainAnswer` as `numbers`."""
    return FitRes(OK, parameters, examples, TrainAnswer(**numbers).to_metrics() if numbers else {})


def update_reply(update: Update, client: int, server_round: int, **numbers: Any) -> FitRes:
    """Reply of a sound client; `numbers` override or add to the fields of its `TrainAnswer`."""
    payload = np.frombuffer(encode(update, client=client, server_round=server_round), np.uint8)
    return fit_reply(ndarrays_to_parameters([payload]), **{"loss": 1.0, "work_steps": 2.0} | numbers)


def round_of(ins: FitIns) -> int:
    """Round of a fit message."""
    return read_fit_instruction(ins.config).server_round


class StubProxy(ClientProxy):
    """Client `client`, which answers at once; its `asked` remembers the instructions.

    `fit` gives the answer to a fit instruction, `loss` the one to a probe; an exception there is raised.
    """

    def __init__(
        self,
        client: int,
        fit: Callable[[int, FitIns], FitRes | Exception] | None = None,
        *,
        cid: str | None = None,
        loss: float | Exception = 1.0,
        examples: int = 10,
        properties: Config | Exception | None = None,
        accuracy: float | None = None,
    ) -> None:
        super().__init__(str(client) if cid is None else cid)
        self.client = client
        self.asked: list[tuple[str, Any]] = []
        self._fit = fit
        self._loss = loss
        self._accuracy = accuracy
        self._properties = EnrolAnswer(client, examples, 2).to_properties() if properties is None else properties

    def get_properties(self, ins: GetPropertiesIns, timeout: float | None, group_id: int | None) -> GetPropertiesRes:
        self.asked.append(("properties", ins))
        return GetPropertiesRes(OK, _given(self._properties))

    def get_parameters(self, ins: GetParametersIns, timeout: float | None, group_id: int | None) -> GetParametersRes:
        raise RuntimeError("nobody asks clients for parameters")

    def fit(self, ins: FitIns, timeout: float | None, group_id: int | None) -> FitRes:
        self.asked.append(("fit", ins))
        return _given(self._fit(self.client, ins))

    def evaluate(self, ins: EvaluateIns, timeout: float | None, group_id: int | None) -> EvaluateRes:
        self.asked.append(("evaluate", ins))
        return EvaluateRes(OK, *LocalTestAnswer(_given(self._loss), 10, self._accuracy).to_evaluation())

    def reconnect(self, ins: ReconnectIns, timeout: float | None, group_id: int | None) -> DisconnectRes:
        return DisconnectRes(reason="")


def _given(answer: Any) -> Any:
    if isinstance(answer, Exception):
        raise answer
    return answer


def manager_of(proxies: list[StubProxy]) -> SimpleClientManager:
    """A manager of connected `proxies`, in their order."""
    manager = SimpleClientManager()
    for proxy in proxies:
        manager.register(proxy)
    return manager


class Rows(NoRecords):
    """Recorder that keeps the rows, as JSON would."""

    def __init__(self):
        self.rows, self.clients, self.finished = [], [], 0

    def client(self, record):
        self.clients.append(as_row(record))

    def round(self, record):
        record.add_totals(self.rows[-1] if self.rows else {})
        self.rows.append(json.loads(json.dumps(as_row(record))))

    def checkpoint(self, arrays):
        self.saved = {name: np.array(array) for name, array in arrays.items()}

    def finish(self, final, best, roster):
        self.finished += 1
        self.parameters = final[0]


NO_BUFFERS = np.zeros(0, np.float32)


def context_of(method=None, *, clients=3, cohort=3, rounds=1, network=None, buffers=NO_BUFFERS, **run):
    """Everything a strategy takes: simulated links, a model of SIZE zeros, and `Rows` to write to."""
    context = make_context(method or Settings(), clients=clients, cohort=cohort, rounds=rounds, size=SIZE, **run)
    links = SimulatedLinks(network or NetworkConfig(), clients, context.run.seed)
    return replace(context, links=links, buffers=buffers, recorder=Rows())


def run_round(strategy, proxies):
    """The row of a run of one round, and the final model's arrays."""
    return run_rounds(strategy, manager_of(proxies), 1)


def run_rounds(strategy, manager, rounds):
    """The rows of a run, and the final model's arrays."""
    server = Server(client_manager=manager, strategy=strategy)
    server.fit(rounds, timeout=None)
    return strategy.context.recorder.rows, parameters_to_ndarrays(server.parameters)


def update_of(client):
    """Client 0, 1, 2 ... sends its number, plus one, at the entry of its number."""
    return Update(SIZE, np.array([client], np.uint32), np.array([client + 1.0], np.float32))


def sends_its_update(client, ins):
    return update_reply(update_of(client), client, round_of(ins))


def trio(fit=sends_its_update, **options):
    """Clients 0, 1 and 2 with 10, 20 and 30 examples."""
    return [StubProxy(client, fit, examples=10 * (client + 1), **options) for client in range(3)]


def without_wall(rows):
    return [{key: value for key, value in row.items() if key != "wall_s"} for row in rows]
