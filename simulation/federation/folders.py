"""Folders of a federation, one for each machine: what that machine needs, and nothing of another's.

The layout::

    federation/
      server/         machine.toml  README.md  ca.crt  server.crt  server.key  token.sha256  signatures.json
      server/clients/ client-0.pub  client-1.pub: who may connect
      client-0/       machine.toml  README.md  ca.crt  key  trusted.yaml
      admin/          machine.toml  README.md  ca.crt  token  signing/ (of `fedsel sign`), and ca.key where asked for
"""

import hashlib
import os
import re
import secrets
import shutil
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from fedsel_app.config import ConfigError
from fedsel_app.records.own_folder import PRIVATE, make_private_folder
from simulation.federation.keys import VALID, Authority, client_key
from simulation.federation.machine import FILE, HERE_RELEASE, Machine, read_machine, write_machine
from simulation.flower_internals.app_signature import SIGNATURES, TRUSTED

OWNER_ALONE, EVERYBODY = 0o600, 0o644
SIGNING, LOG = "signing", "log.txt"
"""Folder of the admin's with the key that signs the app, and Flower's log of a machine that runs."""


@dataclass(frozen=True)
class Federation:
    """Folder with the folders of all machines, in the layout of this module."""

    folder: Path

    @property
    def server(self) -> Path:
        """The server's folder."""
        return self.folder / "server"

    @property
    def admin(self) -> Path:
        """The folder of who submits runs."""
        return self.folder / "admin"

    def client(self, client: int) -> Path:
        """A client's folder."""
        return self.folder / f"client-{client}"

    @property
    def authority(self) -> Path:
        """The certificate that clients and `flwr` trust."""
        return self.server / "ca.crt"

    def public_key(self, client: int) -> Path:
        """A client's public key, at the server."""
        return self.server / "clients" / f"client-{client}.pub"

    def check(self, clients: int) -> None:
        """Raise ConfigError unless there are the folders of a server and of `clients` clients."""
        needed = [self.authority, *(path for index in range(clients) for path in (self.client(index) / "key",))]
        for path in needed:
            if not path.is_file():
                raise ConfigError(
                    f"There is no {path}. `fedsel provision --server HOST --clients {clients} --out {self.folder}` "
                    "makes all that is needed."
                )


def provision(
    folder: Path, hosts: Sequence[str], clients: int, port: int, *, keep_authority: bool = False
) -> Federation:
    """Make the folders of one server, `clients` clients and who submits runs.

    The server's certificate holds for `hosts`, names or IP addresses, and for its own machine; the others reach it by
    the first. The new folders are private, and ignored by git. Without `keep_authority` nobody can sign a further
    certificate.

    Raises
    ------
    ConfigError
        If `folder` exists, a host is none, or a folder cannot be written.
    """
    made = Federation(folder.absolute())
    if os.path.lexists(made.folder):
        raise ConfigError(f"{made.folder} exists already. Choose another folder, or add clients with --add.")
    authority = Authority()
    certificate, key = authority.server(hosts)
    token = secrets.token_urlsafe(32)
    machine = Machine("server", [*hosts, "localhost"][0], port, HERE_RELEASE, clients)
    try:
        make_private_folder(made.folder)
        _write(made.folder / ".gitignore", b"*\n", EVERYBODY)
        _make(made.server, machine, authority.certificate)
        (made.server / "clients").mkdir(mode=PRIVATE)
        _write(made.server / "server.crt", certificate, EVERYBODY)
        _write(made.server / "server.key", key, OWNER_ALONE)
        _write(made.server / "token.sha256", hashlib.sha256(token.encode()).hexdigest().encode(), EVERYBODY)
        _make(made.admin, replace(machine, role="admin"), authority.certificate)
        _write(made.admin / "token", token.encode(), OWNER_ALONE)
        if keep_authority:
            _write(made.admin / "ca.key", authority.private, OWNER_ALONE)
        for client in range(clients):
            _make_client(made, client, machine)
    except OSError as error:
        raise ConfigError(f"The folders cannot be written to {made.folder}: {error}.") from error
    return made


def add_clients(folder: Path, count: int) -> list[str]:
    """Make the folders of `count` more clients, with the lowest numbers that no client has; their names.

    Raises
    ------
    ConfigError
        If `folder` holds no federation, the folder of a revoked client lies in the way, or cannot be written.
    """
    made = Federation(folder.absolute())
    machine = read_machine(made.server, "server")
    taken = {*client_numbers(made.server)}
    numbers = [number for number in range(len(taken) + count) if number not in taken][:count]
    for number in numbers:
        if os.path.lexists(made.client(number)):
            raise ConfigError(f"{made.client(number)} is in the way, of a client that was revoked: move it away first.")
    machine = replace(machine, clients=len(taken) + count)
    try:
        for number in numbers:
            _make_client(made, number, machine)
        for path in (made.server, made.admin):
            write_machine(path, replace(machine, role=read_machine(path, "server", "admin").role))
    except OSError as error:
        raise ConfigError(f"The folders cannot be written to {made.folder}: {error}.") from error
    return [f"client-{number}" for number in numbers]


def revoke_client(folder: Path, name: str) -> None:
    """Take a client's public key from the server's folder, so that the server admits it no more.

    Raises
    ------
    ConfigError
        If there is no client of this name, or the key cannot be removed.
    """
    made = Federation(folder.absolute())
    read_machine(made.server, "server")
    known = [f"client-{number}" for number in client_numbers(made.server)]
    if name not in known:
        raise ConfigError(f"There is no client {name!r}. There are {', '.join(known) or 'none'}.")
    try:
        (made.server / "clients" / f"{name}.pub").unlink()
    except OSError as error:
        raise ConfigError(f"The key of {name} cannot be removed: {error}.") from error


def client_numbers(server: Path) -> list[int]:
    """Numbers of the clients whose public keys lie in the server's folder."""
    found = (re.fullmatch(r"client-(\d+)\.pub", path.name) for path in (server / "clients").iterdir())
    return sorted(int(match[1]) for match in found if match)


def share_signature(federation: Federation) -> None:
    """Copy what `fedsel sign` has left in the admin's folder: signatures to the server, whom to trust to each client.

    Raises ConfigError if it cannot be written.
    """
    signing = federation.admin / SIGNING
    try:
        shutil.copyfile(signing / SIGNATURES, federation.server / SIGNATURES)
        for client in client_numbers(federation.server):
            if federation.client(client).is_dir():
                shutil.copyfile(signing / TRUSTED, federation.client(client) / TRUSTED)
    except OSError as error:
        raise ConfigError(f"The signature cannot be copied: {error}.") from error


def _make_client(made: Federation, client: int, machine: Machine) -> None:
    private, public = client_key()
    folder = made.client(client)
    _make(folder, replace(machine, role="client", client=client), made.authority.read_bytes())
    _write(folder / "key", private, OWNER_ALONE)
    _write(made.public_key(client), public, EVERYBODY)


def _make(folder: Path, machine: Machine, authority: bytes) -> None:
    folder.mkdir(mode=PRIVATE)
    write_machine(folder, machine)
    _write(folder / "ca.crt", authority, EVERYBODY)
    _write(folder / "README.md", _readme(machine).encode(), EVERYBODY)


def _readme(machine: Machine) -> str:
    texts = {
        "server": f"""
Copy this folder to the server, {machine.server}, and there, where fedsel is installed:

    fedsel start server

Clients reach it at port {machine.port}, the admin at port {machine.control_port}. `server.key` proves that it is the
server: keep it to this machine. `clients/` holds the public key of each client that may connect: a running server
admits a key that is added there within seconds, and refuses one that is removed. Records of runs come to `runs/`, the
log to `{LOG}`. The server's certificate holds for {VALID.days} days.
""",
        "client": f"""
Copy this folder to one machine, and there, where fedsel is installed:

    fedsel start {machine.name} --data /path/of/mine.npz

`key` proves that this machine is {machine.name}: keep it to this machine. `ca.crt` proves that the server,
{machine.server}, is the right one. Apps are imported only if who stands in `{TRUSTED}` has signed them. Settings of
this client's own lie in `{FILE}`, its residuals in `state/`, the log in `{LOG}`.
""",
        "admin": f"""
Who has this folder may submit runs to {machine.server}, which carries out their code: `token` is the password.

    fedsel submit admin --strategy oort --rounds 100
    fedsel status admin

`{SIGNING}/key` signs the app that a run brings, and clients import no other. An app that changes is signed again by
`fedsel sign --out admin/{SIGNING}`; `{SIGNATURES}` there then goes to the server's folder.
""",
    }
    return f"# {machine.name}\n{texts[machine.role]}"


def _write(path: Path, content: bytes, mode: int) -> None:
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as file:
        file.write(content)
