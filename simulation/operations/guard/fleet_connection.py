"""Connection of a SuperNode to the Fleet API: refusals become exceptions and are explained.

From 1.40 on, over HTTP, `fleet_http_connection.flwr_exit` ends the process at the first refusal. Here it raises an
exception, so that `guard.supernode_process.retrying` can try again.

A refused SuperNode does not say why: its key may be unknown or its clock wrong. `why_refused` asks beforehand, by a
heartbeat of no node, which changes nothing. Errors with a reason in Flower would replace this file.
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

from simulation.operations.guard.transport import FLEET_OVER_GRPC

HTTP_CONNECTION = "flwr.supernode.fleet_http_connection"
EXIT_HOOK = "flwr_exit"
NO_NODE, WRONG_CLOCK = "Invalid node ID", "Invalid timestamp"
"""Flower's answers to a heartbeat of no node with a known key, and to a signature at a wrong time."""
HEARTBEAT = SendNodeHeartbeatRequest(node=Node(node_id=0), heartbeat_interval=30.0)
ASK_S, AHEAD_S, BEHIND_S = 10.0, 5.0, 305.0
"""Most seconds until the answer; most seconds that this clock may be ahead of the server's, and behind it."""


class RefusedError(RuntimeError):
    """The SuperLink refuses the SuperNode."""


def refuse_by_exceptions() -> None:
    """Let the SuperNode's connection raise RefusedError after a refusal."""
    if not FLEET_OVER_GRPC:
        setattr(import_module(HTTP_CONNECTION), EXIT_HOOK, _refuse)


def why_refused(address: str, certificate: Path, key: Path) -> str:
    """Reason why the SuperLink at `address` refuses this private key; empty if it accepts the key.

    Raises OSError if the SuperLink cannot be reached, or a file cannot be read.
    """
    private: Any = load_ssh_private_key(key.read_bytes(), None)
    ask = _refused_over_grpc if FLEET_OVER_GRPC else _refused_over_http
    answer = ask(address, certificate, (private, private.public_key()))
    return "" if NO_NODE in answer else answer


def _refused_over_grpc(address: str, certificate: Path, keys: tuple[Any, Any]) -> str:
    grpc: Any = import_module("grpc")
    authenticating: Any = import_module("flwr.client.grpc_rere_client.node_auth_client_interceptor")
    released: Any = import_module("flwr.supercore.interceptors")
    interceptors = [released.RuntimeVersionClientInterceptor(component_name="SuperNode")]
    interceptors.append(authenticating.NodeAuthClientInterceptor(*keys))
    channel = import_module("flwr.supercore.grpc").create_channel(
        address, insecure=False, root_certificates=certificate.read_bytes(), interceptors=interceptors
    )
    with channel:
        try:
            FleetStub(channel).SendNodeHeartbeat(HEARTBEAT, timeout=ASK_S)
        except grpc.RpcError as error:
            if error.code() != grpc.StatusCode.UNAUTHENTICATED:
                raise ConnectionError(error.details()) from error
            return str(error.details())
    return ""


def _refused_over_http(address: str, certificate: Path, keys: tuple[Any, Any]) -> str:
    """Flower gives the same answer for all reasons. Its date header distinguishes a wrong clock from an unknown key."""
    httpx: Any = import_module("httpx")
    connection: Any = import_module(HTTP_CONNECTION)
    interceptors = [connection.RuntimeVersionHttpInterceptor(component_name="SuperNode")]
    interceptors.append(connection.NodeAuthHttpInterceptor(*keys))
    with connection.FleetHttpClient.from_server_address(address, False, str(certificate), interceptors) as client:
        try:
            client.SendNodeHeartbeat(HEARTBEAT)
        except httpx.HTTPStatusError as error:
            ahead_s = (datetime.now(UTC) - parsedate_to_datetime(error.response.headers["date"])).total_seconds()
            return "" if -BEHIND_S < ahead_s < AHEAD_S else WRONG_CLOCK
        except httpx.TransportError as error:
            raise ConnectionError(str(error)) from error
    return ""


def _refuse(code: int, message: str) -> None:
    print(message, flush=True)
    raise RefusedError(message)
