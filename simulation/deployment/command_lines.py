"""Command lines of Flower's programs, as a federation's folders give them, and the commands that do all of it."""

import shlex
from collections.abc import Mapping
from pathlib import Path

import tomli_w

from fedsel_app.config import Value

CONNECTION = "fedsel"
"""Name of the SuperLink's connection in the command line's configuration."""


def superlink_command(server: Path | None, database: Path) -> list[str]:
    """Command line of the SuperLink but for its addresses; no TLS and no authentication without a `server`'s folder.

    A restarted SuperLink knows its SuperNodes from the `database`, and they reconnect to it.
    """
    safety = ["--insecure"]
    if server is not None:
        files = {"ca-certfile": "ca.crt", "certfile": "server.crt", "keyfile": "server.key"}
        safety = [part for option, name in files.items() for part in (f"--ssl-{option}", str(server / name))]
        safety = ["--provisioned", str(server), *safety, "--enable-supernode-auth"]
    return ["python", "-m", "simulation.deployment.superlink", *safety, "--database", str(database)]


def supernode_command(fleet: str, node_config: str, client: Path | None, trusted: Path | None = None) -> list[str]:
    """Command line of a SuperNode without its own address; `fleet` is the SuperLink's, `client` its folder.

    It imports apps alone that are signed by who stands in the file `trusted`, if that is given. Without a folder it has
    neither TLS nor authentication.
    """
    command = ["python", "-m", "simulation.deployment.supernode"]
    if client is None:
        command += ["--insecure"]
    else:
        authority, key = client / "ca.crt", client / "key"
        command += ["--root-certificates", str(authority), "--auth-supernode-private-key", str(key)]
    if trusted is not None:
        command += ["--trusted-entities", str(trusted)]
    return [*command, "--superlink", fleet, "--node-config", node_config]


def commands_elsewhere(
    clients: int, own: Mapping[str, str], settings: Mapping[str, Value], server: str = "SERVER"
) -> list[str]:
    """Commands that do on separate machines what `fedsel deploy` does on this one.

    `own` are the settings that each client gives its machine, `settings` those of the run, and `server` the name or
    address under which the clients reach the server.
    """
    given = shlex.join(part for key, value in own.items() for part in ("--set", f"{key}={value}"))
    run = shlex.join(part for key, value in settings.items() for part in ("--set", f"{key}={_text(value)}"))
    return [
        f"fedsel provision --server {server} --clients {clients} --out federation",
        "# with the folder federation/server, copied there",
        "fedsel start server",
        *(
            line
            for client in range(clients)
            for line in (
                f"# on client machine {client}, with the folder federation/client-{client}, copied there",
                f"fedsel start client-{client} {given}".strip(),
            )
        ),
        "# where the folder federation/admin is",
        f"fedsel submit federation/admin --clients {clients} {run}".strip(),
    ]


def connection_toml(control_address: str, authority: Path | None, within: str = "") -> str:
    """Flower's config.toml with one connection, named `CONNECTION`; unencrypted without an `authority`.

    `within` is put before the authority's path.
    """
    connection: dict[str, Value] = {"address": control_address}
    if authority is None:
        connection["insecure"] = True
    else:
        connection["root-certificates"] = f"{within}{authority}"
    return tomli_w.dumps({"superlink": {"default": CONNECTION, CONNECTION: connection}})


def _text(value: Value) -> str:
    """A value as --set reads it."""
    return value if isinstance(value, str) else str(value).lower() if isinstance(value, bool) else repr(value)
