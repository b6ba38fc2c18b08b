"""Client proxies of Flower without machines: scripted answers, the replies that they give, a manager of them."""

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

import numpy as np
from flwr.common import (
    Code,
    EvaluateIns,
    EvaluateRes,
    FitIns,
    FitRes,
    GetPropertiesIns,
    GetPropertiesRes,
    Parameters,
    Status,
    ndarrays_to_parameters,
)
from flwr.server import SimpleClientManager

from fedsel_app.messages.answers import EnrolAnswer, EvaluateAnswer, TrainAnswer
from fedsel_app.messages.instructions import read_fit_instruction
from fedsel_app.messages.scalars import Config
from fedsel_app.wire.codec import Update, encode
from strategies.testing.fakes import FakeClientProxy
from tests.support.contexts import SIZE

OK = Status(Code.OK, "")


def fit_reply(parameters: Parameters, *, examples: int = 10, **numbers: Any) -> FitRes:
    """A reply that carries anything; with the fields of a `TrainAnswer` as `numbers`."""
    return FitRes(OK, parameters, examples, TrainAnswer(**numbers).to_config() if numbers else {})


def update_reply(update: Update, client: int, server_round: int, **numbers: Any) -> FitRes:
    """Reply of a sound client; `numbers` override or add to the fields of its `TrainAnswer`."""
    payload = np.frombuffer(encode(update, client=client, server_round=server_round), np.uint8)
    return fit_reply(ndarrays_to_parameters([payload]), **{"loss": 1.0, "work_steps": 2.0} | numbers)


def with_numbers(reply: FitRes, **numbers: Any) -> FitRes:
    """The reply with other fields of its `TrainAnswer`."""
    return replace(reply, metrics=replace(TrainAnswer.from_metrics(reply.metrics), **numbers).to_config())


def round_of(ins: FitIns) -> int:
    """Round of a fit message."""
    return read_fit_instruction(ins.config).server_round


def update_of(client):
    """Client 0, 1, 2 ... sends its number, plus one, at the entry of its number."""
    return Update(SIZE, np.array([client], np.uint32), np.array([client + 1.0], np.float32))


def sends_its_update(client, ins):
    return update_reply(update_of(client), client, round_of(ins))


class StubProxy(FakeClientProxy):
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
        self._properties = EnrolAnswer(client, examples).to_config() if properties is None else properties

    def get_properties(self, ins: GetPropertiesIns, timeout: float | None, group_id: int | None) -> GetPropertiesRes:
        self.asked.append(("properties", ins))
        return GetPropertiesRes(OK, _given(self._properties))

    def fit(self, ins: FitIns, timeout: float | None, group_id: int | None) -> FitRes:
        self.asked.append(("fit", ins))
        return _given(self._fit(self.client, ins))

    def evaluate(self, ins: EvaluateIns, timeout: float | None, group_id: int | None) -> EvaluateRes:
        self.asked.append(("evaluate", ins))
        return EvaluateRes(OK, *EvaluateAnswer(_given(self._loss), 10, self._accuracy).to_evaluation())


def _given(answer: Any) -> Any:
    if isinstance(answer, Exception):
        raise answer
    return answer


def manager_of(proxies: Iterable[FakeClientProxy]) -> SimpleClientManager:
    """A manager of connected `proxies`, in their order."""
    manager = SimpleClientManager()
    for proxy in proxies:
        manager.register(proxy)
    return manager


def trio(fit=sends_its_update, **options):
    """Clients 0, 1 and 2 with 10, 20 and 30 examples."""
    return [StubProxy(client, fit, examples=10 * (client + 1), **options) for client in range(3)]
