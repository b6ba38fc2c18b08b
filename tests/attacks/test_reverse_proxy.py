"""The reverse proxy of docs/security.md in front of an open port: what it lets through, and what it ends."""

import asyncio
import concurrent.futures
import getpass
import os
import re
import shutil
import socket
import ssl
import subprocess
import threading
import time
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from http.client import HTTPSConnection

import grpc
import pytest
import uvicorn

from simulation.operations.guard.port_limits import server_options
from simulation.operations.guard.transport import free_ports
from simulation.operations.machines.folders import make_federation
from tests.support.floods import MB, METHOD
from tests.support.sources import ROOT

NGINX = shutil.which("nginx") or shutil.which("/usr/sbin/nginx")
pytestmark = pytest.mark.skipif(NGINX is None, reason="nginx is not installed")
HELD_S, WAIT_S = 3.0, 2.0
SHORTENED = ("client_header_timeout", "client_body_timeout")
"""Timeouts of the page that last `WAIT_S` here."""
PATH = "/v1/fleet/push-object"
DATA, HEADERS, RST_STREAM, SETTINGS = 0, 1, 3, 4
"""Kinds of frames of HTTP/2."""


class Calls(grpc.GenericRpcHandler):
    """A server whose one method says how long its message was; an empty message is answered late."""

    def service(self, details):
        return grpc.unary_unary_rpc_method_handler(self.answer)

    @staticmethod
    def answer(body, context):
        if not body:
            time.sleep(HELD_S)
        return str(len(body)).encode()


async def requests(scope, receive, send):
    """An ASGI app that does the same."""
    assert scope["type"] == "http"
    taken, more = 0, True
    while more:
        message = await receive()
        more = message.get("more_body", False)
        taken += len(message.get("body", b""))
    if not taken:
        await asyncio.sleep(HELD_S)
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": str(taken).encode()})


@contextmanager
def over_grpc(server, port):
    key, certificate = ((server / f"server.{kind}").read_bytes() for kind in ("key", "crt"))
    backend = grpc.server(
        concurrent.futures.ThreadPoolExecutor(32), handlers=[Calls()], options=[*server_options(8 * MB).items()]
    )
    backend.add_secure_port(f"127.0.0.1:{port}", grpc.ssl_server_credentials([(key, certificate)]))
    backend.start()
    yield
    backend.stop(None)


@contextmanager
def over_http(server, port):
    files = {"ssl_keyfile": str(server / "server.key"), "ssl_certfile": str(server / "server.crt")}
    backend = uvicorn.Server(uvicorn.Config(requests, port=port, lifespan="off", ws="none", log_config=None, **files))
    thread = threading.Thread(target=backend.run)
    thread.start()
    yield
    backend.should_exit = True
    thread.join()


@contextmanager
def nginx(folder, server, outer, inner, **seconds):
    """Nginx with the configuration of the page, from port `outer` to `inner`, and other `seconds` of its timeouts."""
    [page] = re.findall(r"```nginx\n(.*?)```", (ROOT / "docs/security.md").read_text(encoding="utf-8"), re.DOTALL)
    limits = page.replace("9092", str(outer)).replace("9192", str(inner)).replace(" server/", f" {server}/")
    for name, value in seconds.items():
        limits, found = re.subn(rf"(?<={name} )\d+s", f"{value:.0f}s", limits)
        assert found == 1
    paths = "".join(
        f"{kind}_temp_path {folder}/{kind};\n" for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    owner = f"user {getpass.getuser()};\n" if os.geteuid() == 0 else ""
    whole = (
        f"{owner}daemon off;\npid {folder}/pid;\nerror_log {folder}/error.log;\n"
        f"events {{}}\nhttp {{\naccess_log off;\n{paths}{limits}}}\n"
    )
    (folder / "nginx.conf").write_text(whole, encoding="utf-8")
    process = subprocess.Popen([NGINX, "-p", str(folder), "-c", str(folder / "nginx.conf")], stderr=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + 20
        while True:
            with suppress(OSError), socket.create_connection(("127.0.0.1", outer), 1):
                break
            assert process.poll() is None, (folder / "error.log").read_text()
            assert time.monotonic() < deadline
            time.sleep(0.05)
        yield
    finally:
        process.terminate()
        process.wait(20)


@dataclass(frozen=True)
class Proxy:
    """nginx before a server over gRPC or HTTP: its address, and the certificate that clients trust."""

    address: str
    authority: bytes
    is_grpc: bool

    def outcome(self, body, path=""):
        """The answer to a call through the proxy, or the name or the status of its refusal."""
        if not self.is_grpc:
            return self.answer(body, path or PATH)
        with grpc.secure_channel(self.address, grpc.ssl_channel_credentials(self.authority)) as channel:
            try:
                return channel.unary_unary(path or METHOD)(body, timeout=60).decode()
            except grpc.RpcError as error:
                return error.code().name

    def answer(self, body, path):
        """That of a request over HTTP/1.1."""
        context = ssl.create_default_context(cadata=self.authority.decode())
        with closing(HTTPSConnection(self.address, timeout=60, context=context)) as connection:
            with suppress(OSError):  # the answer comes before the body has left
                connection.request("POST", path, body)
            answer = connection.getresponse()
            return answer.read().decode() if answer.status == 200 else str(answer.status)

    def connected(self):
        """A connection to the proxy."""
        host, port = self.address.split(":")
        context = ssl.create_default_context(cadata=self.authority.decode())
        context.set_alpn_protocols(["h2"] if self.is_grpc else [])
        return context.wrap_socket(socket.create_connection((host, int(port)), 30), server_hostname=host)


@pytest.fixture(scope="module", params=[over_grpc, over_http], ids=["grpc", "http"])
def proxy(request, tmp_path_factory):
    folder, (outer, inner) = tmp_path_factory.mktemp("proxy"), free_ports(2)
    federation, waits = (
        make_federation(folder / "federation", ["127.0.0.1"], 1, outer),
        dict.fromkeys(SHORTENED, WAIT_S),
    )
    with request.param(federation.server, inner), nginx(folder, federation.server, outer, inner, **waits):
        yield Proxy(f"127.0.0.1:{outer}", federation.certificate.read_bytes(), request.param is over_grpc)


def test_a_chunk_of_an_array_passes_and_a_large_body_does_not(proxy):
    assert proxy.outcome(bytes(7 * MB)) == "7000000"
    assert proxy.outcome(bytes(200 * MB)) not in ("200000000", "DEADLINE_EXCEEDED")
    if not proxy.is_grpc:
        assert proxy.outcome(iter([bytes(MB)] * 200)) == "413", "chunked, without a length"


def test_other_apis_and_paths_are_not_reached(proxy):
    if proxy.is_grpc:
        assert proxy.outcome(b"x", "/flwr.proto.Control/StartRun") == "UNIMPLEMENTED"
    else:
        for path in ("/openapi.json", "/docs", "/v1/runtime/push-object", "/v1/fleetless", "/"):
            assert proxy.outcome(b"x", path) == "404"
        assert proxy.outcome(b"x", "/v1/control/any") == "1"
    assert proxy.outcome(b"x") == "1"


def test_an_address_has_eight_calls_at_a_time(proxy):
    with concurrent.futures.ThreadPoolExecutor(20) as pool:
        answers = list(pool.map(lambda _: proxy.outcome(b""), range(20)))
    assert 8 <= answers.count("0") < 20
    assert set(answers) == {"0", "UNAVAILABLE" if proxy.is_grpc else "503"}
    assert proxy.outcome(b"x") == "1"


def frame(kind, flags, stream, payload=b""):
    """A frame of HTTP/2."""
    return len(payload).to_bytes(3, "big") + bytes([kind, flags]) + stream.to_bytes(4, "big") + payload


def beginning_of_a_call(host):
    """What a client of gRPC sends up to the first byte of a message of 1000."""
    names = {":method": "POST", ":scheme": "https", ":path": METHOD, ":authority": host}
    names |= {"content-type": "application/grpc", "te": "trailers"}
    fields = b"".join(
        b"\0" + b"".join(bytes([len(word)]) + word.encode() for word in header) for header in names.items()
    )
    settings, headers = frame(SETTINGS, 0, 0), frame(HEADERS, 4, 1, fields)
    data = frame(DATA, 0, 1, b"\0\0\0\3\xe8x")
    return b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + settings + headers + data


def test_a_connection_without_a_request_and_a_call_that_never_finishes_are_ended(proxy):
    """N5: idle connections held up the end of a run. Both timeouts are longer on the page."""
    begun = time.monotonic()
    with proxy.connected() as connection:
        assert not proxy.is_grpc or connection.recv(9)[3] == SETTINGS
        while connection.recv(100):
            pass
    with proxy.connected() as connection:
        if proxy.is_grpc:
            connection.sendall(beginning_of_a_call(proxy.address))
            reader, kind = connection.makefile("rb"), None
            while kind != RST_STREAM:
                head = reader.read(9)
                kind = head[3]
                reader.read(int.from_bytes(head[:3], "big"))
        else:
            connection.sendall(f"POST {PATH} HTTP/1.1\r\nHost: here\r\nContent-Length: 1000\r\n\r\nx".encode())
            assert connection.recv(1000)[:12] in (b"", b"HTTP/1.1 408")
    assert 2 * WAIT_S - 1 < time.monotonic() - begun < 25
