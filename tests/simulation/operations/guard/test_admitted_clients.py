"""Admitted clients: the keys in Flower's link state follow the files in a folder of public keys."""

import shutil

import pytest
from flwr.common.constant import HEARTBEAT_DEFAULT_INTERVAL

from simulation.operations.guard.admitted_clients import AdmittedClients
from simulation.operations.machines.folders import make_federation
from tests.support.link_state import started
from tests.support.public_keys import public_key_line


@pytest.fixture
def admitted(tmp_path):
    made = make_federation(tmp_path / "federation", ["localhost"], 2, 9092)
    state, said = started(), []
    clients = AdmittedClients(state, made.server / "clients", said.append)

    def look():
        clients.look()
        return {node.owner_name: node.status for node in state.get_node_info()}

    return made, state, look, said


def node_of(state, name):
    [node] = [node.node_id for node in state.get_node_info() if node.owner_name == name]
    return node


def test_who_has_a_key_in_the_folder_is_registered(admitted):
    _, state, look, said = admitted
    look()
    assert look() == {"client-0": "registered", "client-1": "registered"}
    assert said == []
    state.activate_node(node_of(state, "client-1"), HEARTBEAT_DEFAULT_INTERVAL)
    assert look() == {"client-0": "registered", "client-1": "online"}
    assert said == []


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
    assert look() == {"client-0": "registered", "client-1": "registered"}
    assert state.get_node_id_by_public_key(key) == node
    assert said == ["client-0 is revoked."]


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
    assert said == ["The public key of client-0 cannot be read: copy it again."]


def test_a_folder_that_fails_is_told_once_and_ends_nothing(admitted, tmp_path):
    """An error ended the thread that admits and revokes; without the folder, every client was revoked."""
    made, _, look, said = admitted
    look()
    (made.server / "clients").rename(tmp_path / "elsewhere")
    for _ in range(2):
        assert look() == {"client-0": "registered", "client-1": "registered"}
    (tmp_path / "elsewhere").rename(made.server / "clients")
    assert look() == {"client-0": "registered", "client-1": "registered"}
    [sentence] = said
    assert sentence.endswith(f"No such file or directory: '{made.server / 'clients'}'.")


def test_a_superlink_that_is_started_again_knows_its_clients(admitted):
    """A client goes on with the number that it has: its next heartbeat connects it."""
    made, state, look, _ = admitted
    look()
    again = started()
    AdmittedClients(again, made.server / "clients", print).look()
    for name in ("client-0", "client-1"):
        node = node_of(state, name)
        assert node_of(again, name) == node
        assert again.acknowledge_node_heartbeat(node, HEARTBEAT_DEFAULT_INTERVAL)
    assert {node.status for node in again.get_node_info()} == {"online"}
