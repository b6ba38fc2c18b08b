"""Command lines of a SuperLink and of SuperNodes with the folders of a federation."""

from pathlib import Path

import tomli_w

CONNECTION = "fedsel"
"""Name of the SuperLink's connection in Flower's config.toml."""
SUPERLINK_MODULE, SUPERNODE_MODULE = (
    "simulation.operations.guard.superlink",
    "simulation.operations.guard.supernode_process",
)


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
