"""Folders of a federation: keys checked by Python's TLS and by OpenSSH, and the files in each folder."""

import hashlib
import os
import shutil
import socket
import ssl
import stat
import subprocess
import threading

import pytest

from clients.masking import read_identity
from fedsel_app.config import ConfigError
from fedsel_app.secure_sums.statement import IDENTITIES
from simulation.operations.machines.checks import check_folder
from simulation.operations.machines.folders import (
    SIGNING,
    FederationFolders,
    add_clients,
    client_numbers,
    make_federation,
    renew_certificates,
    request_folder,
    revoke_client,
    share_identities,
)
from simulation.operations.machines.keys import days_left, fingerprint, signing_key
from simulation.operations.machines.machine import read_machine, with_settings, write_machine
from simulation.operations.machines.private_files import held_folder
from tests.support.public_keys import public_key_line


@pytest.fixture(scope="module")
def made(tmp_path_factory) -> FederationFolders:
    return make_federation(tmp_path_factory.mktemp("made") / "federation", ["server.example", "10.1.2.3"], 2, 9092)


def handshake(server: FederationFolders, trusted: FederationFolders, name: str) -> str:
    """Outcome of a TLS connection to `server` under `name` by a client that trusts `trusted`."""
    listening = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    listening.load_cert_chain(server.server / "server.crt", server.server / "server.key")
    asking = ssl.create_default_context(cafile=trusted.certificate)
    here, there = socket.socketpair()

    def serve() -> None:
        try:
            with listening.wrap_socket(there, server_side=True) as connection:
                connection.sendall(b"hello")
        except ssl.SSLError:
            there.close()

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        with here, asking.wrap_socket(here, server_hostname=name) as connection:
            return connection.recv(5).decode()
    except ssl.SSLCertVerificationError as error:
        return error.verify_message
    finally:
        thread.join()


def test_each_folder_holds_its_own_and_nothing_of_anothers(made):
    names = {folder.name: sorted(path.name for path in folder.rglob("*")) for folder in made.folder.iterdir()}
    common = ["machine.toml", "server.crt"]
    public = ["client-0.pub", "client-1.pub", "clients"]
    assert names == {
        ".gitignore": [],
        "server": sorted([*common, *public, "server.key", "token.sha256"]),
        "client-0": sorted([*common, "key"]),
        "client-1": sorted([*common, "key"]),
        "admin": sorted([*common, "token"]),
    }
    private = {path.relative_to(made.folder).as_posix(): path for path in made.folder.rglob("*") if is_private(path)}
    assert private.keys() == {"server/server.key", "admin/token", "client-0/key", "client-1/key"}
    assert len({path.read_bytes() for path in private.values()}) == len(private)
    folders = [made.folder, *(path for path in made.folder.rglob("*") if path.is_dir())]
    assert {stat.S_IMODE(folder.stat().st_mode) for folder in folders} == {0o700}
    token = (made.admin / "token").read_bytes()
    assert (made.server / "token.sha256").read_text() == hashlib.sha256(token).hexdigest()


def test_clients_are_added_and_revoked_by_name(tmp_path):
    made = make_federation(tmp_path / "federation", ["server.example"], 2, 9092)
    before = (made.client(0) / "key").read_bytes()
    assert add_clients(made.folder, 2) == ["client-2", "client-3"]
    revoke_client(made.folder, "client-1")
    assert client_numbers(made.server) == [0, 2, 3]
    assert (made.client(0) / "key").read_bytes() == before
    assert [read_machine(path, "server", "admin").clients for path in (made.server, made.admin)] == [4, 4]
    with pytest.raises(ConfigError, match="The clients are: client-0, client-2, client-3"):
        revoke_client(made.folder, "client-1")
    with pytest.raises(ConfigError, match="client-1 is the folder of a revoked client"):
        add_clients(made.folder, 1)
    made.client(1).rename(tmp_path / "revoked")
    assert add_clients(made.folder, 1) == ["client-1"]
    assert (made.client(1) / "key").read_bytes() != (tmp_path / "revoked" / "key").read_bytes()


def test_the_identities_that_the_admin_signs_follow_the_clients(tmp_path):
    """Each client trusts the list that its signer has signed, and no other; revoked clients are not in it."""
    made = make_federation(tmp_path / "federation", ["server.example"], 3, 9092)
    assert not share_identities(made)
    signing_key(made.admin / SIGNING)
    assert share_identities(made)
    assert sorted(read_identity(made.client(0), 0).others) == [0, 1, 2]
    add_clients(made.folder, 1)
    revoke_client(made.folder, "client-1")
    share_identities(made)
    known = read_identity(made.client(3), 3)
    assert sorted(known.others) == [0, 2, 3]
    assert known.others[2] == made.public_key(2).read_text().strip()
    listed = made.client(0) / IDENTITIES
    listed.write_text(listed.read_text().replace('"2":', '"1":'))
    with pytest.raises(ConfigError, match="none of the trusted signers has signed it"):
        read_identity(made.client(0), 0)


def test_a_client_that_makes_its_key_itself_keeps_it(tmp_path):
    requests = [request_folder(tmp_path / name) for name in ("north", "south", "west")]
    made = make_federation(tmp_path / "federation", ["server.example"], 1, 9092, requests=requests[:2])
    assert add_clients(made.folder, 1, requests[2:]) == ["client-3", "client-4"]
    assert client_numbers(made.server) == [0, 1, 2, 3, 4]
    keys = [path.parent.name for path in made.folder.rglob("key")]
    assert sorted(keys) == ["client-0", "client-3"]
    assert all(is_private(request.parent / "key") for request in requests)
    north, answer = tmp_path / "north", made.client(1)
    assert made.public_key(1).read_bytes() == (answer / "key.pub").read_bytes() == requests[0].read_bytes()
    with pytest.raises(ConfigError, match="into the folder that `fedsel request` made"):
        check_folder(answer, read_machine(answer, "client"))
    shutil.copytree(answer, north, dirs_exist_ok=True)
    machine = read_machine(north, "client")
    check_folder(north, machine)
    assert (machine.name, machine.clients) == ("client-1", 3)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIG9Qtqz8aPTV1Cq1mTBRGzBXAZxf3ZCIs4dW4hH8Pj9o", "another kind of key"),
        (b"ecdsa-sha2-nistp384 " + b"A" * 100_000, "is no request of a client"),
        (public_key_line(b"\x02" + bytes(48)), "is no request of a client"),
        (None, "No such file"),
        (None, "pipe"),
    ],
)
def test_a_damaged_request_is_refused(tmp_path, content, said):
    path = tmp_path / "request.pub"
    if said == "pipe":
        os.mkfifo(path)
    elif content is not None:
        path.write_bytes(content)
    with pytest.raises(ConfigError, match="is no request of a client" if said == "pipe" else said):
        make_federation(tmp_path / "federation", ["server.example"], 0, 9092, requests=[path])
    assert not (tmp_path / "federation").exists()


@pytest.mark.timeout(20)
def test_more_clients_than_a_federation_may_have_are_refused_before_a_key_is_made(tmp_path):
    with pytest.raises(ConfigError, match="'clients' parameter must be from 1 to 1000000"):
        make_federation(tmp_path / "many", ["localhost"], 10**12, 9092)
    made = make_federation(tmp_path / "federation", ["localhost"], 1, 9092)
    with pytest.raises(ConfigError, match="'clients' parameter must be from 1 to 1000000"):
        add_clients(made.folder, 10**12)


def test_a_request_counts_once(tmp_path):
    request = request_folder(tmp_path / "north")
    with pytest.raises(ConfigError, match=r"its key is that of .*north/request\.pub"):
        make_federation(tmp_path / "federation", ["server.example"], 0, 9092, requests=[request, request])
    made = make_federation(tmp_path / "federation", ["server.example"], 0, 9092, requests=[request])
    with pytest.raises(ConfigError, match="its key is that of client-0"):
        add_clients(made.folder, 0, [request])
    with pytest.raises(ConfigError, match="exists already"):
        request_folder(tmp_path / "north")


def test_the_fingerprint_is_that_of_ssh_keygen(tmp_path):
    request = request_folder(tmp_path / "north")
    listed = subprocess.run(["ssh-keygen", "-lf", request], capture_output=True, text=True, check=True).stdout
    assert fingerprint(request.read_bytes()) == listed.split()[1]


def test_renewed_certificates_retire_the_old_ones(tmp_path):
    """U7: the old key passed for the server's for a year after it was stolen."""
    made = make_federation(tmp_path / "federation", ["server.example", "10.1.2.3"], 1, 9092)
    shutil.copytree(made.folder, tmp_path / "old")
    old = FederationFolders(tmp_path / "old")
    changed = [path.relative_to(made.folder).as_posix() for path in renew_certificates(made.folder)]
    assert changed == ["admin/server.crt", "client-0/server.crt", "server/server.crt", "server/server.key"]
    assert is_private(made.server / "server.key")
    assert (made.server / "server.key").read_bytes() != (old.server / "server.key").read_bytes()
    for name in ("server.example", "10.1.2.3", "localhost"):
        assert handshake(made, made, name) == "hello"
    for client, server in ((made, old), (old, made)):
        assert handshake(client, server, "server.example") == "self-signed certificate"
    assert 363 <= days_left(made.certificate.read_bytes()) <= 365
    check_folder(made.server, read_machine(made.server, "server"))


def is_private(path) -> bool:
    return path.is_file() and stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_machine_keeps_a_clients_own_settings(made, tmp_path):
    machine = read_machine(made.client(1), "client")
    assert (machine.name, machine.fleet, machine.clients) == ("client-1", "server.example:9092", 2)
    own = with_settings(machine, {"data-path": "/data/it's mine.npz", "threads": 2, "share-label-counts": False})
    write_machine(tmp_path, own)
    assert read_machine(tmp_path, "client") == own
    with pytest.raises(ConfigError, match="A client cannot have rounds of its own"):
        with_settings(machine, {"rounds": 3})
    with pytest.raises(ConfigError, match="server cannot have threads: only a client has"):
        with_settings(read_machine(made.server, "server"), {"threads": 2})


def test_a_folder_that_is_none_or_anothers_is_refused(made, tmp_path):
    with pytest.raises(ConfigError, match=r"it has no machine\.toml"):
        read_machine(tmp_path, "client")
    with pytest.raises(ConfigError, match="is the folder of server, but this command needs the folder of admin"):
        read_machine(made.server, "admin")
    for text, said in (("", "is damaged: it is wrong at clients, flower"), ("role", "is damaged: ")):
        (tmp_path / "machine.toml").write_text(text)
        with pytest.raises(ConfigError, match=said):
            read_machine(tmp_path, "client")


def test_a_temporary_folder_is_private_begins_empty_and_is_removed(tmp_path):
    for _ in range(2):
        with held_folder(tmp_path / "own", "") as folder:
            assert folder == tmp_path / "own" / "tmp"
            assert not list(folder.iterdir())
            assert stat.S_IMODE(folder.stat().st_mode) == 0o700
            (folder / "fedsel-2").mkdir()
        assert not folder.exists()
        (folder / "fedsel-1").mkdir(parents=True)  # as a killed process leaves it
