"""Admitted clients: the keys in Flower's link state follow the files in a folder of public keys."""

import shutil

import pytest
from flwr.common.constant import HEARTBEAT_DEFAULT_INTERVAL
from flwr.superlink.federation import NoOpFederationManager

from simulation.operations.guard.admitted_clients import AdmittedClients
from simulation.operations.guard.superlink import in_memory_factories
from simulation.operations.machines.folders import make_federation
from tests.support.public_keys import public_key_line


@pytest.fixture
def admitted(tmp_path):
    made = make_federation(tmp_path / "federation", ["localhost"], 2, 9092)
    _, links = in_memory_factories(str(tmp_path / "superlink.db"), NoOpFederationManager())
    said = []
    clients = AdmittedClients(links.state(), made.server / "clients", said.append)

    def look():
        clients.look()
        return {node.owner_name: node.status for node in links.state().get_node_info()}

    return made, links.state(), look, said


def node_of(state, name):
    [node] = [node.node_id for node in state.get_node_info() if node.owner_name == name]
    return node


def test_who_has_a_key_in_the_folder_is_registered_and_told_of_when_it_comes_and_goes(admitted):
    _, state, look, said = admitted
    look()
    assert look() == {"client-0": "registered", "client-1": "registered"}
    assert said == []
    state.activate_node(node_of(state, "client-1"), HEARTBEAT_DEFAULT_INTERVAL)
    assert look() == {"client-0": "registered", "client-1": "online"}
    state.deactivate_node(node_of(state, "client-1"))
    look()
    look()
    assert said == ["client-1 is connected.", "client-1 is not connected any more."]


def test_a_key_that_is_removed_is_unknown_at_once_and_may_come_back(admitted):
    made, state, look, said = admitted
    look()
    node = node_of(state, "client-0")
    state.activate_node(node, HEARTBEAT_DEFAULT_INTERVAL)
    look()
    key = next(info.public_key for info in state.get_node_info() if info.node_id == node)
    public = made.public_key(0)
    shutil.move(public, made.folder)
    look()
    assert state.get_node_id_by_public_key(key) is None
    shutil.move(made.folder / public.name, public)
    look()
    assert state.get_node_id_by_public_key(key) not in (None, node)
    assert said == ["client-0 is connected.", "client-0 is revoked."]


@pytest.mark.parametrize("key", [b"no key", public_key_line(b"\x02" + bytes(48)), public_key_line(b"\x04" + bytes(96))])
def test_a_key_that_cannot_be_read_is_told_once_and_keeps_nobody_else_out(admitted, key):
    """A key whose point is compressed ended the thread that admits and revokes clients."""
    made, _, look, said = admitted
    made.public_key(0).write_bytes(key)
    look()
    assert look() == {"client-1": "registered"}
    assert said == ["The public key of client-0 cannot be read: copy it again."]


def test_a_key_that_is_being_copied_revokes_nobody(admitted):
    """`scp` writes over the file: the client's node was deleted, and the client left the run."""
    made, state, look, said = admitted
    look()
    node = node_of(state, "client-0")
    state.activate_node(node, HEARTBEAT_DEFAULT_INTERVAL)
    whole = made.public_key(0).read_bytes()
    for content in (b"", whole[:20], whole):
        made.public_key(0).write_bytes(content)
        assert look() == {"client-0": "online", "client-1": "registered"}
    assert node_of(state, "client-0") == node
    assert said == ["The public key of client-0 cannot be read: copy it again.", "client-0 is connected."]


def test_a_folder_or_a_database_that_fails_is_told_once_and_ends_nothing(admitted, tmp_path):
    """An error ended the thread that admits and revokes; without the folder, every client was revoked."""
    made, _, look, said = admitted
    database, elsewhere = tmp_path / "superlink.db", tmp_path / "elsewhere"
    database.rename(elsewhere)
    database.mkdir()
    look()
    database.rmdir()
    elsewhere.rename(database)
    (made.server / "clients").rename(elsewhere)
    for _ in range(2):
        assert set(look().values()) <= {"registered"}
    elsewhere.rename(made.server / "clients")
    assert look() == {"client-0": "registered", "client-1": "registered"}
    first, second = said
    assert first.endswith("unable to open database file.")
    assert second.endswith(f"No such file or directory: '{made.server / 'clients'}'.")
