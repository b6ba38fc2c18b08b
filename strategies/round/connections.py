"""Talking to the connected clients through Flower's proxies, by partition id."""

import json
import logging
import math
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TypeVar

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
    Scalar,
    ndarrays_to_parameters,
)
from flwr.server.client_manager import ClientManager
from flwr.server.client_proxy import ClientProxy
from numpy.typing import NDArray

from fedsel_app.config import ConfigError
from strategies.round.validation import MOST_EXAMPLES, array_header

LOGGER = logging.getLogger("fedsel")
R = TypeVar("R", GetPropertiesRes, FitRes, EvaluateRes)

MAX_THREADS = 128
UNAVAILABLE = "Error: Node Unavailable"
"""How Flower's reason begins where a node that it held to be connected gives no sign of life."""
ASK_AGAIN_S = 1.0
ARRAY_HEADER_BYTES = len(array_header(0, np.dtype(np.float32)))
SCALAR_BYTES = 8
"""What one reported number (a loss, a count) is charged on the uplink."""


def pack(parameters: NDArray[np.float32], buffers: NDArray[np.float32]) -> Parameters:
    """The global model as Flower sends it: the flat parameters, and the BatchNorm statistics where there are any."""
    return ndarrays_to_parameters([parameters, buffers] if buffers.size else [parameters])


def model_bytes(parameters: Parameters) -> int:
    """Bytes of one transfer of the global model: its entries, without NumPy's header of each array."""
    return sum(len(tensor) - ARRAY_HEADER_BYTES for tensor in parameters.tensors)


def once_each(replies: Iterable[tuple[int, R]], server_round: int) -> dict[int, R]:
    """Every client's first reply; who sends several is logged."""
    first: dict[int, R] = {}
    for client, reply in replies:
        if client in first:
            LOGGER.warning("Round %d: client %d replied again; only its first reply counts.", server_round, client)
        else:
            first[client] = reply
    return first


@dataclass(frozen=True)
class Enrolment:
    """What a client told about itself when it first connected."""

    client: int
    properties: Mapping[str, Scalar]


class Clients:
    """The connected clients by partition id. Flower's own client ids are random in every run and never used."""

    def __init__(self, total: int, timeout_s: int, pool: int = 0, *, answer_s: float = 0.0) -> None:
        self._total = total
        self._answer_s = answer_s or None
        self._refused: set[str] = set()
        self._timeout_s = timeout_s
        self._pool = pool
        self._client_of: dict[str, int] = {}
        self.proxies: dict[int, ClientProxy] = {}

    def refresh(self, manager: ClientManager, label_counts: bool = False, *, wait: bool) -> list[Enrolment]:
        """Update `proxies` to who is connected now and enrol the new ones, with their `label_counts` if asked.

        With `wait`, block until all are there; who is on record as connected but not back yet, as after a restart of
        the SuperLink, is asked again. Later, who is no client of this run is refused and the run goes on; of
        two with the same partition id the one that connected last is meant.

        Raises
        ------
        ConfigError
            With `wait`, if fewer than all connect in time, two have the same partition id, one's is outside 0 ... K-1,
            or one does not say what it has.
        """
        manager.num_available()
        connected, answers = self._meet(manager, GetPropertiesIns({"label-counts": label_counts}), wait)
        enrolments = []
        for cid, answer in answers.items():
            try:
                enrolment = self._enrolment(answer)
            except ConfigError as error:
                if wait:
                    raise
                LOGGER.warning("A client that connected later is left out: %s", error)
                if not isinstance(answer, Exception):
                    self._refused.add(cid)
                continue
            self._client_of[cid] = enrolment.client
            enrolments.append(enrolment)
        known = {cid: client for cid, client in self._client_of.items() if cid in connected}
        self.proxies = {client: connected[cid] for cid, client in known.items()}
        if wait and len(self.proxies) < len(connected):
            raise ConfigError(
                "Several clients have the same partition id; give each supernode a 'partition-id' of its own."
            )
        return sorted(enrolments, key=lambda enrolment: enrolment.client)

    def _meet(
        self, manager: ClientManager, ins: GetPropertiesIns, wait: bool
    ) -> tuple[dict[str, ClientProxy], dict[str, GetPropertiesRes | Exception]]:
        """Who is connected, and what the new ones answer, by Flower's own ids."""
        answers: dict[str, GetPropertiesRes | Exception] = {}
        deadline_s = time.monotonic() + self._timeout_s
        while True:
            left_s = max(0, math.ceil(deadline_s - time.monotonic()))
            if wait and not manager.wait_for(self._total, timeout=left_s):
                raise ConfigError(
                    f"Only {manager.num_available()} of {self._total} clients connected within {self._timeout_s} s. "
                    "Set 'clients' to the number of supernodes (or start more), or raise 'connect-timeout-s'."
                )
            connected = manager.all()
            met = {*self._client_of, *self._refused, *answers}
            new = [proxy for cid, proxy in connected.items() if cid not in met]
            told = parallel(new, lambda proxy: proxy.get_properties(ins, timeout=self._answer_s, group_id=None))
            answers |= {proxy.cid: answer for proxy, answer in told}
            away = [
                cid for cid, answer in answers.items() if isinstance(answer, Exception) and UNAVAILABLE in str(answer)
            ]
            if not (wait and away and time.monotonic() < deadline_s):
                return connected, answers
            for cid in away:
                del answers[cid]
            time.sleep(ASK_AGAIN_S)

    def _enrolment(self, answer: GetPropertiesRes | Exception) -> Enrolment:
        """What a client says it is and has. Raises ConfigError if it is no client of this run."""
        if isinstance(answer, Exception):
            raise ConfigError(f"A client could not say what it has: {answer}")
        client = answer.properties.get("client")
        if not isinstance(client, int) or not 0 <= client < self._total:
            raise ConfigError(
                f"A client has partition id {client!r}, but 'clients' is {self._total}. "
                "Set 'clients' to the number of supernodes."
            )
        for name in ("examples", "steps"):
            number = answer.properties.get(name)
            if not isinstance(number, int) or not 1 <= number <= MOST_EXAMPLES:
                raise ConfigError(f"Client {client} did not tell its '{name}'; every client must run this app.")
        return Enrolment(client, answer.properties)

    def client(self, proxy: ClientProxy) -> int:
        """Partition id behind a proxy."""
        return self._client_of[proxy.cid]

    def evaluate(
        self, clients: Iterable[int], parameters: Parameters, config: dict[str, Scalar]
    ) -> dict[int, EvaluateRes | Exception]:
        """Every client's answer to one evaluate instruction, by ascending id."""
        if self._pool:
            return self._evaluate_pooled(list(clients), parameters, config)
        ins = EvaluateIns(parameters, config)
        return self._ask(clients, lambda proxy: proxy.evaluate(ins, timeout=self._answer_s, group_id=None))

    def _evaluate_pooled(
        self, clients: list[int], parameters: Parameters, config: dict[str, Scalar]
    ) -> dict[int, EvaluateRes | Exception]:
        """The same in few messages, each answered by its first client for all (see `clients.pooled`)."""
        parts = [clients[start :: self._pool] for start in range(min(self._pool, len(clients)))]
        asked = {
            self.proxies[part[0]]: EvaluateIns(parameters, config | {"clients": ",".join(map(str, part))})
            for part in parts
        }
        found: dict[int, EvaluateRes | Exception] = {}
        for part, (_, reply) in zip(
            parts,
            parallel(list(asked), lambda proxy: proxy.evaluate(asked[proxy], timeout=self._answer_s, group_id=None)),
            strict=True,
        ):
            if isinstance(reply, Exception):
                found |= dict.fromkeys(part, reply)
                continue
            for answer in json.loads(str(reply.metrics["answers"])):
                if "error" in answer:
                    found[answer["client"]] = RuntimeError(answer["error"])
                else:
                    values = answer["loss"], answer["examples"], answer["metrics"]
                    found[answer["client"]] = EvaluateRes(reply.status, *values)
        return dict(sorted(found.items()))

    def fit(
        self, clients: Iterable[int], parameters: Parameters, config: dict[str, Scalar]
    ) -> dict[int, FitRes | Exception]:
        """Every client's answer to one fit instruction outside the round's training, by ascending id."""
        ins = FitIns(parameters, config)
        return self._ask(clients, lambda proxy: proxy.fit(ins, timeout=self._answer_s, group_id=None))

    def train(self, instructions: list[tuple[ClientProxy, FitIns]]) -> dict[int, FitRes | Exception]:
        """Every client's answer to its own fit instruction, by ascending id."""
        told = dict(instructions)
        answers = parallel(list(told), lambda proxy: proxy.fit(told[proxy], timeout=self._answer_s, group_id=None))
        return dict(sorted((self.client(proxy), answer) for proxy, answer in answers))

    def _ask(self, clients: Iterable[int], call: Callable[[ClientProxy], R]) -> dict[int, R | Exception]:
        answers = parallel([self.proxies[client] for client in clients], call)
        return dict(sorted((self.client(proxy), answer) for proxy, answer in answers))


def mean_loss(results: list[EvaluateRes]) -> float:
    """The mean loss over all tested examples; inf where it is no number, or nothing was tested.

    Who says that it tested no example, or more than a client can have, does not count.
    """
    results = [result for result in results if 1 <= result.num_examples <= MOST_EXAMPLES]
    examples = sum(result.num_examples for result in results)
    loss = sum(result.num_examples * result.loss for result in results) / examples if examples else math.inf
    return loss if math.isfinite(loss) else math.inf


def parallel(proxies: list[ClientProxy], call: Callable[[ClientProxy], R]) -> list[tuple[ClientProxy, R | Exception]]:
    """Call every proxy at the same time; an exception is an answer."""

    def attempt(proxy: ClientProxy) -> tuple[ClientProxy, R | Exception]:
        try:
            answer = call(proxy)
            if answer.status.code != Code.OK:
                return proxy, RuntimeError(answer.status.message or f"status {answer.status.code.name}")
            return proxy, answer
        except Exception as error:  # noqa: BLE001 - whatever a client's message raises is that client's failure
            return proxy, error

    if not proxies:
        return []
    with ThreadPoolExecutor(min(len(proxies), MAX_THREADS)) as pool:
        return list(pool.map(attempt, proxies))
