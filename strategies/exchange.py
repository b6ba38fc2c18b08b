"""Talking to the connected clients through Flower's proxies, by partition id."""

import json
import math
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from io import BytesIO
from typing import TypeVar

import numpy as np
from flwr.common import (
    EvaluateIns,
    EvaluateRes,
    FitIns,
    FitRes,
    GetPropertiesIns,
    Parameters,
    Scalar,
    ndarrays_to_parameters,
)
from flwr.server.client_manager import ClientManager
from flwr.server.client_proxy import ClientProxy
from numpy.typing import NDArray

from fedsel_app.config import ConfigError
from fedsel_app.wire import Update, WireError
from fedsel_app.wire import decode as wire_decode

R = TypeVar("R")

MAX_THREADS = 128
MOST_BYTES_A_PARAMETER = 8
SCALAR_BYTES = 8
"""What one reported number (a loss, a count) is charged on the uplink."""


def pack(parameters: NDArray[np.float32], buffers: NDArray[np.float32]) -> Parameters:
    """The global model as Flower sends it: the flat parameters, and the BatchNorm statistics where there are any."""
    return ndarrays_to_parameters([parameters, buffers] if buffers.size else [parameters])


def model_bytes(parameters: Parameters) -> int:
    """Bytes of one transfer of the global model."""
    return sum(len(tensor) for tensor in parameters.tensors)


def unpack_array(parameters: Parameters, dtype: type[np.generic], most: int) -> NDArray[np.generic]:
    """The one array of a client's reply, of `dtype` and at most `most` entries. Raises WireError if it is not that."""
    if len(parameters.tensors) != 1:
        raise WireError(f"expected one array, got {len(parameters.tensors)}")
    return _unpack(parameters.tensors[0], dtype, most)


def _unpack(tensor: bytes, dtype: type[np.generic], most: int) -> NDArray[np.generic]:
    """An array as Flower sends it. Nothing is allocated before the header is checked."""
    stream = BytesIO(tensor)
    try:
        version = np.lib.format.read_magic(stream)
        if version != (1, 0):
            raise WireError(f"array format {version} is not (1, 0)")
        shape, _, found = np.lib.format.read_array_header_1_0(stream)
    except Exception as error:  # NumPy's parser raises nearly anything on a hostile header
        raise WireError(f"not an array: {error}") from error
    left = len(tensor) - stream.tell()
    if found != np.dtype(dtype) or len(shape) != 1 or shape[0] > most or shape[0] * found.itemsize != left:
        raise WireError(f"expected at most {most} {np.dtype(dtype)} in {left} bytes, the header says {shape} {found}")
    return np.frombuffer(tensor, found, offset=stream.tell())


def decode(
    reply: FitRes,
    client: int,
    server_round: int,
    size: int,
    metrics: Iterable[str],
    *,
    seed: int | None = None,
    payloads: int = 1,
) -> tuple[Update, int]:
    """The update in a client's reply, the first of its `payloads`, and its bytes on the wire; `seed` is the run's.

    Raises
    ------
    WireError
        If it is not a sound update of `size` parameters, of this client for this round, with finite `metrics`.
    """
    tensors = reply.parameters.tensors
    if len(tensors) != payloads:
        raise WireError(f"expected {payloads} payload{'s' if payloads > 1 else ''}, got {len(tensors)}")
    for name in metrics:
        number = reply.metrics.get(name)
        if not isinstance(number, float) or not math.isfinite(number):
            raise WireError(f"the update came without the finite number '{name}'")
    return decode_payload(tensors[0], client, server_round, size, seed)


def decode_payload(
    tensor: bytes, client: int, server_round: int, size: int, seed: int | None = None
) -> tuple[Update, int]:
    """One payload of a reply and its bytes on the wire; raises WireError as `decode` does."""
    payload = _unpack(tensor, np.uint8, MOST_BYTES_A_PARAMETER * size + 4096).tobytes()
    packet = wire_decode(payload, size=size, seed=seed)
    if (packet.client, packet.server_round) != (client, server_round):
        raise WireError(
            f"an update of client {packet.client} for round {packet.server_round}, "
            f"but client {client} was asked for round {server_round}"
        )
    return packet.update, len(payload)


def decode_counts(sent: Scalar, client: int, classes: int) -> NDArray[np.int64]:
    """Examples per class, int64 (classes,), from their little-endian bytes. Raises ConfigError if they are not."""
    if not isinstance(sent, bytes) or len(sent) != 8 * classes:
        raise ConfigError(f"Client {client} did not send the examples of each of {classes} classes.")
    return np.frombuffer(sent, "<i8").astype(np.int64)


@dataclass(frozen=True)
class Enrolment:
    """What a client told about itself when it first connected."""

    client: int
    properties: Mapping[str, Scalar]


class Clients:
    """The connected clients by partition id. Flower's own client ids are random in every run and never used."""

    def __init__(self, total: int, timeout_s: int, pool: int = 0) -> None:
        self._total = total
        self._timeout_s = timeout_s
        self._pool = pool
        self._client_of: dict[str, int] = {}
        self.proxies: dict[int, ClientProxy] = {}

    def refresh(self, manager: ClientManager, label_counts: bool = False, *, wait: bool) -> list[Enrolment]:
        """Update `proxies` to who is connected now and enrol the new ones, with their `label_counts` if asked.

        With `wait`, block until all are there.

        Raises
        ------
        ConfigError
            If fewer than all connect in time or two have the same partition id (both with `wait`), or if one's is
            outside 0 ... K-1 or it does not say what it has.
        """
        manager.num_available()
        if wait and not manager.wait_for(self._total, timeout=self._timeout_s):
            raise ConfigError(
                f"Only {manager.num_available()} of {self._total} clients connected within {self._timeout_s} s. "
                "Set 'clients' to the number of supernodes (or start more), or raise 'connect-timeout-s'."
            )
        connected = manager.all()
        new = [proxy for cid, proxy in connected.items() if cid not in self._client_of]
        ins = GetPropertiesIns({"label-counts": label_counts})
        answers = parallel(new, lambda proxy: proxy.get_properties(ins, timeout=None, group_id=None))
        enrolments = []
        for proxy, answer in answers:
            if isinstance(answer, Exception):
                raise ConfigError(f"A client could not say what it has: {answer}")
            client = answer.properties.get("client")
            if not isinstance(client, int) or not 0 <= client < self._total:
                raise ConfigError(
                    f"A client has partition id {client!r}, but 'clients' is {self._total}. "
                    "Set 'clients' to the number of supernodes."
                )
            for name in ("examples", "steps"):
                if not isinstance(answer.properties.get(name), int):
                    raise ConfigError(f"Client {client} did not tell its '{name}'; every client must run this app.")
            self._client_of[proxy.cid] = client
            enrolments.append(Enrolment(client, answer.properties))
        self.proxies = {self._client_of[cid]: proxy for cid, proxy in connected.items()}
        if wait and len(self.proxies) < len(connected):
            raise ConfigError(
                "Several clients have the same partition id; give each supernode a 'partition-id' of its own."
            )
        return sorted(enrolments, key=lambda enrolment: enrolment.client)

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
        return self._ask(clients, lambda proxy: proxy.evaluate(ins, timeout=None, group_id=None))

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
            parallel(list(asked), lambda proxy: proxy.evaluate(asked[proxy], timeout=None, group_id=None)),
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
        return self._ask(clients, lambda proxy: proxy.fit(ins, timeout=None, group_id=None))

    def train(self, instructions: list[tuple[ClientProxy, FitIns]]) -> dict[int, FitRes | Exception]:
        """Every client's answer to its own fit instruction, by ascending id."""
        told = dict(instructions)
        answers = parallel(list(told), lambda proxy: proxy.fit(told[proxy], timeout=None, group_id=None))
        return dict(sorted((self.client(proxy), answer) for proxy, answer in answers))

    def _ask(self, clients: Iterable[int], call: Callable[[ClientProxy], R]) -> dict[int, R | Exception]:
        answers = parallel([self.proxies[client] for client in clients], call)
        return dict(sorted((self.client(proxy), answer) for proxy, answer in answers))


def mean_loss(results: list[EvaluateRes]) -> float:
    """The mean loss over all tested examples; inf where it is no number, or nothing was tested."""
    examples = sum(result.num_examples for result in results)
    loss = sum(result.num_examples * result.loss for result in results) / examples if examples else math.inf
    return loss if math.isfinite(loss) else math.inf


def parallel(proxies: list[ClientProxy], call: Callable[[ClientProxy], R]) -> list[tuple[ClientProxy, R | Exception]]:
    """Call every proxy at the same time; an exception is an answer."""

    def attempt(proxy: ClientProxy) -> tuple[ClientProxy, R | Exception]:
        try:
            return proxy, call(proxy)
        except Exception as error:  # noqa: BLE001 - whatever a client's message raises is that client's failure
            return proxy, error

    if not proxies:
        return []
    with ThreadPoolExecutor(min(len(proxies), MAX_THREADS)) as pool:
        return list(pool.map(attempt, proxies))
