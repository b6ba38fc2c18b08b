"""Limits of the SuperLink's ports: a caller without a known key cannot make the SuperLink read much.

- Flower's gRPC servers accept messages of 2 GiB. SuperNodes send arrays in chunks, so a message is never larger than a
  chunk and a small envelope. `limit_fleet_server` sets that limit, which gRPC checks before it reads a message. It also
  closes connections that do not finish their handshake or stay idle; a SuperNode reconnects by itself.
- Flower reads a whole message before it refuses an unknown key. `refuse_unknown_keys` refuses it without reading. Over
  gRPC Flower also lets a caller with any key of its own activate the node of a key that it merely knows, so that the
  client of this key is refused for an hour. `refuse_unknown_keys` refuses that too.
- Over HTTP Flower reads a body before it checks the key of a node or the token of a task. `limited_app` bounds the
  bodies of HTTP requests; callers whose headers show neither (`shows_key`) may send only what a request for admission
  needs. Flower itself checks the account of a Control API call before it reads the body.
- `raise_file_limit` allows as many connections as the system's hard limit of open files.

Options of Flower's SuperLink for these limits would replace this file.
"""

import resource
from base64 import b64decode
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from importlib import import_module
from types import SimpleNamespace
from typing import Any

import grpc  # type: ignore[import-untyped]

from simulation.operations.guard.transport import FLEET_OVER_GRPC

AROUND_BYTES = 3 * 2**20
"""Most bytes of a message in addition to a chunk of an array: other objects, and the tree of their names."""
MOST_BODY_BYTES = 2**26
"""Most bytes of an HTTP body; the largest is a submitted app."""
MOST_KEYLESS_BYTES = 2**16
"""Most bytes of an HTTP body from a caller without a key; the largest is a request for admission."""
CONTROL, FLEET = "/v1/control/", "/v1/fleet/"
LOGIN = ("/get-login-details", "/get-auth-tokens", "/refresh-auth-tokens")
"""Endings of the paths of Control API calls that need no account."""
HANDSHAKE_MS, IDLE_MS = 10_000, 120_000
FLEET_SERVER = "generic_create_grpc_server"
TERMINATOR = "_unary_unary_rpc_terminator"
ENTERING = ("/RegisterNode", "/ActivateNode")
"""Calls of the Fleet API that a node makes before the SuperLink knows its key."""
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Headers = Mapping[str, str]
App = Callable[[Message, Receive, Send], Awaitable[None]]


def limit_ports(program: Any) -> None:
    """Set these limits for the servers that Flower's SuperLink, the module `program`, is about to start."""
    raise_file_limit()
    limit_fleet_server(program)
    refuse_unknown_keys()
    limit_http(program)


def raise_file_limit() -> None:
    """Let this process open as many files and connections as the system's hard limit allows."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def limit_fleet_server(program: Any) -> None:
    """Have `program` start its Fleet API with `server_options`."""
    from flwr.common.constant import FLWR_PRIVATE_MAX_ARRAY_CHUNK_SIZE

    if not hasattr(program, FLEET_SERVER):
        return
    flower_grpc: Any = import_module("flwr.supercore.grpc")
    create, limits = getattr(program, FLEET_SERVER), server_options(FLWR_PRIVATE_MAX_ARRAY_CHUNK_SIZE + AROUND_BYTES)

    def server(*arguments: Any, options: Any = (), **rest: Any) -> grpc.Server:
        others = [(name, value) for name, value in options if name not in limits]
        return grpc.server(*arguments, options=[*others, *limits.items()], **rest)

    def create_limited(*arguments: Any, **named: Any) -> Any:
        flower_grpc.grpc = SimpleNamespace(**{**vars(grpc), "server": server})
        try:
            return create(*arguments, **named)
        finally:
            flower_grpc.grpc = grpc

    setattr(program, FLEET_SERVER, create_limited)


def server_options(most_bytes: int) -> dict[str, int]:
    """Options of a gRPC server that reads messages of at most `most_bytes` and closes idle connections."""
    return {
        "grpc.max_receive_message_length": most_bytes,
        "grpc.server_handshake_timeout_ms": HANDSHAKE_MS,
        "grpc.max_connection_idle_ms": IDLE_MS,
    }


def refuse_unknown_keys() -> None:
    """Refuse calls of the Fleet API without a known key, before their messages are read, and those for another key."""
    from flwr.common.constant import PUBLIC_KEY_HEADER
    from flwr.supercore.utils import get_metadata_bytes

    if not FLEET_OVER_GRPC:
        return
    module: Any = import_module("flwr.server.superlink.fleet.grpc_rere.node_auth_server_interceptor")
    interceptor = module.NodeAuthServerInterceptor
    intercept = interceptor.intercept_service

    def intercept_known(self: Any, continuation: Any, details: Any) -> grpc.RpcMethodHandler:
        key = get_metadata_bytes(details.invocation_metadata, PUBLIC_KEY_HEADER)
        entering = details.method.endswith(ENTERING)
        if key and not entering and self.state_factory.state().get_node_id_by_public_key(key) is None:
            return unread_refusal("Unknown public key")
        answer = (lambda details: for_own_key(continuation(details), key)) if entering else continuation
        return intercept(self, answer, details)

    setattr(module, TERMINATOR, unread_refusal)
    module.NodeAuthServerInterceptor.intercept_service = intercept_known


def for_own_key(handler: grpc.RpcMethodHandler, key: bytes | None) -> grpc.RpcMethodHandler:
    """Wrap a handler so that it refuses a request that names another public key than the caller's `key`."""

    def answer(request: Any, context: grpc.ServicerContext) -> Any:
        if getattr(request, "public_key", key) != key:
            context.abort(grpc.StatusCode.UNAUTHENTICATED, "Another public key than the caller's")
        return handler.unary_unary(request, context)

    return grpc.unary_unary_rpc_method_handler(answer, handler.request_deserializer, handler.response_serializer)


def unread_refusal(message: str, code: Any = grpc.StatusCode.UNAUTHENTICATED) -> grpc.RpcMethodHandler:
    """Handler that refuses a call without reading it: a stream handler, as gRPC reads streams on demand."""

    def refuse(requests: Any, context: grpc.ServicerContext) -> None:
        context.abort(code, message)

    return grpc.stream_unary_rpc_method_handler(refuse)


def limit_http(program: Any) -> None:
    """Let `program` serve its app over HTTP behind `limited_app`, without a log of the requests."""
    uvicorn = program.uvicorn

    def run(app: Any, **options: Any) -> None:
        def fits(body_bytes: int, path: str, headers: Headers) -> bool:
            if body_bytes <= MOST_KEYLESS_BYTES:
                return True
            return body_bytes <= MOST_BODY_BYTES and shows_key(app.state, path, headers)

        uvicorn.run(app=limited_app(app, fits), **{**options, "access_log": False})

    program.uvicorn = SimpleNamespace(**{**vars(uvicorn), "run": run})


def shows_key(state: Any, path: str, headers: Headers) -> bool:
    """True if the headers of a request show a known caller, or if Flower checks that before it reads the body.

    `state` is that of Flower's app.
    """
    from flwr.supercore.constant import TASK_TOKEN_HEADER

    if path.startswith(CONTROL):
        return not path.endswith(LOGIN)
    links = state.linkstate_factory.state()
    if token := headers.get(TASK_TOKEN_HEADER):
        return links.get_task_by_token(token) is not None
    if FLEET_OVER_GRPC or not path.startswith(FLEET):
        return False
    return _signed_by_a_node(links, headers)


def _signed_by_a_node(links: Any, headers: Headers) -> bool:
    """True if an admitted node signed the time in the headers; Flower checks its age."""
    from flwr.common.constant import TIMESTAMP_HEADER
    from flwr.supercore.primitives.asymmetric import bytes_to_public_key, verify_signature

    constant: Any = import_module("flwr.supercore.constant")
    try:
        key, signature = (
            b64decode(headers[name], validate=True)
            for name in (constant.FLEET_HTTP_PUBLIC_KEY_HEADER, constant.FLEET_HTTP_SIGNATURE_HEADER)
        )
        signed = verify_signature(bytes_to_public_key(key), headers[TIMESTAMP_HEADER].encode("ascii"), signature)
    except (KeyError, ValueError):
        return False
    return signed and links.get_node_id_by_public_key(key) is not None


def limited_app(app: App, fits: Callable[[int, str, Headers], bool]) -> App:
    """ASGI app that passes requests on to `app` if their bodies fit. It answers all others, and those without a length,
    with 413 and does not read their bodies.

    `fits` is called with a body's length in bytes, and the path and the headers of its request.
    """

    async def limited(scope: Message, receive: Receive, send: Send) -> None:
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope.get("headers", ())}
        length = headers.get("content-length", "0")
        measured = length.isascii() and length.isdigit() and "transfer-encoding" not in headers
        if not measured or not fits(int(length), scope.get("path", ""), headers):
            await send({"type": "http.response.start", "status": 413, "headers": [(b"connection", b"close")]})
            await send({"type": "http.response.body", "body": b"The body is too large, or has no length."})
            return
        await app(scope, receive, send)

    return limited
