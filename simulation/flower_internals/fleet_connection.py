"""Connection of a SuperNode to the Fleet API, by a client that carries objects (see `fleet_calls`).

Over gRPC, to 1.39, `start_client_internal.grpc_request_response` makes the connection and is handed a stub.
Over HTTP, from 1.40 on, `fleet_http_connection.FleetHttpClient` is the client, and `flwr_exit` there ends the process
at the first refusal; it becomes an exception, so that `simulation.deployment.supernode.retrying` may try again. Where
the SuperLink's certificate is not trusted, Flower tries again without end or word: that is a refusal here. A SuperNode
that takes a connection from outside would replace this file.
"""

from functools import partial
from importlib import import_module
from types import SimpleNamespace
from typing import Any

from flwr.supercore.object_store import ObjectStore

from simulation.flower_internals.fleet_calls import carrying
from simulation.flower_internals.transport import FLEET_OVER_GRPC

NODE = "flwr.supernode.start_client_internal"
HTTP_CONNECTION = "flwr.supernode.fleet_http_connection"
STUB_HOOK, CLIENT_HOOK, EXIT_HOOK = "grpc_request_response", "FleetHttpClient", "flwr_exit"
UNTRUSTED = "CERTIFICATE_VERIFY_FAILED"


class RefusedError(RuntimeError):
    """A SuperLink that refuses a SuperNode, or is not trusted."""


def connect_carrying(store: ObjectStore) -> None:
    """Let the SuperNode's connection carry the objects of small messages; `store` has those of its replies."""
    if FLEET_OVER_GRPC:
        from flwr.proto.fleet_pb2_grpc import FleetStub

        node = import_module(NODE)
        stub = partial(_carrying_stub, FleetStub, store)
        setattr(node, STUB_HOOK, partial(getattr(node, STUB_HOOK), adapter_cls=stub))
        return
    connection = import_module(HTTP_CONNECTION)
    client = getattr(connection, CLIENT_HOOK)

    def from_server_address(*arguments: Any, **options: Any) -> Any:
        made = client.from_server_address(*arguments, **options)
        for name in ("RegisterNode", "ActivateNode"):
            setattr(made, name, partial(_trusting, getattr(made, name)))
        return carrying(made, store)

    setattr(connection, CLIENT_HOOK, SimpleNamespace(from_server_address=from_server_address))
    setattr(connection, EXIT_HOOK, _refuse)


def _carrying_stub(stub: Any, store: ObjectStore, channel: Any) -> Any:
    return carrying(stub(channel), store)


def _trusting(call: Any, request: Any) -> Any:
    """Make a first call; a certificate that is not trusted is a refusal."""
    try:
        return call(request)
    except Exception as error:
        if UNTRUSTED in str(error):
            raise RefusedError(f"{UNTRUSTED}: {error}") from error
        raise


def _refuse(code: int, message: str) -> None:
    print(message, flush=True)
    raise RefusedError(message)
