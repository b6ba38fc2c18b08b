"""Commands of `fedsel` for a federation on separate machines: provision, start, status, stop and sign."""

import argparse
import os
from pathlib import Path

from rich.console import Console

from fedsel_app.config import ConfigError
from simulation.command_line.arguments import Subparsers, folder, parse_setting, positive
from simulation.federation.machine import FILE

FILES = {".npz": "npz", ".csv": "csv"}
"""The setting 'data' for a data file, by the file's extension."""


def provision(arguments: argparse.Namespace) -> int:
    """`fedsel provision`: make the folders of a federation's machines, add clients, or revoke one."""
    if arguments.revoke:
        _revoke(arguments.folder, arguments.revoke)
    elif arguments.add:
        _add(arguments.folder, arguments.add)
    elif arguments.server and arguments.clients:
        _make(arguments)
    else:
        raise ConfigError("`fedsel provision` needs --server HOST and --clients N, or --add N, or --revoke CLIENT.")
    return 0


def _make(arguments: argparse.Namespace) -> None:
    from simulation.deployment.app_folder import app_folder
    from simulation.federation.folders import SIGNING, provision, share_signature
    from simulation.federation.keys import signing_key
    from simulation.guard.app_signature import sign_app
    from simulation.guard.transport import Endpoints

    app, port = app_folder(), arguments.port or Endpoints().fleet_port
    made = provision(arguments.folder, arguments.server, arguments.clients, port, keep_authority=arguments.keep_ca_key)
    sign_app(app, made.admin / SIGNING, signing_key(made.admin / SIGNING))
    share_signature(made)
    clients = ", ".join(made.client(number).name for number in range(arguments.clients))
    print(
        f"Made in {made.folder}: server, {clients}, admin. Copy each folder to its own machine only. Run `fedsel start "
        "FOLDER` on the server and on each client, and submit runs with `fedsel submit admin`. The app is "
        "signed, and the clients import no other app."
    )


def _add(folder: Path, count: int) -> None:
    from simulation.federation.folders import FederationFolders, add_clients, share_signature

    made = FederationFolders(folder)
    names = add_clients(folder, count)
    share_signature(made)
    print(
        f"Made {', '.join(names)} in {folder}. Copy each folder to its machine, the new files of "
        f"{made.server / 'clients'} to the server's folder, and {made.admin / FILE} to the admin's. A running server "
        "admits the new clients within seconds."
    )


def _revoke(folder: Path, name: str) -> None:
    from simulation.federation.folders import FederationFolders, revoke_client

    revoke_client(folder, name)
    print(
        f"Revoked {name} in {FederationFolders(folder).server}. Remove clients/{name}.pub from the folder on the "
        "server's machine too. A running server then refuses the client within seconds."
    )


def start(arguments: argparse.Namespace) -> int:
    """`fedsel start`: run the server or client of a folder in the foreground, or print a service file for it."""
    # gRPC reads this when it is imported. Without it, gRPC logs each failed handshake of a stranger.
    os.environ.setdefault("GRPC_VERBOSITY", "ERROR")
    from simulation.deployment.service_files import compose_file, systemd_unit
    from simulation.deployment.start import read_startable
    from simulation.deployment.start import start as run

    settings = dict(parse_setting(text) for text in arguments.set)
    if arguments.data is not None:
        if not arguments.data.exists():
            raise ConfigError(f"There is no {arguments.data}. --data needs the file or folder with this client's data.")
        settings["data-path"] = str(arguments.data)
        if arguments.data.suffix in FILES:
            settings.setdefault("data", FILES[arguments.data.suffix])
    if not (arguments.systemd or arguments.compose):
        run(arguments.folder, settings, unsigned_apps=arguments.unsigned_apps)
        return 0
    machine = read_startable(arguments.folder, settings, unsigned_apps=arguments.unsigned_apps)
    options = ["--unsigned-apps"] if arguments.unsigned_apps else []
    print((systemd_unit if arguments.systemd else compose_file)(arguments.folder, machine, options), end="")
    return 0


def status(arguments: argparse.Namespace) -> int:
    """`fedsel status`: show which clients are connected, and the round in progress."""
    from simulation.deployment.submission import show_status

    show_status(arguments.folder, Console())
    return 0


def stop(arguments: argparse.Namespace) -> int:
    """`fedsel stop`: end a run of a federation, so that it can be resumed."""
    from simulation.deployment.submission import stop_run

    stop_run(arguments.folder, arguments.run, Console())
    return 0


def sign(arguments: argparse.Namespace) -> int:
    """`fedsel sign`: sign the app, so that clients that trust the signer import it."""
    from simulation.deployment.app_folder import app_folder
    from simulation.federation.keys import signing_key
    from simulation.guard.app_signature import sign_app

    signed = sign_app(app_folder(), arguments.folder, signing_key(arguments.folder))
    print(
        f"Signed the app with SHA-256 {signed} in {arguments.folder}. Copy signatures.json to the server's folder and "
        "trusted.yaml to the clients' folders. Keep the file key to yourself. After a change, sign the app again."
    )
    return 0


def register(commands: Subparsers) -> None:
    """Add the commands to the parser's."""
    _register_provision(commands)
    _register_start(commands)

    shown = commands.add_parser("status", help="show the connected clients and the round in progress")
    shown.add_argument("folder", type=folder, metavar="ADMIN", help="the admin's folder")
    shown.set_defaults(call=status)

    ended = commands.add_parser("stop", help="end a run of a federation, so that it can be resumed")
    ended.add_argument("folder", type=folder, metavar="ADMIN", help="the admin's folder")
    ended.add_argument("run", nargs="?", metavar="RUN", help="name of the run (the only one in progress)")
    ended.set_defaults(call=stop)

    signed = commands.add_parser("sign", help="sign the app, so that clients import it")
    signed.add_argument("--out", dest="folder", required=True, type=folder, metavar="DIR", help="folder of the key")
    signed.set_defaults(call=sign)


def _register_provision(commands: Subparsers) -> None:
    made = commands.add_parser("provision", help="make a folder with keys for each machine of a federation")
    made.add_argument(
        "--server", action="append", metavar="HOST", help="name or address of the server; clients use the first one"
    )
    made.add_argument("--clients", type=positive, metavar="N", help="number of clients")
    made.add_argument("--port", type=positive, help="the server's port for clients; the next port is for the admin")
    made.add_argument("--add", type=positive, metavar="N", help="add N clients to the federation in this folder")
    made.add_argument("--revoke", metavar="CLIENT", help="revoke this client, such as client-1")
    made.add_argument("--keep-ca-key", action="store_true", help="keep the authority's key in the admin's folder")
    made.add_argument(
        "--out", dest="folder", required=True, type=folder, metavar="DIR", help="folder of the federation"
    )
    made.set_defaults(call=provision)


def _register_start(commands: Subparsers) -> None:
    run = commands.add_parser("start", help="run the server or client of a folder until Ctrl-C")
    run.add_argument("folder", type=folder, metavar="FOLDER", help="a folder that `fedsel provision` made")
    run.add_argument("--data", type=folder, metavar="PATH", help="this client's data; its folder keeps the path")
    run.add_argument(
        "--set", action="append", default=[], metavar="KEY=VALUE", help="this client's own setting; its folder keeps it"
    )
    run.add_argument(
        "--unsigned-apps", action="store_true", help="client: execute the apps of all runs, without trusted signers"
    )
    printed = run.add_mutually_exclusive_group()
    printed.add_argument("--systemd", action="store_true", help="print a systemd unit instead")
    printed.add_argument("--compose", action="store_true", help="print a compose file instead")
    run.set_defaults(call=start)
