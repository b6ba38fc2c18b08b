"""Command lines of Flower's programs: for a deployment on this machine, and the same on separate machines."""

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path

from fedsel_app.config import Value
from simulation.deployment.certificates import Certificates
from simulation.deployment.flower_cli import to_toml
from simulation.flower_internals.app_signature import SIGNATURES, TRUSTED
from simulation.flower_internals.transport import ANYWHERE, HERE, Endpoints

CONNECTION = "fedsel"
"""Name of the SuperLink's connection in the command line's configuration."""
SIGNING = Path("signing")
DATABASE = Path(".flwr/remote/superlink.db")


def superlink_command(certificates: Certificates | None, database: Path) -> list[str]:
    """Command line of the SuperLink but for its addresses; no TLS and no authentication without `certificates`.

    A restarted SuperLink knows its SuperNodes from the `database`, and they reconnect to it.
    """
    safety = ["--insecure"]
    if certificates is not None:
        certificate, key = map(str, certificates.server)
        safety = ["--ssl-ca-certfile", str(certificates.authority), "--ssl-certfile", certificate, "--ssl-keyfile", key]
        safety += ["--enable-supernode-auth"]
    return ["python", "-m", "simulation.deployment.superlink", *safety, "--database", str(database)]


def supernode_command(
    fleet: str, node_config: str, certificates: Certificates | None, client: int, trusted: Path | None = None
) -> list[str]:
    """Command line of one client's SuperNode without its own address; `fleet` is the SuperLink's address.

    It imports apps alone that are signed by who stands in the file `trusted`, if that is given.
    """
    command = ["python", "-m", "simulation.deployment.supernode"]
    if certificates is None:
        command += ["--insecure"]
    else:
        key = str(certificates.client(client)[0])
        command += ["--root-certificates", str(certificates.authority), "--auth-supernode-private-key", key]
    if trusted is not None:
        command += ["--trusted-entities", str(trusted)]
    return [*command, "--superlink", fleet, "--node-config", node_config]


def equivalent_commands(
    node_configs: Sequence[str], run_config: Mapping[str, Value], server: str = "SERVER", *, insecure: bool = False
) -> list[str]:
    """Commands that do on separate machines what `Deployment` and `submit` do on this one.

    `server` is the address under which the clients reach the SuperLink's host.
    """
    home = "FLWR_HOME=$PWD/.flwr/remote"
    switches = f"{home} FLWR_TELEMETRY_ENABLED=0 FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION=1"
    certificates = None if insecure else Certificates(Path("certificates"))
    at = Endpoints(host=ANYWHERE)
    warning = "; not encrypted, so only in a network that you trust" if insecure else ""
    commands = [
        f"# on {server}, in a checkout; clients must reach port {at.fleet_port}{warning}",
        "mkdir -p -m 700 .flwr/remote",
    ]
    authority, control = None, f"{HERE}:{at.control_port}"
    if certificates is not None:
        authority = Path("certificates/ca.crt")
        commands += [f"fedsel certificates --server {server} --clients {len(node_configs)} --out certificates"]
    commands += [
        f"{switches} {shlex.join([*superlink_command(certificates, DATABASE), *at.arguments])} &",
        f"cat > .flwr/remote/config.toml <<END\n{connection_toml(control, authority, '$PWD/')}END",
        f"cat > .flwr/remote/run-config.toml <<'END'\n{to_toml(run_config)}END",
    ]
    remote = f"{home} flwr"
    if certificates is not None:
        keys = [str(certificates.client(index)[1]) for index in range(len(node_configs))]
        commands += ["# when the SuperLink has said that it starts the Fleet API"]
        commands += [f"{remote} supernode register {key} {CONNECTION}" for key in keys]
    commands += [
        "# in a checkout that somebody has read whom the clients trust; signatures.json goes to the server",
        f"fedsel sign --out {SIGNING}",
        f"cp {SIGNING / SIGNATURES} .flwr/remote/",
    ]
    for index, node_config in enumerate(node_configs):
        held = [str(SIGNING / TRUSTED)]
        if certificates is not None:
            held += [str(authority), str(certificates.client(index)[0])]
        command = supernode_command(f"{server}:{at.fleet_port}", node_config, certificates, index, SIGNING / TRUSTED)
        commands += [
            f"# on client machine {index}, with the same packages installed and copies of {', '.join(held)}",
            f"FLWR_TELEMETRY_ENABLED=0 {shlex.join(command)}",
        ]
    return [
        *commands,
        f"# on {server} again, once every client is connected",
        f"{remote} run . {CONNECTION} --stream --run-config .flwr/remote/run-config.toml",
    ]


def connection_toml(control_address: str, authority: Path | None, within: str = "") -> str:
    """Flower's config.toml with one connection, named `CONNECTION`; unencrypted without an `authority`.

    `within` is put before the authority's path.
    """
    trust: dict[str, Value] = {"insecure": True}
    if authority is not None:
        trust = {"root-certificates": f"{within}{authority}"}
    connection = to_toml({"address": control_address} | trust)
    return f"[superlink]\n{to_toml({'default': CONNECTION})}\n[superlink.{CONNECTION}]\n{connection}"
