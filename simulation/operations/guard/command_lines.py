"""Command lines of a SuperLink and of SuperNodes with the folders of a federation."""

from pathlib import Path

import tomli_w

from fedsel_app.config import Value

CONNECTION = "fedsel"
"""Name of the SuperLink's connection in Flower's config.toml."""
SUPERLINK_MODULE, SUPERNODE_MODULE = (
    "simulation.operations.guard.superlink_process",
    "simulation.operations.guard.supernode_process",
)


def superlink_arguments(server: Path | None, database: Path) -> list[str]:
    """Arguments of a SuperLink, without those for its addresses.

    Parameters
    ----------
    server : the server's folder. Without one there is neither TLS nor authentication.
    database : file with the SuperNodes, so that the SuperLink still knows them after a restart
    """
    if server is None:
        safety = ["--insecure"]
    else:
        files = {"ca-certfile": "ca.crt", "certfile": "server.crt", "keyfile": "server.key"}
        safety = [part for option, name in files.items() for part in (f"--ssl-{option}", str(server / name))]
        safety.append("--enable-supernode-auth")
    return [*safety, "--database", str(database)]


def supernode_arguments(fleet: str, node_config: str, client: Path | None, trusted: Path | None = None) -> list[str]:
    """Arguments of a SuperNode, without those for its own address.

    Parameters
    ----------
    fleet : address of the SuperLink for SuperNodes
    node_config : node configuration, in Flower's form
    client : the client's folder. Without one there is neither TLS nor authentication.
    trusted : file with trusted signers. The SuperNode imports only apps that one of them has signed; without a file,
        any app.
    """
    if client is None:
        arguments = ["--insecure"]
    else:
        authority, key = client / "ca.crt", client / "key"
        arguments = ["--root-certificates", str(authority), "--auth-supernode-private-key", str(key)]
    if trusted is not None:
        arguments += ["--trusted-entities", str(trusted)]
    return [*arguments, "--superlink", fleet, "--node-config", node_config]


def connection_toml(control_address: str, authority: Path | None) -> str:
    """Flower's config.toml with the connection `CONNECTION`. Without an `authority` the connection is unencrypted."""
    trust: dict[str, Value] = {"insecure": True} if authority is None else {"root-certificates": str(authority)}
    return tomli_w.dumps({"superlink": {"default": CONNECTION, CONNECTION: {"address": control_address, **trust}}})
