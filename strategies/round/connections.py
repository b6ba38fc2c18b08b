"""Connections: the server talks to the clients through Flower's proxies, by partition id."""

import logging
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
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
    ndarrays_to_parameters,
)
from flwr.server.client_manager import ClientManager
from flwr.server.client_proxy import ClientProxy
from numpy.typing import NDArray

from fedsel_app.config import ConfigError, EnrolmentConfig
from fedsel_app.messages import (
    CalibrateInstruction,
    EnrolAnswer,
    EnrolInstruction,
    EvaluateInstruction,
    PooledAnswers,
    PooledInstruction,
    one_line,
)
from strategies.round.enrolment import Enrolment
from strategies.round.pooled_training import Answers, Instructions, PooledTrainer
from strategies.round.timeout_proxy import NodeError
from strategies.round.validation import array_header

LOGGER = logging.getLogger("fedsel")
R = TypeVar("R", GetPropertiesRes, FitRes, EvaluateRes)

MAX_THREADS = 128
UNAVAILABLE = "Error: Node Unavailable"
"""Beginning of Flower's reason where a node that it held to be connected gives no sign of life."""
ASK_AGAIN_S = 1.0
ARRAY_HEADER_BYTES = len(array_header(0, np.dtype(np.float32)))
SCALAR_BYTES = 8
"""Uplink charge of one reported number (a loss, a count)."""


def pack(parameters: NDArray[np.float32], buffers: NDArray[np.float32]) -> Parameters:
    """Pack the global model as Flower sends it: flat parameters (N,), and BatchNorm statistics (B,) if any."""
    return ndarrays_to_parameters([parameters, buffers] if buffers.size else [parameters])


def model_bytes(parameters: Parameters) -> int:
    """Bytes of one transfer of the global model: its entries, without NumPy's header of each array."""
    return sum(len(tensor) - ARRAY_HEADER_BYTES for tensor in parameters.tensors)


def once_each(replies: Iterable[tuple[int, R]], server_round: int) -> dict[int, R]:
    """Keep every client's first reply; a client that sends several is logged."""
    first: dict[int, R] = {}
    for client, reply in replies:
        if client in first:
            LOGGER.warning("Round %d: client %d replied again; only its first reply counts.", server_round, client)
        else:
            first[client] = reply
    return first


class ConnectedClients:
    """Connected clients by partition id. Flower's own client ids are random in every run and never used.

    Parameters
    ----------
    total : clients of the run, K
    pool : see `RunContext`
    answer_s : seconds that a client has for an answer outside its training; 0: any

    Attributes
    ----------
    enrolment : the owners of the partition ids
    proxies : partition id -> proxy of the node that owns it, where that is connected
    """

    def __init__(self, total: int, config: EnrolmentConfig, pool: int = 0, *, answer_s: float = 0.0) -> None:
        self._total = total
        self._config = config
        self._answer_s = answer_s or None
        self._pool = pool
        self._at_once = 1 if pool == 1 else MAX_THREADS
        self._trainer = PooledTrainer(pool, self._fit_each) if pool > 1 else None
        self._met: dict[str, ClientProxy] = {}
        self.enrolment = Enrolment(total, config)
        self.proxies: dict[int, ClientProxy] = {}

    def refresh(
        self, manager: ClientManager, server_round: int = 0, label_counts: bool = False, *, wait: bool
    ) -> list[EnrolAnswer]:
        """Update `proxies` to those connected now and enrol the new ones, with their `label_counts` if asked.

        With `wait`, block until all are there, or until the time for it is over and the others go on; a client on
        record as connected but not back yet, as after a restart of the SuperLink, is asked again. A node that is no
        client of this run, or claims a partition id that is not its own, is left out.

        Raises
        ------
        ConfigError
            With `wait`, if fewer than all connect in time, or none of them can be enrolled; in a simulation, if one
            cannot.
        """
        if not wait and manager.all() == self._met and not self.enrolment.due(time.monotonic()):
            return []
        deadline_s = time.monotonic() + self._config.connect_timeout_s
        if wait:
            self._await_all(manager)
            self.enrolment.renew(manager.all())
        enrolled: list[EnrolAnswer] = []
        while True:
            connected = self._met = dict(manager.all())
            away = self._ask_new(connected, EnrolInstruction(label_counts), server_round, wait=wait)
            enrolled += self.enrolment.settle(connected, server_round)
            owners = {node: client for node, client in self.enrolment.client_of.items() if node in connected}
            self.proxies = {client: connected[node] for node, client in owners.items()}
            late = time.monotonic() >= deadline_s
            if wait and self._pool and self.enrolment.claims:
                raise ConfigError(f"A simulated client could not be enrolled. {self._excuse()}")
            if wait and not self.proxies and (late or not away):
                raise ConfigError(f"No client could be enrolled. {self._excuse()}")
            if not wait or late or len(self.proxies) == self._total:
                break
            time.sleep(ASK_AGAIN_S)
        if wait and len(self.proxies) < self._total:
            missing = sorted(set(range(self._total)) - set(self.proxies))
            LOGGER.warning("The run begins without the clients %s. %s", one_line(missing), self._excuse())
        return sorted(enrolled, key=lambda enrolment: enrolment.client)

    def _await_all(self, manager: ClientManager) -> None:
        """Wait until as many nodes are connected as there are clients. Raises ConfigError if there are fewer."""
        timeout_s = self._config.connect_timeout_s
        manager.num_available()
        if not manager.wait_for(self._total, timeout=timeout_s):
            raise ConfigError(
                f"Only {manager.num_available()} of {self._total} clients connected within {timeout_s} s. "
                "Set 'clients' to the number of supernodes (or start more), or raise 'connect-timeout-s'."
            )

    def _ask_new(
        self, connected: Mapping[str, ClientProxy], instruction: EnrolInstruction, server_round: int, *, wait: bool
    ) -> bool:
        """Ask the connected nodes who they are that have not said so; true if one is connected on record alone."""
        enrolment, ins = self.enrolment, GetPropertiesIns(instruction.to_config())
        enrolment.forget(connected)
        answer_s = max(self._config.enrol_timeout_s, self._config.connect_timeout_s if wait else 0.0)
        timeout_s = None if self._pool else answer_s
        unheard = [connected[node] for node in enrolment.unheard(connected, time.monotonic())]
        any_away = False
        for proxy, answer in parallel(
            unheard, lambda proxy: proxy.get_properties(ins, timeout=timeout_s, group_id=None), self._at_once
        ):
            if not isinstance(answer, Exception):
                enrolment.hear(proxy.cid, answer.properties, server_round)
            elif UNAVAILABLE in str(answer):
                any_away = True
                enrolment.postpone(proxy.cid, time.monotonic() + ASK_AGAIN_S)
            else:
                enrolment.fail(proxy.cid, answer, server_round, time.monotonic())
        return any_away

    def _excuse(self) -> str:
        """The last claim that was not believed, as a sentence."""
        return self.enrolment.claims[-1].sentence if self.enrolment.claims else "Their nodes are not back yet."

    def client(self, proxy: ClientProxy) -> int:
        """Partition id behind a proxy."""
        return self.enrolment.client_of[proxy.cid]

    def evaluate(
        self, clients: Iterable[int], parameters: Parameters, instruction: EvaluateInstruction
    ) -> dict[int, EvaluateRes | Exception]:
        """Ask clients to evaluate a model; every client's reply, by ascending id."""
        if self._pool:
            return self._evaluate_pooled(list(clients), parameters, instruction)
        ins = EvaluateIns(parameters, instruction.to_config())
        return self._ask(clients, lambda proxy: proxy.evaluate(ins, timeout=self._answer_s, group_id=None))

    def _evaluate_pooled(
        self, clients: list[int], parameters: Parameters, instruction: EvaluateInstruction
    ) -> dict[int, EvaluateRes | Exception]:
        """Evaluate with few messages, each answered by its first client for all (see `clients.pooled`)."""
        parts = [clients[start :: self._pool] for start in range(min(self._pool, len(clients)))]
        asked = {
            self.proxies[part[0]]: EvaluateIns(parameters, PooledInstruction(instruction, tuple(part)).to_config())
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
            for client, answer in PooledAnswers.from_metrics(reply.metrics).answers.items():
                failed = isinstance(answer, str)
                found[client] = RuntimeError(answer) if failed else EvaluateRes(reply.status, *answer)
        return dict(sorted(found.items()))

    def calibrate(
        self, clients: Iterable[int], parameters: Parameters, instruction: CalibrateInstruction
    ) -> dict[int, FitRes | Exception]:
        """Ask clients to calibrate a model; every client's reply, by ascending id."""
        ins = FitIns(parameters, instruction.to_config())
        return self._ask(clients, lambda proxy: proxy.fit(ins, timeout=self._answer_s, group_id=None))

    def train(self, instructions: Instructions) -> dict[int, FitRes | Exception]:
        """Ask each client to train as its own instruction says; every client's reply, by ascending id."""
        ask = self._fit_each if self._trainer is None else partial(self._trainer.train, client_of=self.client)
        return dict(sorted((self.client(proxy), answer) for proxy, answer in ask(instructions)))

    def _fit_each(self, instructions: Instructions) -> Answers:
        ins_of = dict(instructions)
        return parallel(
            list(ins_of), lambda proxy: proxy.fit(ins_of[proxy], timeout=self._answer_s, group_id=None), self._at_once
        )

    def _ask(self, clients: Iterable[int], call: Callable[[ClientProxy], R]) -> dict[int, R | Exception]:
        answers = parallel([self.proxies[client] for client in clients], call, self._at_once)
        return dict(sorted((self.client(proxy), answer) for proxy, answer in answers))


def log_failures(
    failures: Iterable[tuple[ClientProxy, FitRes] | BaseException], server_round: int, client_of: Mapping[str, int]
) -> None:
    """Log each of Flower's failures on a line: the exception, or the message of a status that is not OK.

    `client_of` is the partition id of each node.
    """
    for failure in failures:
        if isinstance(failure, BaseException):
            node, reason = failure.node if isinstance(failure, NodeError) else "", one_line(failure)
        else:
            node, reason = failure[0].cid, one_line(failure[1].status.message)
        name = f"client {client_of[node]}" if node in client_of else "a client"
        LOGGER.warning("Round %d: %s failed: %s", server_round, name, reason)


def parallel(
    proxies: list[ClientProxy], call: Callable[[ClientProxy], R], at_once: int = MAX_THREADS
) -> list[tuple[ClientProxy, R | Exception]]:
    """Call every proxy, at most `at_once` at the same time; an exception is an answer."""

    def attempt(proxy: ClientProxy) -> tuple[ClientProxy, R | Exception]:
        try:
            answer = call(proxy)
            if answer.status.code != Code.OK:
                return proxy, RuntimeError(answer.status.message or f"status {answer.status.code.name}")
            return proxy, answer
        except Exception as error:  # noqa: BLE001 - whatever a client's message raises is that client's failure
            return proxy, error

    threads = min(len(proxies), at_once)
    if threads <= 1:
        return [attempt(proxy) for proxy in proxies]
    with ThreadPoolExecutor(threads) as pool:
        return list(pool.map(attempt, proxies))
