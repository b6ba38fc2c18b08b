"""Clients in a few lines: Flower proxies that answer from a script, and what they answer."""

from collections.abc import Callable
from io import BytesIO
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
    Scalar,
    Status,
    ndarrays_to_parameters,
)
from flwr.server import SimpleClientManager
from flwr.server.client_proxy import ClientProxy

from fedsel_app.wire import Update, encode

OK = Status(Code.OK, "")


def fit_reply(parameters: Parameters, *, examples: int = 10, **metrics: Scalar) -> FitRes:
    """A reply that carries anything; underscores of a metric's name are dashes."""
    return FitRes(OK, parameters, examples, {name.replace("_", "-"): value for name, value in metrics.items()})


def update_reply(update: Update, client: int, server_round: int, **metrics: Scalar) -> FitRes:
    """What a sound client sends; `metrics` override or add to its numbers."""
    payload = np.frombuffer(encode(update, client=client, server_round=server_round), np.uint8)
    return fit_reply(ndarrays_to_parameters([payload]), **{"loss": 1.0, "work_steps": 2.0} | metrics)


def npy_bytes(*arrays: np.ndarray) -> int:
    """Bytes of `arrays` as NumPy's own files."""
    total = 0
    for array in arrays:
        file = BytesIO()
        np.save(file, array, allow_pickle=False)
        total += file.tell()
    return total


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
        properties: dict[str, Scalar] | Exception | None = None,
        evaluation: dict[str, Scalar] | None = None,
    ) -> None:
        super().__init__(str(client) if cid is None else cid)
        self.client = client
        self.asked: list[tuple[str, Any]] = []
        self._fit = fit
        self._loss = loss
        self._evaluation = {} if evaluation is None else evaluation
        self._properties = properties
        if properties is None:
            self._properties = {"client": client, "clients": 0, "examples": examples, "steps": 2}

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
        return EvaluateRes(OK, _given(self._loss), 10, self._evaluation)

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
