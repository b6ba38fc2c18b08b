"""Free ports of this machine."""

import socket


def free_ports(count: int) -> list[int]:
    """Find `count` different free TCP ports on 127.0.0.1."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [item.getsockname()[1] for item in sockets]
    for item in sockets:
        item.close()
    return ports
