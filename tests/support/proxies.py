"""Flower's client proxies without machines: scripted answers, their replies, and a manager of the proxies."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
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
)
from flwr.server import SimpleClientManager
from flwr.server.client_proxy import ClientProxy

from fedsel_app.config import Settings
from fedsel_app.messages.answers import EnrolAnswer, TrainAnswer
from fedsel_app.messages.instructions import TrainInstruction
from fedsel_app.messages.scalars import Config
from fedsel_app.wire.codec import Update, encode
from strategies.roster import Roster
from strategies.round.replies.training import ReplyReader
from strategies.testing.fake_federation import FakeFederation
from strategies.testing.fakes import make_context
from tests.support.contexts import SIZE

OK = Status(Code.OK, "")


def fit_reply(parameters: Parameters, *, examples: int = 10, **numbers: Any) -> FitRes:
    """A reply with any content, and with `numbers` as the fields of its `TrainAnswer`."""
    return FitRes(OK, parameters, examples, TrainAnswer(**numbers).to_config() if numbers else {})


def update_reply(update: Update, client: int, server_round: int, **numbers: Any) -> FitRes:
    """Valid reply; `numbers` replace or extend the fields of its `TrainAnswer`."""
    payload = np.frombuffer(encode(update, client=client, server_round=server_round), np.uint8)
    return fit_reply(ndarrays_to_parameters([payload]), **{"loss": 1.0, "work_steps": 2.0} | numbers)


def with_numbers(reply: FitRes, **numbers: Any) -> FitRes:
    """The reply with other values of the fields of its `TrainAnswer`."""
    return replace(reply, metrics=replace(TrainAnswer.from_metrics(reply.metrics), **numbers).to_config())


def decoded(replies, asked, server_round, size, reports=(), **settings):
    """Replies of the `asked` clients after the round decodes and checks them, but before it bounds their numbers."""
    context = make_context(
        Settings(), clients=int(max(asked)) + 1, cohort=1, size=size, **{"max_update_norm": 0.0} | settings
    )
    roster = Roster(context.run.clients)
    roster.examples[:] = 10
    reader = ReplyReader(context, roster, reports, 1)
    instruction = TrainInstruction(server_round, "run", 0.1, 1.0, 1.0, False)
    return reader.decode(replies, dict.fromkeys(map(int, asked), instruction))


def evaluated(loss: float, examples: int, accuracy: float | None = None) -> EvaluateRes:
    """Flower's result of an evaluation."""
    return EvaluateRes(OK, loss, examples, {} if accuracy is None else {"accuracy": accuracy})


def round_of(ins: FitIns | EvaluateIns) -> int:
    """Round of a fit or an evaluate message."""
    return int(ins.config["server_round"])


def update_of(client):
    """Client k sends an update with the value k + 1 at entry k."""
    return Update(SIZE, np.array([client], np.uint32), np.array([client + 1.0], np.float32))


def sends_its_update(client, ins):
    return update_reply(update_of(client), client, round_of(ins))


class FakeClientProxy(ClientProxy):
    """Client proxy that raises for the calls that a run never makes; a subclass answers the others."""

    def get_parameters(self, ins: GetParametersIns, timeout: float | None, group_id: int | None) -> GetParametersRes:
        """Raise, because the server starts from its own model."""
        raise NotImplementedError

    def reconnect(self, ins: ReconnectIns, timeout: float | None, group_id: int | None) -> DisconnectRes:
        """Raise, because the server sends its clients no message at the end."""
        raise NotImplementedError


@dataclass(eq=False)
class FederationProxy(FakeClientProxy):
    """Client `client` of a `federation` as Flower's server sees it; `cid` is Flower's own id without meaning."""

    federation: FakeFederation
    client: int
    cid: str

    def get_properties(self, ins: GetPropertiesIns, timeout: float | None, group_id: int | None) -> GetPropertiesRes:
        """Number of examples, local steps and label counts."""
        counts = self.federation.label_counts[self.client]
        answer = EnrolAnswer(self.client, int(counts.sum()), counts.astype("<i8").tobytes())
        return GetPropertiesRes(Status(Code.OK, ""), answer.to_config())

    def evaluate(self, ins: EvaluateIns, timeout: float | None, group_id: int | None) -> EvaluateRes:
        """Loss of the round's model."""
        return evaluated(float(self.federation.losses(round_of(ins))[self.client]), 1)

    def fit(self, ins: FitIns, timeout: float | None, group_id: int | None) -> FitRes:
        """Update and reports."""
        number = TrainInstruction.from_config(ins.config).server_round
        payload = encode(self.federation.update(number, self.client), client=self.client, server_round=number)
        loss = float(self.federation.losses(number)[self.client])
        answer = TrainAnswer(loss, work_steps=loss, reports=dict.fromkeys(self.federation.needs.reports, loss))
        arrays = ndarrays_to_parameters([np.frombuffer(payload, np.uint8)])
        return FitRes(Status(Code.OK, ""), arrays, 1, answer.to_config())


class StubProxy(FakeClientProxy):
    """Client `client`, which answers at once; `asked` collects its instructions.

    `fit` is the answer to a fit instruction, and `loss` the answer to a probe. If one is an exception, it is raised.
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
        self._properties = EnrolAnswer(client, examples).to_config() if properties is None else properties

    def get_properties(self, ins: GetPropertiesIns, timeout: float | None, group_id: int | None) -> GetPropertiesRes:
        self.asked.append(("properties", ins))
        return GetPropertiesRes(OK, _given(self._properties))

    def fit(self, ins: FitIns, timeout: float | None, group_id: int | None) -> FitRes:
        self.asked.append(("fit", ins))
        return _given(self._fit(self.client, ins))

    def evaluate(self, ins: EvaluateIns, timeout: float | None, group_id: int | None) -> EvaluateRes:
        self.asked.append(("evaluate", ins))
        return evaluated(_given(self._loss), 10, self._accuracy)


def _given(answer: Any) -> Any:
    if isinstance(answer, Exception):
        raise answer
    return answer


def manager_of(proxies: Iterable[FakeClientProxy]) -> SimpleClientManager:
    """A client manager of connected `proxies`, in their order."""
    manager = SimpleClientManager()
    for proxy in proxies:
        manager.register(proxy)
    return manager


def trio(fit=sends_its_update, **options):
    """Clients 0, 1 and 2 with 10, 20 and 30 examples."""
    return [StubProxy(client, fit, examples=10 * (client + 1), **options) for client in range(3)]
