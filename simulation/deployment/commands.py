"""Commands of `fedsel` for a federation on separate machines: provision, start, status, and sign."""

import argparse

from rich.console import Console

from fedsel_app.config import ConfigError
from fedsel_app.config.arguments import Subparsers, folder, parse_setting, positive

FILES = {".npz": "npz", ".csv": "csv"}
"""Data of a file, by the end of its name."""


def provision(arguments: argparse.Namespace) -> int:
    """`fedsel provision`: make the folders of a federation's machines, add some, or revoke a client."""
    from simulation.deployment.local_deployment import app_folder
    from simulation.federation.folders import (
        SIGNING,
        Federation,
        add_clients,
        client_numbers,
        revoke_client,
        share_signature,
    )
    from simulation.federation.folders import provision as make
    from simulation.federation.signing_key import signing_key
    from simulation.flower_internals.app_signature import sign_app
    from simulation.flower_internals.transport import Endpoints

    made = Federation(arguments.folder)
    if arguments.revoke:
        revoke_client(made.folder, arguments.revoke)
        print(
            f"{arguments.revoke} is revoked in {made.server}. Remove clients/{arguments.revoke}.pub from the server's "
            "folder on its machine too: a running server refuses the client within seconds."
        )
        return 0
    if arguments.add:
        names = add_clients(made.folder, arguments.add)
        share_signature(made)
        print(
            f"Made {', '.join(names)} in {made.folder}. Copy each folder to its machine, and the new files of "
            f"{made.server / 'clients'} to the server's: a running server admits them within seconds."
        )
        return 0
    if not arguments.server or not arguments.clients:
        raise ConfigError("`fedsel provision` needs --server HOST and --clients N, or --add N, or --revoke CLIENT.")
    port = arguments.port or Endpoints().fleet_port
    make(made.folder, arguments.server, arguments.clients, port, keep_authority=arguments.keep_ca_key)
    sign_app(app_folder(), made.admin / SIGNING, signing_key(made.admin / SIGNING))
    share_signature(made)
    clients = [made.client(number).name for number in client_numbers(made.server)]
    print(
        f"Made in {made.folder}: {', '.join(['server', *clients, 'admin'])}. Copy each folder to its machine and to no "
        "other; `fedsel start FOLDER` runs it there, and `fedsel submit admin` submits a run. This checkout's app is "
        "signed: the clients import no other."
    )
    return 0


def start(arguments: argparse.Namespace) -> int:
    """`fedsel start`: run the server or client of a folder in the foreground, or print a file that has it run."""
    from simulation.deployment.service_files import compose_file, systemd_unit
    from simulation.deployment.start import start as run
    from simulation.federation.machine import read_machine, with_settings, write_machine

    settings = dict(parse_setting(text) for text in arguments.set)
    if arguments.data is not None:
        if not arguments.data.exists():
            raise ConfigError(f"There is no {arguments.data}: --data takes the file or folder of this client's data.")
        settings["data-path"] = str(arguments.data)
        if arguments.data.suffix in FILES:
            settings.setdefault("data", FILES[arguments.data.suffix])
    if not (arguments.systemd or arguments.compose):
        run(arguments.folder, settings)
        return 0
    machine = with_settings(read_machine(arguments.folder, "server", "client"), settings)
    if settings:
        write_machine(arguments.folder, machine)
    print((systemd_unit if arguments.systemd else compose_file)(arguments.folder, machine), end="")
    return 0


def status(arguments: argparse.Namespace) -> int:
    """`fedsel status`: who is connected, and which round runs."""
    from simulation.deployment.submission import show_status

    show_status(arguments.folder, Console())
    return 0


def sign(arguments: argparse.Namespace) -> int:
    """`fedsel sign`: sign the app in this checkout, for clients that trust who does."""
    from simulation.deployment.local_deployment import app_folder
    from simulation.federation.signing_key import signing_key
    from simulation.flower_internals.app_signature import sign_app

    signed = sign_app(app_folder(), arguments.folder, signing_key(arguments.folder))
    print(
        f"Signed the app with SHA-256 {signed} in {arguments.folder}: trusted.yaml is for the clients, signatures.json "
        "for the server's folder, and key for nobody else. An app that changes must be signed again."
    )
    return 0


def register(commands: Subparsers) -> None:
    """Add the commands to the parser's."""
    made = commands.add_parser("provision", help="a folder for each machine of a federation, with its keys")
    made.add_argument("--server", action="append", metavar="HOST", help="its name or IP address; the first is used")
    made.add_argument("--clients", type=positive, metavar="N")
    made.add_argument("--port", type=positive, help="port of the server for clients; the next one is the admin's")
    made.add_argument("--add", type=positive, metavar="N", help="add clients to the federation in the folder")
    made.add_argument("--revoke", metavar="CLIENT", help="admit this client, such as client-1, no more")
    made.add_argument("--keep-ca-key", action="store_true", help="keep the authority's key, in the admin's folder")
    made.add_argument("--out", dest="folder", required=True, type=folder, metavar="DIR")
    made.set_defaults(call=provision)

    run = commands.add_parser("start", help="run the server or client whose folder this is, until it is ended")
    run.add_argument("folder", type=folder, metavar="FOLDER", help="as `fedsel provision` made it")
    run.add_argument("--data", type=folder, metavar="PATH", help="this client's own data; kept in its folder")
    run.add_argument(
        "--set", action="append", default=[], metavar="KEY=VALUE", help="a setting of this client's own; kept too"
    )
    printed = run.add_mutually_exclusive_group()
    printed.add_argument("--systemd", action="store_true", help="print a unit of systemd instead")
    printed.add_argument("--compose", action="store_true", help="print a compose file instead")
    run.set_defaults(call=start)

    shown = commands.add_parser("status", help="who is connected to a federation's server, and the round that runs")
    shown.add_argument("folder", type=folder, metavar="ADMIN", help="the admin's folder")
    shown.set_defaults(call=status)

    signed = commands.add_parser("sign", help="sign this checkout's app, for clients that import no other")
    signed.add_argument("--out", dest="folder", required=True, type=folder, metavar="DIR", help="made with a key")
    signed.set_defaults(call=sign)
