"""Connection of a SuperNode to the Fleet API over HTTP, from 1.40 on: a refusal is an exception, as it is over gRPC.

`fleet_http_connection.flwr_exit` ends the process at the first refusal; it becomes an exception, so that
`simulation.deployment.supernode.retrying` may try again. Where the SuperLink's certificate is not trusted, Flower tries
again without end or word: that is a refusal here. A SuperNode that takes a connection from outside would replace this
file.
"""

from importlib import import_module
from typing import Any

from simulation.flower_internals.transport import FLEET_OVER_GRPC

HTTP_CONNECTION = "flwr.supernode.fleet_http_connection"
CLIENT_HOOK, EXIT_HOOK, FIRST_CALLS = "FleetHttpClient", "flwr_exit", ("RegisterNode", "ActivateNode")
UNTRUSTED = "CERTIFICATE_VERIFY_FAILED"


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
