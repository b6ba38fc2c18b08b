"""Transport of Flower's APIs in the installed release, gRPC or HTTP, their ports, and the command lines with these.

The Control API, which accepts runs, uses gRPC up to 1.36; the Fleet API, to which SuperNodes connect, up to 1.39. The
Runtime API, for app processes, always uses HTTP. All APIs over HTTP share one address. A constant in Flower that names
the transport would replace the release numbers here.
"""

import socket
from contextlib import ExitStack
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

import tomli_w

RELEASE = tuple(int(part) for part in version("flwr").split(".")[:2])
CONTROL_OVER_GRPC = RELEASE < (1, 37)
FLEET_OVER_GRPC = RELEASE < (1, 40)
ANYWHERE, HERE = "0.0.0.0", "127.0.0.1"
CONNECTION = "fedsel"
"""Name of the SuperLink's connection in Flower's config.toml."""
SUPERLINK_MODULE, SUPERNODE_MODULE = (
    "simulation.operations.guard.superlink",
    "simulation.operations.guard.supernode_process",
)


@dataclass(frozen=True)
class Endpoints:
    """Ports of a SuperLink. All APIs over HTTP use the port of the Runtime API.

    Attributes
    ----------
    fleet, control, runtime : ports; by default those of Flower
    host : address of the network at which SuperNodes reach the Fleet API
    control_host : address of the network at which `flwr` reaches the Control API
    """

    fleet: int = 9092
    control: int = 9093
    runtime: int = 8000
    host: str = HERE
    control_host: str = HERE

    @property
    def fleet_port(self) -> int:
        """Port to which SuperNodes connect."""
        return self.fleet if FLEET_OVER_GRPC else self.runtime

    @property
    def control_port(self) -> int:
        """Port to which `flwr` connects."""
        return self.control if CONTROL_OVER_GRPC else self.runtime

    @property
    def ports(self) -> set[int]:
        """Ports that are open once the SuperLink has started."""
        return {self.fleet_port, self.control_port, self.runtime}

    @property
    def arguments(self) -> list[str]:
        """Arguments of the SuperLink's command line."""
        arguments = ["--fleet-api-address", f"{self.host}:{self.fleet}"] if FLEET_OVER_GRPC else []
        if CONTROL_OVER_GRPC:
            arguments += ["--control-api-address", f"{self.control_host}:{self.control}"]
        host = self.host  # of the Runtime API, and of the APIs that share it over HTTP
        if FLEET_OVER_GRPC:
            host = HERE if CONTROL_OVER_GRPC else self.control_host
        return [*arguments, "--host", host, "--port", str(self.runtime)]


def free_ports(count: int) -> list[int]:
    """Find `count` different free TCP ports on 127.0.0.1."""
    with ExitStack() as held:
        return [held.enter_context(socket.create_server((HERE, 0))).getsockname()[1] for _ in range(count)]


def superlink_arguments(server: Path) -> list[str]:
    """Arguments of a SuperLink with the folder of a `server`, without those for its addresses."""
    files = {"ca-certfile": "server.crt", "certfile": "server.crt", "keyfile": "server.key"}
    safety = [part for option, name in files.items() for part in (f"--ssl-{option}", str(server / name))]
    return [*safety, "--enable-supernode-auth"]


def supernode_arguments(fleet: str, node_config: str, client: Path, trusted: Path | None) -> list[str]:
    """Arguments of a SuperNode, without those for its own address.

    Parameters
    ----------
    fleet : address of the SuperLink for SuperNodes
    node_config : node configuration, in Flower's form
    client : the client's folder
    trusted : file with trusted signers. The SuperNode imports only apps that one of them has signed; None: any app.
    """
    certificate, key = client / "server.crt", client / "key"
    arguments = ["--root-certificates", str(certificate), "--auth-supernode-private-key", str(key)]
    if trusted is not None:
        arguments += ["--trusted-entities", str(trusted)]
    return [*arguments, "--superlink", fleet, "--node-config", node_config]


def connection_toml(control_address: str, certificate: Path) -> str:
    """Flower's config.toml with the connection `CONNECTION`, which trusts the server's `certificate`."""
    connection = {"address": control_address, "root-certificates": str(certificate)}
    return tomli_w.dumps({"superlink": {"default": CONNECTION, CONNECTION: connection}})
