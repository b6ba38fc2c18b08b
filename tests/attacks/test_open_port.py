"""The open port (N4, N5): nothing large is read of callers without a key, and a finished run has ended with 0."""

import asyncio
import concurrent.futures
import resource
import threading
from importlib import import_module
from types import SimpleNamespace

import grpc
import pytest
from fastapi import FastAPI
from rich.console import Console

from simulation.deployment import deployed_run
from simulation.deployment.flower_cli import RunResult
from simulation.flower_internals import port_limits
from simulation.flower_internals.port_limits import hide_schema, limited_app, server_options, unread_refusal
from simulation.flower_internals.transport import FLEET_OVER_GRPC

MB = 10**6
METHOD = "/flwr.proto.Fleet/PushObject"


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
    body, codes = bytes(7 * MB), []
    threads = [threading.Thread(target=lambda: codes.append(call(served.address, body))) for _ in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert codes == [grpc.StatusCode.UNAUTHENTICATED] * 16


@pytest.mark.skipif(not FLEET_OVER_GRPC, reason="the Fleet API is HTTP")
def test_flower_still_has_the_places_that_are_limited():
    flower_superlink = import_module("flwr.superlink.cli.flower_superlink")
    module = import_module("flwr.server.superlink.fleet.grpc_rere.node_auth_server_interceptor")
    assert callable(getattr(flower_superlink, port_limits.FLEET_SERVER))
    assert callable(getattr(module, port_limits.TERMINATOR))
    assert callable(module.NodeAuthServerInterceptor.intercept_service)
    assert callable(flower_superlink.uvicorn.run)


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
    app = limited_app(reads_all, 8 * MB)
    assert answers(app, 7 * MB, 7 * MB) == (200, 7 * MB)
    assert answers(app, 1000 * MB, 1000 * MB) == (413, 0)
    assert answers(app, 1000 * MB, headers=[(b"transfer-encoding", b"chunked")]) == (413, 0)
    assert answers(app, 0, "-1")[0] == 413
    assert answers(app, 1) == (200, 1)


def test_the_description_of_the_api_is_off():
    app = FastAPI()
    app.get("/kept")(lambda: "yes")

    def status(path):
        return answers(app, 0, method="GET", path=path)[0]

    assert status("/openapi.json") == 200
    hide_schema(app)
    assert [status(path) for path in ("/openapi.json", "/docs", "/kept")] == [404, 404, 200]


def test_a_superlink_may_have_as_many_connections_as_the_system_allows():
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(256, hard), hard))
        port_limits.raise_file_limit()
        assert resource.getrlimit(resource.RLIMIT_NOFILE) == (hard, hard)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.parametrize(("finished", "code"), [(True, 0), (False, 1)])
def test_a_run_whose_summary_is_written_has_ended_with_0(tmp_path, monkeypatch, finished, code):
    """N5: all rounds and the summary were there, and "No heartbeat received from the task" ended it with 1."""

    def submit(*arguments):
        if finished:
            (tmp_path / "summary.json").touch()
        return RunResult(1, "finished:failed", "No heartbeat received from the task")

    monkeypatch.setattr(deployed_run, "submit", submit)
    monkeypatch.setattr("simulation.report.run_report.report_run", lambda folder, console: None)
    config = deployed_run.AppConfig.from_values({"strategy": "random", "out": str(tmp_path)})
    assert deployed_run.run_submitted(config, "fedsel", None, Console(quiet=True)) == code
    if finished:
        assert deployed_run.run_submitted(config, "fedsel", None, Console(quiet=True)) == 1, "it was there before"
