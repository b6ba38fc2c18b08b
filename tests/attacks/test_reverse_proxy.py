"""The reverse proxy of docs/security.md in front of an open port: what it lets through, and what it ends."""

import concurrent.futures
import re
import shutil
import socket
import ssl
import subprocess
import time
from contextlib import suppress

import grpc
import pytest

from simulation.federation.folders import provision
from simulation.flower_internals.port_limits import server_options
from simulation.flower_internals.transport import free_ports
from tests.attacks.test_open_port import MB, METHOD
from tests.support.sources import ROOT

NGINX = shutil.which("nginx") or shutil.which("/usr/sbin/nginx")
pytestmark = pytest.mark.skipif(NGINX is None, reason="nginx is not installed")
HELD_S = 3.0


class Calls(grpc.GenericRpcHandler):
    """A server whose one method says how long its message was; an empty message is answered late."""

    def service(self, details):
        return grpc.unary_unary_rpc_method_handler(self.answer)

    @staticmethod
    def answer(body, context):
        if not body:
            time.sleep(HELD_S)
        return str(len(body)).encode()


@pytest.fixture(scope="module")
def proxy(tmp_path_factory):
    """Address of nginx with the configuration of the page, and the certificate that clients trust."""
    folder = tmp_path_factory.mktemp("nginx")
    outer, inner = free_ports(2)
    federation = provision(folder / "federation", ["127.0.0.1"], 1, outer)
    key, certificate = ((federation.server / f"server.{kind}").read_bytes() for kind in ("key", "crt"))
    backend = grpc.server(
        concurrent.futures.ThreadPoolExecutor(32), handlers=[Calls()], options=[*server_options(8 * MB).items()]
    )
    backend.add_secure_port(f"127.0.0.1:{inner}", grpc.ssl_server_credentials([(key, certificate)]))
    backend.start()
    [page] = re.findall(r"```nginx\n(.*?)```", (ROOT / "docs/security.md").read_text(encoding="utf-8"), re.DOTALL)
    limits = page.replace("9092", str(outer)).replace("9192", str(inner)).replace(" server/", f" {federation.server}/")
    paths = "".join(
        f"{kind}_temp_path {folder}/{kind};\n" for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    whole = (
        f"daemon off;\npid {folder}/pid;\nerror_log {folder}/error.log;\n"
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
        yield f"127.0.0.1:{outer}", federation.authority.read_bytes()
    finally:
        process.terminate()
        process.wait(20)
        backend.stop(None)


def outcome(proxy, body, method=METHOD):
    """The answer to a call through the proxy, or the name of its error."""
    address, authority = proxy
    with grpc.secure_channel(address, grpc.ssl_channel_credentials(authority)) as channel:
        try:
            return channel.unary_unary(method)(body, timeout=60).decode()
        except grpc.RpcError as error:
            return error.code().name


def test_a_chunk_of_an_array_passes_and_a_large_body_does_not(proxy):
    assert outcome(proxy, bytes(7 * MB)) == "7000000"
    assert outcome(proxy, bytes(200 * MB)) not in ("200000000", "DEADLINE_EXCEEDED")


def test_other_apis_are_not_reached(proxy):
    assert outcome(proxy, b"x", "/flwr.proto.Control/StartRun") == "UNIMPLEMENTED"
    assert outcome(proxy, b"x") == "1"


def test_an_address_has_eight_calls_at_a_time(proxy):
    with concurrent.futures.ThreadPoolExecutor(20) as pool:
        answers = list(pool.map(lambda _: outcome(proxy, b""), range(20)))
    assert 8 <= answers.count("0") < 20
    assert set(answers) == {"0", "UNAVAILABLE"}
    assert outcome(proxy, b"x") == "1"


def test_a_connection_without_a_request_is_ended(proxy):
    """N5: idle connections held up the end of a run. These end after `client_header_timeout`, 10 s."""
    host, port = proxy[0].split(":")
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    with socket.create_connection((host, int(port)), 30) as plain, context.wrap_socket(plain) as connection:
        begun = time.monotonic()
        assert connection.recv(1) == b""
        assert 5 < time.monotonic() - begun < 25
