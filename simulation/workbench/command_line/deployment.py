"""Commands of `fedsel` for a federation on separate machines: request, provision, start, status, stop and sign."""

import argparse
import os
from pathlib import Path

from rich.console import Console

from fedsel_app.config import ConfigError
from fedsel_app.config.data import READERS
from fedsel_app.secure_sums.statement import IDENTITIES
from simulation.operations.machines.machine import FILE
from simulation.workbench.command_line.parser import Subparsers, folder, positive, settings_given

SAVED = ("dataset_dict.json", "state.json")
"""Files of a folder that `datasets` saved."""


def request_command(arguments: argparse.Namespace) -> int:
    """`fedsel request`: make a client's folder with its key on the client's own machine."""
    from simulation.operations.machines.folders import request_folder
    from simulation.operations.machines.keys import fingerprint

    sent = request_folder(arguments.folder)
    print(
        f"Made {arguments.folder}. Its file key never leaves this machine. Send {sent} to the admin of the federation, "
        f"and tell the admin its fingerprint by another channel: {fingerprint(sent.read_bytes())}. Copy the files of "
        f"the answer into {arguments.folder}."
    )
    return 0


def provision_command(arguments: argparse.Namespace) -> int:
    """`fedsel provision`: make the folders of a federation, add or revoke clients, or renew the certificates."""
    exists = not (arguments.server or arguments.clients or arguments.port)
    if arguments.server and (arguments.clients or arguments.sign):
        _make(arguments)
    elif exists and arguments.revoke and not arguments.sign:
        _revoke(arguments.folder, arguments.revoke)
    elif exists and arguments.renew and not arguments.sign:
        _renew(arguments.folder)
    elif exists and (arguments.add or arguments.sign) and not (arguments.revoke or arguments.renew):
        _add(arguments.folder, arguments.add or 0, arguments.sign)
    else:
        raise ConfigError(
            "A new federation needs --server HOST with --clients N or --sign REQUEST, and takes --port. One that "
            "exists needs --add N, --sign REQUEST or both, or --revoke CLIENT, or --renew."
        )
    return 0


def _make(arguments: argparse.Namespace) -> None:
    from simulation.operations.deployment.app_folder import app_folder
    from simulation.operations.guard.app_signature import sign_app
    from simulation.operations.guard.transport import Endpoints
    from simulation.operations.machines.folders import SIGNING, client_numbers, make_federation, share_signature
    from simulation.operations.machines.keys import signing_key

    app, port, clients = app_folder(), arguments.port or Endpoints().fleet_port, arguments.clients or 0
    folders = make_federation(arguments.folder, arguments.server, clients, port, requests=arguments.sign)
    sign_app(app, folders.admin / SIGNING, signing_key(folders.admin / SIGNING))
    share_signature(folders)
    names = [folders.client(number).name for number in client_numbers(folders.server)]
    print(
        f"Made in {folders.folder}: server, {', '.join(names)}, admin. Copy each folder to its own machine only. Run "
        "`fedsel start FOLDER` on the server and on each client, and submit runs with `fedsel submit admin`. The app "
        "is signed, and the clients import no other app."
    )
    _print_answers(folders.folder, names[clients:], arguments.sign)


def _add(folder: Path, count: int, requests: list[Path]) -> None:
    from simulation.operations.guard.app_signature import TRUSTED
    from simulation.operations.machines.folders import SIGNING, FederationFolders, add_clients, share_signature
    from simulation.operations.machines.private_files import read_file

    folders = FederationFolders(folder)
    read_file(folders.admin / SIGNING / TRUSTED)  # without it, a new client's folder would be incomplete
    names = add_clients(folder, count, requests)
    share_signature(folders)
    print(
        f"Made {', '.join(names)} in {folder}. Copy each folder to its machine, the new files of "
        f"{folders.server / 'clients'} to the server's folder, and {folders.admin / FILE} to the admin's. A running "
        "server admits the new clients within seconds. For secure sums, copy "
        f"{folders.admin / IDENTITIES} to all clients."
    )
    _print_answers(folder, names[count:], requests)


def _print_answers(folder: Path, names: list[str], requests: list[Path]) -> None:
    from simulation.operations.machines.keys import fingerprint, read_request

    for name, path in zip(names, requests, strict=True):
        print(
            f"{folder / name} is the answer to {path}. Compare the fingerprint with its sender before you copy: "
            f"{fingerprint(read_request(path))}."
        )


def _renew(folder: Path) -> None:
    from simulation.operations.machines.folders import renew_certificates

    *_, certificate, key = renew_certificates(folder)
    print(
        f"Renewed the server's certificate in {folder}. Copy {key.name} of {key.parent} into the server's folder, and "
        f"{certificate.name} into the folder of every machine, and restart the server and the clients. A machine with "
        "the new certificate trusts no earlier one."
    )


def _revoke(folder: Path, name: str) -> None:
    from simulation.operations.machines.folders import FederationFolders, revoke_client, share_identities

    revoke_client(folder, name)
    federation = FederationFolders(folder)
    listed = f" For secure sums, copy {federation.admin / IDENTITIES} to all other clients."
    print(
        f"Revoked {name} in {federation.server}. Remove clients/{name}.pub from the folder on the server's machine "
        f"too. A running server then refuses the client within seconds.{listed if share_identities(federation) else ''}"
    )


def start_command(arguments: argparse.Namespace) -> int:
    """`fedsel start`: run the server or client of a folder in the foreground."""
    # gRPC reads this when it is imported. Without it, gRPC logs each failed handshake of a stranger.
    os.environ.setdefault("GRPC_VERBOSITY", "ERROR")
    from simulation.operations.deployment.start import run_machine

    settings = settings_given(arguments.set)
    if arguments.data is not None:
        if not arguments.data.exists():
            raise ConfigError(f"There is no {arguments.data}. --data needs the file or folder with this client's data.")
        settings["data-path"] = str(arguments.data)
        if kind := _kind_of(arguments.data):
            settings.setdefault("data", kind)
    for key in ("data-path", "state-dir"):
        if isinstance(path := settings.get(key), str) and path:
            settings[key] = str(folder(path))
    run_machine(arguments.folder, settings, unsigned_apps=arguments.unsigned_apps)
    return 0


def _kind_of(path: Path) -> str:
    """Value of the setting 'data' that reads a file or folder; empty if the path does not tell."""
    if path.is_dir():
        return "hf" if any((path / name).is_file() for name in SAVED) else ""
    return READERS.get(path.suffix.lower(), "")


def status_command(arguments: argparse.Namespace) -> int:
    """`fedsel status`: show which clients are connected, and the round in progress."""
    from simulation.operations.deployment.submission import show_status

    show_status(arguments.folder, Console())
    return 0


def stop_command(arguments: argparse.Namespace) -> int:
    """`fedsel stop`: end a run of a federation, so that it can be resumed."""
    from simulation.operations.deployment.submission import stop_run

    stop_run(arguments.folder, arguments.run, Console())
    return 0


def sign_command(arguments: argparse.Namespace) -> int:
    """`fedsel sign`: sign the app, so that clients that trust the signer import it."""
    from simulation.operations.deployment.app_folder import app_folder
    from simulation.operations.guard.app_signature import sign_app
    from simulation.operations.machines.keys import signing_key

    signed = sign_app(app_folder(), arguments.folder, signing_key(arguments.folder))
    print(
        f"Signed the app with SHA-256 {signed} in {arguments.folder}. Copy signatures.json to the server's folder and "
        "trusted.yaml to the clients' folders. Keep the file key to yourself. After a change, sign the app again."
    )
    return 0


def register(commands: Subparsers) -> None:
    """Add the commands to the parser's."""
    asked = commands.add_parser("request", help="make a client's key on its own machine, and a request for the admin")
    asked.add_argument("folder", type=folder, metavar="NAME", help="the client's new folder")
    asked.set_defaults(call=request_command)

    _register_provision(commands)
    _register_start(commands)

    shown = commands.add_parser("status", help="show the connected clients and the round in progress")
    shown.add_argument("folder", type=folder, metavar="ADMIN", help="the admin's folder")
    shown.set_defaults(call=status_command)

    ended = commands.add_parser("stop", help="end a run of a federation, so that it can be resumed")
    ended.add_argument("folder", type=folder, metavar="ADMIN", help="the admin's folder")
    ended.add_argument("run", nargs="?", metavar="RUN", help="name of the run (the only one in progress)")
    ended.set_defaults(call=stop_command)

    signed = commands.add_parser("sign", help="sign the app, so that clients import it")
    signed.add_argument("--out", dest="folder", required=True, type=folder, metavar="DIR", help="folder of the key")
    signed.set_defaults(call=sign_command)


def _register_provision(commands: Subparsers) -> None:
    command = commands.add_parser("provision", help="make a folder with keys for each machine of a federation")
    task = command.add_mutually_exclusive_group()
    task.add_argument(
        "--server", action="append", metavar="HOST", help="name or address of the server; clients use the first one"
    )
    command.add_argument("--clients", type=positive, metavar="N", help="number of clients whose keys are made here")
    command.add_argument("--port", type=positive, help="the server's port for clients; the next port is for the admin")
    task.add_argument("--add", type=positive, metavar="N", help="add N clients to the federation in this folder")
    command.add_argument(
        "--sign",
        action="append",
        default=[],
        type=folder,
        metavar="REQUEST",
        help="add the client that sent this file of `fedsel request`; its private key stays with it",
    )
    task.add_argument("--renew", action="store_true", help="make a new certificate of the server; retire all others")
    task.add_argument("--revoke", metavar="CLIENT", help="revoke this client, such as client-1")
    command.add_argument(
        "--out", dest="folder", required=True, type=folder, metavar="DIR", help="folder of the federation"
    )
    command.set_defaults(call=provision_command)


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
    run.set_defaults(call=start_command)
