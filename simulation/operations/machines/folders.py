"""Folders of a federation. Each machine has one, with what it needs and without anything of another machine.

The layout::

    federation/
      server/         machine.toml  README.md  ca.crt  server.crt  server.key  token.sha256  signatures.json
      server/clients/ client-0.pub  client-1.pub: the clients that may connect
      client-0/       machine.toml  README.md  ca.crt  key  trusted.yaml
                      with key.pub in place of key if the client made its key itself (`fedsel request`)
      admin/          machine.toml  README.md  ca.crt  token  signing/ (of `fedsel sign`)
                      and ca.key with `--keep-ca-key`
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
from simulation.operations.guard.app_signature import SIGNATURES, TRUSTED
from simulation.operations.machines.keys import VALID, Authority, certified_names, client_key, read_request
from simulation.operations.machines.machine import (
    FILE,
    HERE_RELEASE,
    Machine,
    machine_toml,
    read_machine,
    write_machine,
)
from simulation.operations.machines.private_files import (
    OWNER_ALONE,
    NewFile,
    make_folder,
    own_folder,
    read_file,
    replace_file,
    write_new,
)
from simulation.operations.machines.sound_folder import PUBLIC, check_folder, read_certificates

REQUEST = "request.pub"
SIGNING, LOG = "signing", "log.txt"
"""Folder in the admin's folder with the key that signs the app, and file in a machine's folder with Flower's log."""


@dataclass(frozen=True)
class FederationFolders:
    """Federation as `fedsel provision` makes it: a folder that holds the folders of all machines."""

    folder: Path

    @property
    def server(self) -> Path:
        """The server's folder."""
        return self.folder / "server"

    @property
    def admin(self) -> Path:
        """The admin's folder, from which runs are submitted."""
        return self.folder / "admin"

    def client(self, client: int) -> Path:
        """A client's folder."""
        return self.folder / f"client-{client}"

    @property
    def authority(self) -> Path:
        """Certificate of the authority, which clients and `flwr` trust."""
        return self.server / "ca.crt"

    def public_key(self, client: int) -> Path:
        """A client's public key, in the server's folder."""
        return self.server / "clients" / f"client-{client}.pub"

    def check(self, clients: int) -> None:
        """Raise ConfigError if the server's folder or one of the first `clients` clients' is missing or damaged."""
        for path in (self.server, *(self.client(index) for index in range(clients))):
            if not path.is_dir():
                raise ConfigError(
                    f"There is no {path}. `fedsel provision --server HOST --clients {clients} --out {self.folder}` "
                    "makes the folders."
                )
            check_folder(path, read_machine(path, "server", "client"))


def provision(
    folder: Path,
    hosts: Sequence[str],
    clients: int,
    port: int,
    *,
    requests: Sequence[Path] = (),
    keep_authority: bool = False,
) -> FederationFolders:
    """Make the folders of one server, its clients and one admin.

    The new folders are private, and git ignores them.

    Parameters
    ----------
    folder : folder of the federation. It must not exist.
    hosts : host names or IP addresses of the server. Its certificate is valid for all of them. The other machines use
        the first.
    clients : number of clients whose keys are made here; they have the first numbers
    port : the server's port for clients
    requests : files of `fedsel request`, one for each further client, which has made its key itself
    keep_authority : keep the authority's key in the admin's folder; new certificates can be signed with this key alone

    Raises
    ------
    ConfigError
        If `folder` exists or cannot be written, a host is neither a name nor an address, or a request is damaged or
        given twice.
    """
    made = FederationFolders(folder.absolute())
    public_keys = _requested(made, requests)
    machine = Machine("server", [*hosts, "localhost"][0], port, HERE_RELEASE, clients + len(requests))
    authority = Authority()
    certificate, key = authority.server(hosts)
    token = secrets.token_urlsafe(32)
    files = {
        ".gitignore": NewFile(b"*\n"),
        **_common(made.server.name, machine, authority.certificate),
        "server/server.crt": NewFile(certificate),
        "server/server.key": NewFile(key, OWNER_ALONE),
        "server/token.sha256": NewFile(hashlib.sha256(token.encode()).hexdigest().encode()),
        **_common(made.admin.name, replace(machine, role="admin"), authority.certificate),
        "admin/token": NewFile(token.encode(), OWNER_ALONE),
    }
    if keep_authority:
        files["admin/ca.key"] = NewFile(authority.private, OWNER_ALONE)
    for client, request in enumerate([b""] * clients + public_keys):
        of_client, public = _client(replace(machine, role="client", client=client), authority.certificate, request)
        name = made.client(client).name
        files |= {f"{name}/{file}": content for file, content in of_client.items()}
        files[made.public_key(client).relative_to(made.folder).as_posix()] = public
    try:
        make_folder(made.folder, files)
    except FileExistsError as error:
        raise ConfigError(f"{made.folder} exists already. Choose another folder, or add clients with --add.") from error
    except OSError as error:
        raise ConfigError(f"{made.folder} cannot be written: {error}.") from error
    return made


def add_clients(folder: Path, count: int, requests: Sequence[Path] = ()) -> list[str]:
    """Make the folders of `count` more clients and of one for each request; they take the lowest free numbers.

    Returns
    -------
    list of str
        Names of the new clients, those of the requests last.

    Raises
    ------
    ConfigError
        If `folder` is not a federation or cannot be written, the folder of a revoked client still exists, or a request
        is damaged or its key is known.
    """
    made = FederationFolders(folder.absolute())
    machine, admin = read_machine(made.server, "server"), read_machine(made.admin, "admin")
    authority = read_certificates(made.authority)
    public_keys = _requested(made, requests)
    count += len(requests)
    taken = set(client_numbers(made.server))
    machine = replace(machine, clients=len(taken) + count)
    numbers = [number for number in range(len(taken) + count) if number not in taken][:count]
    for number in numbers:
        if os.path.lexists(made.client(number)):
            raise ConfigError(f"{made.client(number)} is the folder of a revoked client. Move it elsewhere first.")
    machine = replace(machine, clients=max(taken | {*numbers}) + 1)
    try:
        for number, request in zip(numbers, [b""] * (count - len(requests)) + public_keys, strict=True):
            files, public = _client(replace(machine, role="client", client=number), authority, request)
            make_folder(made.client(number), files)
            with own_folder(made.server / "clients") as keys:
                write_new(keys, made.public_key(number).name, public)
        for path, role in ((made.server, machine.role), (made.admin, admin.role)):
            write_machine(path, replace(machine, role=role))
    except OSError as error:
        raise ConfigError(f"{made.folder} cannot be written: {error}.") from error
    return [f"client-{number}" for number in numbers]


def revoke_client(folder: Path, name: str) -> None:
    """Remove a client's public key from the server's folder. The server then refuses the client.

    Raises ConfigError if no client has this name, or the key cannot be removed.
    """
    made = FederationFolders(folder.absolute())
    read_machine(made.server, "server")
    clients = [f"client-{number}" for number in client_numbers(made.server)]
    if name not in clients:
        raise ConfigError(f"There is no client {name!r}. The clients are: {', '.join(clients) or 'none'}.")
    try:
        (made.server / "clients" / f"{name}.pub").unlink()
    except OSError as error:
        raise ConfigError(f"The key of {name} cannot be removed: {error}.") from error


def request_folder(folder: Path) -> Path:
    """Make a client's folder with its key, which never leaves it, and a request for the admin of a federation.

    Returns
    -------
    Path
        File of the request: the client's public key.

    Raises
    ------
    ConfigError
        If `folder` exists or cannot be written.
    """
    private, public = client_key()
    files = {".gitignore": NewFile(b"*\n"), "key": NewFile(private, OWNER_ALONE), REQUEST: NewFile(public)}
    try:
        make_folder(folder.absolute(), files)
    except FileExistsError as error:
        raise ConfigError(f"{folder} exists already. Choose another folder.") from error
    except OSError as error:
        raise ConfigError(f"{folder} cannot be written: {error}.") from error
    return folder / REQUEST


def renew_certificates(folder: Path) -> list[Path]:
    """Make a new certificate and key of the server, for the names that it has now.

    If the admin's folder keeps the authority's key, the other machines need nothing new. Otherwise there is a new
    authority, and the machines trust the old one too until its certificate ends, so that they can be changed one after
    the other.

    Returns
    -------
    list of Path
        The changed files. Those that all machines have come first.

    Raises
    ------
    ConfigError
        If `folder` is not a federation, a file is damaged, or one cannot be written.
    """
    made = FederationFolders(folder.absolute())
    read_machine(made.server, "server")
    kept, old = made.admin / "ca.key", read_certificates(made.authority)
    certified = read_certificates(made.server / "server.crt")
    try:
        authority = Authority(read_file(kept, secret=True), old) if kept.exists() else Authority()
        certificate, key = authority.server(certified_names(certified))
        files = {} if kept.exists() else {path: NewFile(authority.certificate + old) for path in _authorities(made)}
        files |= {made.server / "server.key": NewFile(key, OWNER_ALONE)}
        files |= {made.server / "server.crt": NewFile(certificate)}
        for path, file in files.items():
            with own_folder(path.parent) as opened:
                replace_file(opened, path.name, file)
    except (OSError, ValueError) as error:
        raise ConfigError(f"The certificates in {made.folder} cannot be renewed: {error}.") from error
    return list(files)


def client_numbers(server: Path) -> list[int]:
    """Numbers of the clients whose public keys lie in the server's folder."""
    names = (re.fullmatch(r"client-(\d+)\.pub", path.name) for path in (server / "clients").glob("*"))
    return sorted(int(name[1]) for name in names if name)


def share_signature(federation: FederationFolders) -> None:
    """Copy the signatures from the admin's folder to the server's, and the trusted signers to each client's.

    Raises ConfigError if a file cannot be written.
    """
    signing = federation.admin / SIGNING
    try:
        shutil.copyfile(signing / SIGNATURES, federation.server / SIGNATURES)
        for client in client_numbers(federation.server):
            if federation.client(client).is_dir():
                shutil.copyfile(signing / TRUSTED, federation.client(client) / TRUSTED)
    except OSError as error:
        raise ConfigError(f"The signatures cannot be copied: {error}.") from error


def _requested(made: FederationFolders, requests: Sequence[Path]) -> list[bytes]:
    """Public keys of the requests. Raises ConfigError if one is damaged, or the key of another client."""
    owners = {read_file(made.public_key(n)): f"client-{n}" for n in client_numbers(made.server)}
    keys = []
    for path in requests:
        key = read_request(path)
        if key in owners:
            raise ConfigError(f"Ask for another request than {path}: its key is that of {owners[key]}.")
        owners[key] = str(path)
        keys.append(key)
    return keys


def _authorities(made: FederationFolders) -> list[Path]:
    """The file ca.crt of each machine whose folder is here."""
    return sorted(path / "ca.crt" for path in made.folder.iterdir() if (path / "ca.crt").is_file())


def _client(machine: Machine, authority: bytes, request: bytes) -> tuple[dict[str, NewFile], NewFile]:
    """Files of a client's folder, and the file of its public key: that of its `request`, or of a new key if empty."""
    if request:
        return {**_common("", machine, authority), PUBLIC: NewFile(request)}, NewFile(request)
    private, public = client_key()
    return {**_common("", machine, authority), "key": NewFile(private, OWNER_ALONE)}, NewFile(public)


def _common(folder: str, machine: Machine, authority: bytes) -> dict[str, NewFile]:
    """Files that every machine has, by their names in or above its `folder`."""
    files = {FILE: machine_toml(machine).encode(), "ca.crt": authority, "README.md": _readme(machine).encode()}
    return {str(Path(folder, name)): NewFile(content) for name, content in files.items()}


def _readme(machine: Machine) -> str:
    texts = {
        "server": f"""
Copy this folder to the server, {machine.server}. Install fedsel there and run:

    fedsel start server

Clients connect to port {machine.port}, the admin to port {machine.control_port}. `server.key` proves the server's
identity: do not copy it to another machine. `clients/` holds the public key of each client that may connect. A running
server admits a key that you add there within seconds, and refuses a client whose key you remove. The server writes the
records of runs to `runs/` and its log to `{LOG}`. Its certificate is valid for {VALID.days} days, and `fedsel provision
--renew` makes the next one.
""",
        "client": f"""
Copy this folder to the client's machine. Install fedsel there and run:

    fedsel start {machine.name} --data /path/of/mine.npz

`key` proves the identity of {machine.name}: do not copy it to another machine. With `ca.crt` the client checks that it
talks to the right server, {machine.server}. The client imports an app only if a signer in `{TRUSTED}` has signed it.
The client keeps its own settings in `{FILE}`, its residuals in `state/` and its log in `{LOG}`.
""",
        "admin": f"""
Whoever has this folder may submit runs to {machine.server}, and the server executes the code of each run. `token` is
the password.

    fedsel submit admin --strategy oort --rounds 100
    fedsel status admin

`{SIGNING}/key` signs the app of a run, and clients import no other app. After you change the app, sign it again with
`fedsel sign --out admin/{SIGNING}`, and copy the new `{SIGNATURES}` to the server's folder.
""",
    }
    return f"# {machine.name}\n{texts[machine.role]}"
