"""Admitted clients: a SuperLink admits the clients whose public keys lie in a folder.

Flower registers a SuperNode's public key by a command for each key. Here `admit` keeps the SuperLink's nodes equal to a
folder of keys while the SuperLink runs: it registers a new key under the name of its file, and unregisters the node of
a removed key. While a key or the folder cannot be read, its clients stay admitted. A node's number follows from its
key, so that clients go on with a SuperLink that was started again. A folder of keys in Flower would replace this file.
"""

import hashlib
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.serialization import load_ssh_public_key
from flwr.common.constant import HEARTBEAT_DEFAULT_INTERVAL, NOOP_FLWR_AID
from flwr.supercore.constant import NodeStatus
from flwr.supercore.primitives.asymmetric import public_key_to_bytes

from simulation.operations.guard.app_signature import NO_KEY

LOOK_S = 2.0
"""Seconds between two checks of the folder."""


def admit(state: Any, keys: Path, say: Callable[[str], None]) -> None:
    """Keep a node in the link state for each key in the folder `keys`, as long as this process lives."""
    clients = AdmittedClients(state, keys, say)
    clients.look()

    def follow() -> None:
        pause = threading.Event()
        while not pause.wait(LOOK_S):
            clients.look()

    threading.Thread(target=follow, name="admitted clients", daemon=True).start()


class AdmittedClients:
    """The clients in a link state. `say` is called with each sentence about them that the user must know, once."""

    def __init__(self, state: Any, keys: Path, say: Callable[[str], None]) -> None:
        self._state, self._keys, self._say = state, keys, say
        self._said: set[str] = set()

    def look(self) -> None:
        """Register new keys and unregister removed ones. If the folder cannot be read, nothing is unregistered."""
        try:
            sentences = self._follow_keys()
        except OSError as error:
            sentences = {f"Mend this, because until then clients may be neither admitted nor revoked: {error}."}
        for sentence in sorted(sentences - self._said):
            self._say(sentence)
        self._said = sentences

    def _follow_keys(self) -> set[str]:
        """Do what `look` does, and return what to say. Raises OSError if the folder cannot be read."""
        names, unreadable, sentences = dict[bytes, str](), set[str](), set[str]()
        for path in sorted(path for path in self._keys.iterdir() if path.suffix == ".pub"):
            try:
                if not path.is_file():
                    raise ValueError("it is no file")
                key: Any = load_ssh_public_key(path.read_bytes())
                names[public_key_to_bytes(key)] = path.stem
            except (OSError, *NO_KEY):
                unreadable.add(path.stem)
                sentences.add(f"The public key of {path.stem} cannot be read: copy it again.")
        state = self._state
        nodes = {node.public_key: node for node in state.get_node_info() if node.status != NodeStatus.UNREGISTERED}
        for public in names.keys() - nodes.keys():
            register(state, names[public], public)
        for public, node in nodes.items():
            if public not in names and node.owner_name not in unreadable:
                # Flower compares the time of the last heartbeat, and a node that never connected has none.
                node.online_until = node.online_until or 0.0
                state.node_public_key_to_node_id.pop(public, None)
                state.delete_node(node.owner_aid, node.node_id)
                sentences.add(f"{node.owner_name} is revoked.")
        return sentences


def register(state: Any, name: str, public: bytes) -> None:
    """Register the node of a public key. Flower draws its number; here it is the same after each start."""
    with state.lock:
        drawn = state.create_node(NOOP_FLWR_AID, name, public, HEARTBEAT_DEFAULT_INTERVAL)
        node, number = state.nodes.pop(drawn), int.from_bytes(hashlib.sha256(public).digest()[:8], "big")
        node.node_id = number
        state.nodes[number], state.node_public_key_to_node_id[public] = node, number
        ids = state.owner_to_node_ids[NOOP_FLWR_AID]
        ids.remove(drawn)
        ids.add(number)
