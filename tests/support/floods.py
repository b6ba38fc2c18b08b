"""Callers without a key that send as much as a SuperLink accepts."""

import contextlib
import socket
import ssl
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import grpc
from flwr.supercore.protobuf.constants import PROTOBUF_MEDIA_TYPE

MB = 10**6
METHOD = "/flwr.proto.Fleet/PushObject"
CHUNK = bytes(MB)


def together(calls: list[Callable[[], str]]) -> list[str]:
    """Results of calls that run at the same time."""
    with ThreadPoolExecutor(len(calls)) as pool:
        return [one.result() for one in [pool.submit(call) for call in calls]]


def call(address: str, authority: bytes, body: bytes) -> str:
    """The status with which a call of the Fleet API over gRPC ends."""
    unlimited = [("grpc.max_send_message_length", -1)]
    with grpc.secure_channel(address, grpc.ssl_channel_credentials(authority), unlimited) as channel:
        try:
            channel.unary_unary(METHOD)(body, timeout=120)
        except grpc.RpcError as error:
            return str(error.code().name)
    return "OK"


def post(address: str, path: str, megabytes: int, *, tls: bool, chunked: bool = False, timeout_s: float = 20.0) -> str:
    """Status of the answer to a body without its last byte; "" if no answer came in time."""
    host, port = address.split(":")
    length = "Transfer-Encoding: chunked" if chunked else f"Content-Length: {megabytes * MB + 1}"
    head = f"POST {path} HTTP/1.1\r\nHost: {host}\r\nContent-Type: {PROTOBUF_MEDIA_TYPE}\r\n{length}\r\n\r\n"
    with contextlib.ExitStack() as stack:
        connection = stack.enter_context(socket.create_connection((host, int(port)), timeout_s))
        if tls:
            context = ssl.create_default_context()
            context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
            connection = stack.enter_context(context.wrap_socket(connection))
        with contextlib.suppress(OSError):
            connection.sendall(head.encode())
            for _ in range(megabytes):
                connection.sendall(b"%x\r\n%b\r\n" % (MB, CHUNK) if chunked else CHUNK)
        with contextlib.suppress(OSError):
            return connection.recv(200).split(b" ")[1].decode()
    return ""
