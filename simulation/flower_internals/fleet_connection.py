"""Connection of a SuperNode to the Fleet API over HTTP, from 1.40 on: a refusal is an exception, as it is over gRPC.

`fleet_http_connection.flwr_exit` ends the process at the first refusal; it becomes an exception, so that
`simulation.deployment.supernode.retrying` may try again. Where the SuperLink's certificate is not trusted, Flower tries
again without end or word: that is a refusal here. A SuperNode that takes a connection from outside would replace this.

A SuperNode ends without a word where the SuperLink does not know its key, or finds its clock wrong. `why_refused` asks
before, by the call of a heartbeat for no node, which changes nothing. An answer to that in Flower would replace it.
"""

from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from importlib import import_module
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.serialization import load_ssh_private_key
from flwr.proto.fleet_pb2_grpc import FleetStub
from flwr.proto.heartbeat_pb2 import SendNodeHeartbeatRequest
from flwr.proto.node_pb2 import Node

from simulation.flower_internals.transport import FLEET_OVER_GRPC

HTTP_CONNECTION = "flwr.supernode.fleet_http_connection"
CLIENT_HOOK, EXIT_HOOK, FIRST_CALLS = "FleetHttpClient", "flwr_exit", ("RegisterNode", "ActivateNode")
UNTRUSTED = "CERTIFICATE_VERIFY_FAILED"
NO_NODE, WRONG_CLOCK = "Invalid node ID", "Invalid timestamp"
"""Flower's words for a heartbeat of a known key for no node, and for a signature of another time than the server's."""
HEARTBEAT = SendNodeHeartbeatRequest(node=Node(node_id=0), heartbeat_interval=30.0)
ASK_S, AHEAD_S, BEHIND_S = 10.0, 5.0, 305.0
"""Seconds that the answer may take, and by which this machine's clock may be ahead of the server's, or behind it."""


class RefusedError(RuntimeError):
    """A SuperLink that refuses a SuperNode, or is not trusted."""


def refuse_by_exceptions() -> None:
    """Let the SuperNode's connection raise RefusedError where it is refused."""
    if FLEET_OVER_GRPC:
        return
    connection = import_module(HTTP_CONNECTION)
    client = getattr(connection, CLIENT_HOOK)
    for name in FIRST_CALLS:
        setattr(client, name, _trusting(getattr(client, name)))
    setattr(connection, EXIT_HOOK, _refuse)


def why_refused(address: str, authority: Path, key: Path) -> str:
    """Words in which the SuperLink at `address` refuses calls with this private key; empty where it takes them.

    Raises OSError if it cannot be reached, or a file cannot be read.
    """
    private: Any = load_ssh_private_key(key.read_bytes(), None)
    ask = _refused_over_grpc if FLEET_OVER_GRPC else _refused_over_http
    said = ask(address, authority, (private, private.public_key()))
    return "" if NO_NODE in said else said


def _refused_over_grpc(address: str, authority: Path, keys: tuple[Any, Any]) -> str:
    grpc: Any = import_module("grpc")
    known: Any = import_module("flwr.client.grpc_rere_client.node_auth_client_interceptor")
    released: Any = import_module("flwr.supercore.interceptors")
    interceptors = [released.RuntimeVersionClientInterceptor(component_name="SuperNode")]
    interceptors.append(known.NodeAuthClientInterceptor(*keys))
    channel = import_module("flwr.supercore.grpc").create_channel(
        address, insecure=False, root_certificates=authority.read_bytes(), interceptors=interceptors
    )
    with channel:
        try:
            FleetStub(channel).SendNodeHeartbeat(HEARTBEAT, timeout=ASK_S)
        except grpc.RpcError as error:
            if error.code() != grpc.StatusCode.UNAUTHENTICATED:
                raise ConnectionError(error.details()) from error
            return str(error.details())
    return ""


def _refused_over_http(address: str, authority: Path, keys: tuple[Any, Any]) -> str:
    """Flower has one answer for all reasons here; the hour in its head tells a wrong clock from an unknown key."""
    httpx: Any = import_module("httpx")
    connection: Any = import_module(HTTP_CONNECTION)
    interceptors = [connection.RuntimeVersionHttpInterceptor(component_name="SuperNode")]
    interceptors.append(connection.NodeAuthHttpInterceptor(*keys))
    with connection.FleetHttpClient.from_server_address(address, False, str(authority), interceptors) as client:
        try:
            client.SendNodeHeartbeat(HEARTBEAT)
        except httpx.HTTPStatusError as error:
            ahead_s = (datetime.now(UTC) - parsedate_to_datetime(error.response.headers["date"])).total_seconds()
            return "" if -BEHIND_S < ahead_s < AHEAD_S else WRONG_CLOCK
        except httpx.TransportError as error:
            raise ConnectionError(str(error)) from error
    return ""


def _trusting(call: Any) -> Any:
    """Wrap a first call; a certificate that is not trusted is a refusal."""

    def trusting(self: Any, request: Any) -> Any:
        try:
            return call(self, request)
        except Exception as error:
            if UNTRUSTED in str(error):
                raise RefusedError(f"{UNTRUSTED}: {error}") from error
            raise

    return trusting


def _refuse(code: int, message: str) -> None:
    print(message, flush=True)
    raise RefusedError(message)
