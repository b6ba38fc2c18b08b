"""The open port (N4, N5): nothing large is read of callers without a key, and a finished run has ended with 0."""

import asyncio
import concurrent.futures
import resource
from base64 import b64encode
from functools import partial
from importlib import import_module
from itertools import product
from pathlib import Path
from types import SimpleNamespace

import grpc
import pytest
from flwr.common.constant import PUBLIC_KEY_HEADER, SIGNATURE_HEADER, TIMESTAMP_HEADER
from flwr.proto.fleet_pb2 import ActivateNodeRequest
from flwr.supercore.constant import TASK_TOKEN_HEADER
from flwr.supercore.date import now
from flwr.supercore.primitives.asymmetric import generate_key_pairs, public_key_to_bytes, sign_message

from simulation.operations.deployment.local_deployment import Deployment
from simulation.operations.guard import port_limits
from simulation.operations.guard.port_limits import limited_app, server_options, shows_key, unread_refusal
from simulation.operations.guard.transport import FLEET_OVER_GRPC, HERE
from tests.support import floods
from tests.support.floods import MB, METHOD, together
from tests.support.processes import SUPERLINK, looks_in_proc, memory_mb, nodes, running


@pytest.fixture
def served():
    """Address of a gRPC server whose one method has a handler that may be given; and a box for the handler."""
    box = SimpleNamespace(handler=None)

    class Handlers(grpc.GenericRpcHandler):
        def service(self, details):
            return box.handler

    server = grpc.server(
        concurrent.futures.ThreadPoolExecutor(8), handlers=[Handlers()], options=[*server_options(8 * MB).items()]
    )
    box.address = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    server.start()
    yield box
    server.stop(None)


def call(address, body):
    unlimited = [("grpc.max_send_message_length", -1)]
    with grpc.insecure_channel(address, options=unlimited) as channel:
        try:
            return channel.unary_unary(METHOD)(body, timeout=60)
        except grpc.RpcError as error:
            return error.code()


def test_a_message_above_what_any_model_needs_is_refused_by_its_length(served):
    served.handler = grpc.unary_unary_rpc_method_handler(lambda body, context: str(len(body)).encode())
    assert call(served.address, bytes(7 * MB)) == b"7000000"
    assert call(served.address, bytes(200 * MB)) == grpc.StatusCode.RESOURCE_EXHAUSTED


def test_a_call_without_a_key_is_refused_unread(served):
    """Many callers at once, each within the limit of one message: their bodies do not add up in memory."""
    served.handler = unread_refusal("Missing authentication metadata")
    body = bytes(7 * MB)
    assert together([lambda: call(served.address, body)] * 16) == [grpc.StatusCode.UNAUTHENTICATED] * 16


@pytest.mark.skipif(not FLEET_OVER_GRPC, reason="Flower itself compares the keys over HTTP")
def test_a_key_activates_its_own_node_alone(monkeypatch):
    """A stranger with any key activated the node of a public key, whose client was then refused for an hour."""
    module = import_module("flwr.server.superlink.fleet.grpc_rere.node_auth_server_interceptor")
    monkeypatch.setattr(module, port_limits.TERMINATOR, getattr(module, port_limits.TERMINATOR))
    interceptor = module.NodeAuthServerInterceptor
    monkeypatch.setattr(interceptor, "intercept_service", interceptor.intercept_service)
    port_limits.refuse_unknown_keys()
    links = SimpleNamespace(state=lambda: SimpleNamespace(get_node_id_by_public_key=lambda key: None))
    activate = grpc.unary_unary_rpc_method_handler(lambda request, context: request.public_key)
    (mine, own), (_, other) = generate_key_pairs(), generate_key_pairs()
    signed_at, key = now().isoformat(), public_key_to_bytes(own)
    signature = sign_message(mine, signed_at.encode())
    headers = ((PUBLIC_KEY_HEADER, key), (TIMESTAMP_HEADER, signed_at), (SIGNATURE_HEADER, signature))
    details = SimpleNamespace(method="/flwr.proto.Fleet/ActivateNode", invocation_metadata=headers)
    answer = interceptor(links).intercept_service(lambda _: activate, details).unary_unary

    def abort(code, message):
        raise PermissionError(message)

    context = SimpleNamespace(abort=abort)
    assert answer(ActivateNodeRequest(public_key=key), context) == key
    with pytest.raises(PermissionError):
        answer(ActivateNodeRequest(public_key=public_key_to_bytes(other)), context)


def answers(app, body, length=None, chunk=MB, **scope):
    """Status of an ASGI app's answer to a body, and the bytes that it took of it."""
    headers = [] if length is None else [(b"content-length", str(length).encode())]
    sent, taken = [], 0

    async def receive():
        nonlocal taken
        part = min(chunk, body - taken)
        taken += part
        return {"type": "http.request", "body": bytes(part), "more_body": taken < body}

    async def send(message):
        sent.append(message)

    scope = {"type": "http", "headers": headers, "method": "POST", "path": "/", "query_string": b""} | scope
    asyncio.run(app(scope, receive, send))
    return sent[0]["status"], taken


async def reads_all(scope, receive, send):
    while (await receive())["more_body"]:
        pass
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b""})


def test_bodies_over_http_are_bounded():
    app = limited_app(reads_all, lambda body_bytes, path, headers: body_bytes <= 8 * MB)
    assert answers(app, 7 * MB, 7 * MB) == (200, 7 * MB)
    assert answers(app, 1000 * MB, 1000 * MB) == (413, 0)
    assert answers(app, 1000 * MB, headers=[(b"transfer-encoding", b"chunked")]) == (413, 0)
    assert answers(app, 0, "-1")[0] == 413
    assert answers(app, 1) == (200, 1)


def test_bodies_over_http_of_callers_without_a_key_are_bounded_to_little(monkeypatch):
    """Sixteen bodies of 62 MB, none of which is too large by itself, took 1,400 MB."""
    nodes, tasks, signed_at = {}, {"token": "task"}, "2026-01-01T00:00:00+00:00"
    links = SimpleNamespace(get_task_by_token=tasks.get, get_node_id_by_public_key=nodes.get)
    state = SimpleNamespace(linkstate_factory=SimpleNamespace(state=lambda: links))
    private, public = generate_key_pairs()
    key, signature = public_key_to_bytes(public), sign_message(private, signed_at.encode())
    headers = {
        "flwr-public-key": b64encode(key).decode(),
        "flwr-signature": b64encode(signature).decode(),
        TIMESTAMP_HEADER: signed_at,
    }

    def shown(path, **changed):
        return shows_key(state, path, headers | changed)

    assert not shown("/v1/fleet/push-object"), "a key that nobody admitted"
    nodes[key] = 7
    assert shows_key(state, "/v1/runtime/push-object", {TASK_TOKEN_HEADER: "token"})
    assert not shows_key(state, "/v1/runtime/push-object", {TASK_TOKEN_HEADER: "another"})
    assert not shows_key(state, "/v1/runtime/push-object", {})
    assert not shows_key(state, "/v1/fleet/push-object", {})
    assert shows_key(state, "/v1/control/start-run", {}), "Flower asks for an account before it reads"
    assert not shows_key(state, "/v1/control/get-auth-tokens", {})
    if not FLEET_OVER_GRPC:
        assert shown("/v1/fleet/push-object")
        assert not shown("/v1/fleet/push-object", **{TIMESTAMP_HEADER: "2026-01-01T00:00:01+00:00"})
        assert not shown("/v1/fleet/push-object", **{"flwr-signature": "no base64"})
        assert not shown("/v1/fleet/push-object", **{"flwr-public-key": b64encode(b"no key").decode()})


def test_a_superlink_may_have_as_many_connections_as_the_system_allows():
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(256, hard), hard))
        port_limits.raise_file_limit()
        assert resource.getrlimit(resource.RLIMIT_NOFILE) == (hard, hard)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


PATHS = ["/v1/runtime/push-object", *([] if FLEET_OVER_GRPC else ["/v1/fleet/push-object"])]


@pytest.mark.slow
@pytest.mark.e2e
@pytest.mark.timeout(600)
@looks_in_proc
def test_a_gigabyte_without_a_key_leaves_the_memory_of_a_superlink(tmp_path):
    """N4: 175 MB became 1,851 by three calls over gRPC, and 2,151 by one body over HTTP."""
    with Deployment(tmp_path / "processes", nodes(tmp_path / "state")[:1]) as deployment:
        superlink = deployment._children[SUPERLINK]
        [pid] = running(superlink, "simulation.operations.guard.superlink")
        rest, arguments = memory_mb(pid), superlink.command
        http = f"{HERE}:{arguments[arguments.index('--port') + 1]}"
        authority, peaks = deployment.federation.certificate.read_bytes(), {}
        if FLEET_OVER_GRPC:
            for size, times in ((333, 3), (7, 150)):
                together([partial(floods.call, deployment.fleet, authority, bytes(size * MB))] * times)
                peaks[f"{times} calls of {size} MB"] = peak_mb(pid)
        for path, (size, times), chunked in product(PATHS, ((1000, 1), (62, 16)), (False, True)):
            together([partial(floods.post, http, path, size, tls=not FLEET_OVER_GRPC, chunked=chunked)] * times)
            peaks[f"{times} bodies of {size} MB to {path}{', chunked' * chunked}"] = peak_mb(pid)
    print(
        f"at rest {rest:.0f} MB; most so far after {', after '.join(f'{one} {mb:.0f} MB' for one, mb in peaks.items())}"
    )
    assert {flood: peak for flood, peak in peaks.items() if peak > rest + 400} == {}


def peak_mb(pid):
    """MiB that the process has held at most."""
    return float(Path(f"/proc/{pid}/status").read_text().split("VmHWM:")[1].split()[0]) / 1024
