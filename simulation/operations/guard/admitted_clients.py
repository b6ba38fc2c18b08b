"""Admitted clients: a SuperLink admits the clients whose public keys lie in a folder.

Flower registers a SuperNode's public key by a command for each key. Here `admit` keeps the SuperLink's nodes equal to a
folder of keys while the SuperLink runs: it registers a new key under the name of its file, and unregisters the node of
a removed key. While a key or the folder cannot be read, its clients stay admitted. It also reports which clients
connect and leave. A folder of keys in Flower would replace this file.
"""

import sqlite3
import threading
from collections.abc import Callable, Mapping, Set
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.serialization import load_ssh_public_key
from flwr.common.constant import HEARTBEAT_DEFAULT_INTERVAL, NOOP_FLWR_AID
from flwr.supercore.constant import NodeStatus
from flwr.supercore.primitives.asymmetric import public_key_to_bytes

from simulation.operations.guard.app_signature import NO_KEY

LOOK_S = 2.0
"""Seconds between two checks of the folder and of the connected clients."""


def admit(state: Any, keys: Path, say: Callable[[str], None]) -> None:
    """Keep a node in the link state for each key in the folder `keys`, as long as this process lives."""
    reported: dict[str, str] = {}
    admit_once(state, keys, reported, say)

    def look() -> None:
        pause = threading.Event()
        while not pause.wait(LOOK_S):
            admit_once(state, keys, reported, say)

    threading.Thread(target=look, name="admitted clients", daemon=True).start()


def admit_once(state: Any, keys: Path, reported: dict[str, str], say: Callable[[str], None]) -> None:
    """Register new keys and unregister removed ones; `reported` holds the last reported status of each client.

    If the folder cannot be read, or the nodes cannot be stored, that is reported once, and nothing is unregistered.
    """
    try:
        follow_keys(state, keys, reported, say)
        reported.pop(str(keys), None)
    except (OSError, sqlite3.Error) as error:
        if reported.get(str(keys)) != str(error):
            reported[str(keys)] = str(error)
            say(f"Mend this, because until then clients may be neither admitted nor revoked: {error}.")


def follow_keys(state: Any, keys: Path, reported: dict[str, str], say: Callable[[str], None]) -> None:
    """Do what `admit_once` does. Raises OSError if the folder cannot be read, or sqlite3.Error at the database."""
    admitted, unreadable = read_keys(keys, reported, say)
    nodes = {node.public_key: node for node in state.get_node_info() if node.status != NodeStatus.UNREGISTERED}
    for key, name in admitted.items():
        if key not in nodes:
            state.create_node(NOOP_FLWR_AID, name, key, HEARTBEAT_DEFAULT_INTERVAL)
    for key, node in nodes.items():
        if node.owner_name in unreadable:
            continue
        if key not in admitted:
            # Flower compares the time of the last heartbeat, and a node that never connected has none.
            node.online_until = node.online_until or 0.0
            state.node_public_key_to_node_id.pop(key, None)
            state.delete_node(node.owner_aid, node.node_id)
            _tell(reported, node.owner_name, "revoked", say)
        elif node.status in (NodeStatus.ONLINE, NodeStatus.OFFLINE):
            _tell(reported, node.owner_name, node.status, say)


def read_keys(
    folder: Path, reported: dict[str, str], say: Callable[[str], None]
) -> tuple[Mapping[bytes, str], Set[str]]:
    """Public key in Flower's form -> name of its file, and the names of unreadable files, which are reported.

    Raises OSError if the folder cannot be read.
    """
    names, unreadable = {}, set()
    for path in sorted(path for path in folder.iterdir() if path.suffix == ".pub"):
        try:
            if not path.is_file():
                raise ValueError("it is no file")
            names[public_key_to_bytes(load_ssh_public_key(path.read_bytes()))] = path.stem  # type: ignore[arg-type]
        except (OSError, *NO_KEY):
            unreadable.add(path.stem)
            _tell(reported, path.stem, "unreadable", say)
    return names, unreadable


def _tell(reported: dict[str, str], name: str, status: str, say: Callable[[str], None]) -> None:
    sentences = {
        NodeStatus.ONLINE: f"{name} is connected.",
        NodeStatus.OFFLINE: f"{name} is not connected any more.",
        "revoked": f"{name} is revoked.",
        "unreadable": f"The public key of {name} cannot be read: copy it again.",
    }
    before = reported.get(name)
    reported[name] = status
    if status != before and not (before is None and status == NodeStatus.OFFLINE):
        say(sentences[status])
