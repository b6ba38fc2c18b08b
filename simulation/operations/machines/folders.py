"""Folders of a federation. Each machine has one, with what it needs and without anything of another machine.

The layout::

    federation/
      server/         machine.toml  server.crt  server.key  token.sha256  signatures.json
      server/clients/ client-0.pub  client-1.pub: the clients that may connect
      client-0/       machine.toml  server.crt  key  trusted.yaml  identities.json
                      with key.pub in place of key if the client made its key itself (`fedsel request`)
      admin/          machine.toml  server.crt  token  identities.json  signing/ (of `fedsel sign`)
"""

import hashlib
import os
import re
import secrets
import shutil
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from cryptography import x509

from fedsel_app.config import ConfigError
from fedsel_app.secure_sums.keys import sign_identities
from fedsel_app.secure_sums.statement import IDENTITIES
from simulation.operations.guard.app_signature import SIGNATURES, TRUSTED, signer
from simulation.operations.machines.checks import CERTIFICATE, PUBLIC, read_certificate
from simulation.operations.machines.keys import (
    KEY,
    certified_names,
    client_key,
    read_request,
    server_certificate,
    signing_key,
)
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
    read_file,
    replace_file,
    write_new,
    writing,
)

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
    def certificate(self) -> Path:
        """Certificate of the server, which clients and `flwr` trust."""
        return self.server / CERTIFICATE

    def public_key(self, client: int) -> Path:
        """A client's public key, in the server's folder."""
        return self.server / "clients" / f"client-{client}.pub"


def make_federation(
    folder: Path, hosts: Sequence[str], clients: int, port: int, *, requests: Sequence[Path] = ()
) -> FederationFolders:
    """Make the folders of one server, its clients and one admin.

    The new folders are private, and git ignores them.

    Raises ConfigError if `folder` exists or cannot be written, a host is neither a name nor an address, or a request is
    damaged or given twice.

    Parameters
    ----------
    folder : folder of the federation. It must not exist.
    hosts : host names or IP addresses of the server. Its certificate is valid for all of them. The other machines use
        the first.
    clients : number of clients whose keys are made here; they have the first numbers
    port : the server's port for clients
    requests : files of `fedsel request`, one for each further client, which has made its key itself
    """
    federation = FederationFolders(folder.absolute())
    public_keys = _requested(federation, requests)
    machine = Machine("server", [*hosts, "localhost"][0], port, HERE_RELEASE, clients + len(requests))
    certificate, key = server_certificate(hosts)
    token = secrets.token_urlsafe(32)
    files = {
        ".gitignore": NewFile(b"*\n"),
        **_common(federation.server.name, machine, certificate),
        "server/server.key": NewFile(key, OWNER_ALONE),
        "server/token.sha256": NewFile(hashlib.sha256(token.encode()).hexdigest().encode()),
        **_common(federation.admin.name, replace(machine, role="admin"), certificate),
        "admin/token": NewFile(token.encode(), OWNER_ALONE),
    }
    for client, request in enumerate([b""] * clients + public_keys):
        of_client, public = _client(replace(machine, role="client", client=client), certificate, request)
        name = federation.client(client).name
        files |= {f"{name}/{file}": content for file, content in of_client.items()}
        files[federation.public_key(client).relative_to(federation.folder).as_posix()] = public
    make_folder(federation.folder, files)
    return federation


def add_clients(folder: Path, count: int, requests: Sequence[Path] = ()) -> list[str]:
    """Make the folders of `count` more clients and of one for each request; they take the lowest free numbers.

    Returns the names of the new clients, those of the requests last. Raises ConfigError if `folder` is not a federation
    or cannot be written, the folder of a revoked client still exists, or a request is damaged or its key is known.
    """
    federation = FederationFolders(folder.absolute())
    machine, admin = read_machine(federation.server, "server"), read_machine(federation.admin, "admin")
    certificate = read_certificate(federation.certificate)
    public_keys = _requested(federation, requests)
    count += len(requests)
    taken = set(client_numbers(federation.server))
    replace(machine, clients=len(taken) + count)  # refuses more than there may be
    numbers = [number for number in range(len(taken) + count) if number not in taken][:count]
    for path in filter(os.path.lexists, map(federation.client, numbers)):
        raise ConfigError(f"{path} is the folder of a revoked client. Move it elsewhere first.")
    machine = replace(machine, clients=max(taken | {*numbers}) + 1)
    with writing(federation.folder):
        for number, request in zip(numbers, [b""] * (count - len(requests)) + public_keys, strict=True):
            files, public = _client(replace(machine, role="client", client=number), certificate, request)
            make_folder(federation.client(number), files)
            write_new(federation.public_key(number), public)
        for path, role in ((federation.server, machine.role), (federation.admin, admin.role)):
            write_machine(path, replace(machine, role=role))
    return [f"client-{number}" for number in numbers]


def revoke_client(folder: Path, name: str) -> None:
    """Remove a client's public key from the server's folder. The server then refuses the client.

    Raises ConfigError if no client has this name, or its key cannot be removed.
    """
    federation = FederationFolders(folder.absolute())
    read_machine(federation.server, "server")
    clients = [f"client-{number}" for number in client_numbers(federation.server)]
    if name not in clients:
        raise ConfigError(f"There is no client {name!r}. The clients are: {', '.join(clients) or 'none'}.")
    with writing(federation.server):
        (federation.server / "clients" / f"{name}.pub").unlink()


def request_folder(folder: Path) -> Path:
    """Make a client's folder with its key, which never leaves it, and a request for the admin of a federation.

    Returns the file of the request: the client's public key. Raises ConfigError if `folder` exists or cannot be
    written.
    """
    private, public = client_key()
    files = {".gitignore": NewFile(b"*\n"), "key": NewFile(private, OWNER_ALONE), REQUEST: NewFile(public)}
    make_folder(folder.absolute(), files)
    return folder / REQUEST


def renew_certificates(folder: Path) -> list[Path]:
    """Make a new certificate and key of the server, for the names that it has now.

    A machine with the new certificate trusts no earlier one, so that a stolen key is worth nothing.

    Returns the changed files: the certificate in each folder, then the key. Raises ConfigError if `folder` is not a
    federation, a file is damaged, or one cannot be written.
    """
    federation = FederationFolders(folder.absolute())
    read_machine(federation.server, "server")
    try:
        certificate, key = server_certificate(certified_names(read_certificate(federation.certificate)))
    except x509.ExtensionNotFound as error:
        raise ConfigError(f"The certificate in {federation.server} cannot be renewed: {error}.") from error
    files = {path: NewFile(certificate) for path in sorted(federation.folder.glob(f"*/{CERTIFICATE}"))}
    files[federation.server / "server.key"] = NewFile(key, OWNER_ALONE)
    with writing(federation.folder):
        for path, file in files.items():
            replace_file(path, file)
    return list(files)


def client_numbers(server: Path) -> list[int]:
    """Numbers of the clients whose public keys lie in the server's folder."""
    names = (re.fullmatch(r"client-(\d+)\.pub", path.name) for path in (server / "clients").glob("*"))
    return sorted(int(name[1]) for name in names if name)


def share_signature(federation: FederationFolders) -> None:
    """Copy the signatures from the admin's folder to the server's, and the trusted signers to each client's.

    Each client also gets the identities of all, see `share_identities`. Raises ConfigError if a file cannot be written.
    """
    signing = federation.admin / SIGNING
    with writing(federation.folder):
        shutil.copyfile(signing / SIGNATURES, federation.server / SIGNATURES)
        for client in client_numbers(federation.server):
            if federation.client(client).is_dir():
                shutil.copyfile(signing / TRUSTED, federation.client(client) / TRUSTED)
    share_identities(federation)


def share_identities(federation: FederationFolders) -> bool:
    """Sign the list of all clients' public keys, and write it to the admin's folder and to each client's.

    Secure sums need it. A client without trusted signers trusts the signer of the list from then on. Returns False, and
    writes nothing, if the signing key is elsewhere.

    Raises ConfigError if a file cannot be read or written.
    """
    if not (federation.admin / SIGNING / KEY).exists():
        return False
    key = signing_key(federation.admin / SIGNING)
    known = {number: read_file(federation.public_key(number)) for number in client_numbers(federation.server)}
    listed = sign_identities({number: public.decode().strip() for number, public in known.items()}, key)
    name, public = signer(key)
    with writing(federation.folder):
        for folder in (federation.admin, *filter(Path.is_dir, map(federation.client, known))):
            replace_file(folder / IDENTITIES, NewFile(listed.encode()))
            if folder != federation.admin and not (folder / TRUSTED).exists():
                write_new(folder / TRUSTED, NewFile(f"{name}: {public}\n".encode()))
    return True


def _requested(federation: FederationFolders, requests: Sequence[Path]) -> list[bytes]:
    """Public keys of the requests. Raises ConfigError if one is damaged, or the key of another client."""
    owners = {read_file(federation.public_key(n)): f"client-{n}" for n in client_numbers(federation.server)}
    keys = []
    for path in requests:
        key = read_request(path)
        if key in owners:
            raise ConfigError(f"Ask for another request than {path}: its key is that of {owners[key]}.")
        owners[key] = str(path)
        keys.append(key)
    return keys


def _client(machine: Machine, certificate: bytes, request: bytes) -> tuple[dict[str, NewFile], NewFile]:
    """Files of a client's folder, and the file of its public key: that of its `request`, or of a new key if empty."""
    if request:
        return {**_common("", machine, certificate), PUBLIC: NewFile(request)}, NewFile(request)
    private, public = client_key()
    return {**_common("", machine, certificate), "key": NewFile(private, OWNER_ALONE)}, NewFile(public)


def _common(folder: str, machine: Machine, certificate: bytes) -> dict[str, NewFile]:
    """Files that every machine has, by their names in or above its `folder`."""
    files = {FILE: machine_toml(machine).encode(), CERTIFICATE: certificate}
    return {str(Path(folder, name)): NewFile(content) for name, content in files.items()}
