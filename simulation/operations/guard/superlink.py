"""SuperLink of Flower, with faster stores, and closed to other users of the machine.

- `get_objectstore_linkstate_factories` makes stores in a database, which take seconds of processor time for a round of
  three clients. `in_memory_factories` keeps only the nodes there, so that a restarted SuperLink knows them.
- Messages are handed out before they are stored, and nodes may upload anything: see `uploads`.
- `LinkState.get_fab` knows only signatures of Flower Hub: see `app_signature`.
- Clients are registered by calls of the Control API: see `admitted_clients`.
- `_parse_superlink_lifespan_config` gives the configuration, and `_get_superexec_command` the command that starts the
  ServerApps. `close_to_strangers` replaces both.

A faster database, and accounts without an identity provider, would replace this file.
"""

import logging
import secrets
import sqlite3
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

from simulation.operations.guard.admitted_clients import admit
from simulation.operations.guard.app_signature import signatures_of
from simulation.operations.guard.control_account import ControlAccount, open_account
from simulation.operations.guard.port_limits import limit_ports
from simulation.operations.guard.transport import CONTROL_OVER_GRPC
from simulation.operations.guard.uploads import bound_uploads, hand_out_whole

FACTORIES_HOOK = "get_objectstore_linkstate_factories"
POLL = "[Fleet.PullMessages]"
"""Words of the log line of a client that asks for messages, which it does up to ten times a second."""
CONFIG_HOOK, SUPEREXEC_HOOK = "_parse_superlink_lifespan_config", "_get_superexec_command"


def run_superlink(provisioned: Path | None = None, say: Callable[[str], None] = print) -> None:
    """Run Flower's SuperLink with the arguments of its command line and with these parts replaced.

    With the folder of a `provisioned` server, it admits the clients whose public keys lie in ``clients`` there, hands
    out the signatures of that folder, and accepts the token whose hash is in ``token.sha256``. `say` is called with a
    sentence when a client connects or leaves.
    """
    from flwr.common.logger import update_console_handler

    program: Any = import_module("flwr.superlink.cli.flower_superlink")
    factories = partial(in_memory_factories, provisioned=provisioned, say=say)
    setattr(import_module("flwr.superlink.main"), FACTORIES_HOOK, factories)
    with tempfile.TemporaryDirectory(prefix="fedsel-") as folder:
        digest = provisioned and (provisioned / "token.sha256").read_text(encoding="utf-8").strip()
        close_to_strangers(program, Path(folder), partial(open_account, lasting=digest or ""))
        limit_ports(program)
        bound_uploads()
        logging.getLogger("flwr").addFilter(lambda record: POLL not in record.getMessage())
        update_console_handler(colored=sys.stderr.isatty())
        program.flower_superlink()


def close_to_strangers(program: Any, folder: Path, account: Callable[[str], ControlAccount]) -> None:
    """Open the Control API of Flower's `program` to one account, and its tasks to its own SuperExec.

    Only this user can read `folder`; `account` opens the account for an address.
    """
    from flwr.common.constant import ISOLATION_MODE_SUBPROCESS

    parse, command_of = getattr(program, CONFIG_HOOK), getattr(program, SUPEREXEC_HOOK)
    secret = folder / "superexec-secret"
    secret.touch(mode=0o600)
    secret.write_bytes(secrets.token_bytes(32))

    def parse_closed() -> Any:
        config = parse()
        config.authn_plugin = account(config.control_address if CONTROL_OVER_GRPC else f"{config.host}:{config.port}")
        if config.isolation == ISOLATION_MODE_SUBPROCESS:
            config.superexec_auth_secret = secret.read_bytes()
        return config

    def command(*arguments: Any, **options: Any) -> list[str]:
        rest = command_of(*arguments, **options)[1:]
        return [sys.executable, "-m", "simulation.operations.guard.superexec", str(secret), *rest]

    setattr(program, CONFIG_HOOK, parse_closed)
    setattr(program, SUPEREXEC_HOOK, command)


def in_memory_factories(
    database: str, federation_manager: Any, provisioned: Path | None = None, say: Callable[[str], None] = print
) -> tuple[Any, Any]:
    """Factories of the object store and the link state, both in memory; the nodes are also kept in `database`."""
    from flwr.server.superlink.linkstate import LinkStateFactory
    from flwr.supercore.constant import FLWR_IN_MEMORY_DB_NAME
    from flwr.supercore.object_store import ObjectStoreFactory
    from flwr.supercore.utils import get_flwr_home

    objects = ObjectStoreFactory(FLWR_IN_MEMORY_DB_NAME)
    links = LinkStateFactory(FLWR_IN_MEMORY_DB_NAME, federation_manager, objects)
    if database != FLWR_IN_MEMORY_DB_NAME:
        keep_nodes(links.state(), Path(database))
    hand_out_whole(links.state())
    attach_signatures(links.state(), [get_flwr_home(), *([provisioned] if provisioned else [])])
    if provisioned is not None:
        admit(links.state(), provisioned / "clients", say)
    return objects, links


def keep_nodes(state: Any, file: Path) -> None:
    """Read the nodes of a link state from the database `file` (mode 0600), and write each change to it.

    A node that was online counts as online until it has missed two heartbeats, as in Flower's own database. Raises
    sqlite3.Error if the file cannot be read or written.
    """
    from flwr.common.constant import HEARTBEAT_DEFAULT_INTERVAL, HEARTBEAT_PATIENCE
    from flwr.proto.node_pb2 import NodeInfo
    from flwr.supercore.constant import NodeStatus

    file.touch(mode=0o600)
    file.chmod(0o600)
    with closing(sqlite3.connect(file)) as database, database:
        database.execute("CREATE TABLE IF NOT EXISTS nodes (id TEXT PRIMARY KEY, info BLOB NOT NULL)")
        nodes = [NodeInfo.FromString(info) for (info,) in database.execute("SELECT info FROM nodes")]
    for node in nodes:
        if node.status == NodeStatus.ONLINE:
            node.online_until = time.time() + HEARTBEAT_PATIENCE * HEARTBEAT_DEFAULT_INTERVAL
        state.nodes[node.node_id] = node
        state.node_public_key_to_node_id[node.public_key] = node.node_id
        state.owner_to_node_ids.setdefault(node.owner_aid, set()).add(node.node_id)

    def keeping(change: Callable[..., Any]) -> Callable[..., Any]:
        def changed(*arguments: Any, **named: Any) -> Any:
            with state.lock, closing(sqlite3.connect(file)) as database, database:
                result = change(*arguments, **named)
                registered = [node for node in state.nodes.values() if node.status != NodeStatus.UNREGISTERED]
                rows = [(str(node.node_id), node.SerializeToString()) for node in registered]
                database.execute("DELETE FROM nodes")
                database.executemany("INSERT INTO nodes VALUES (?, ?)", rows)
            return result

        return changed

    for name in ("create_node", "delete_node", "activate_node", "deactivate_node"):
        setattr(state, name, keeping(getattr(state, name)))


def attach_signatures(state: Any, folders: Sequence[Path]) -> None:
    """Let a link state hand out each app with its signatures in `folders` (see `app_signature`)."""
    get_fab = state.get_fab

    def get_signed(fab_hash: str) -> Any:
        fab = get_fab(fab_hash)
        if fab is not None:
            for folder in folders:
                fab.verifications.update(signatures_of(folder, fab_hash))
        return fab

    state.get_fab = get_signed
