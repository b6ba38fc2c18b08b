"""SuperLink: Flower's own, with parts replaced so that it answers when there is something.

- The calls for messages of both APIs answer at once, mostly that there is nothing, and are asked again every three
  seconds. `answer_when_stored` holds those of the Runtime API until there is something, and `fleet_service` the others.
- `LinkState.store_message_and_object_tree` and `store_object` tell of it: a message is announced with its last object.
  Before, `get_message_ins` and `get_message_res` do not find it: who pulls a message of which an object is missing
  sleeps for a second.
- The Runtime API's handlers are called by `answer_call`, for a ServerApp that asks through a socket instead of HTTP.
- `flwr.superlink.main.get_objectstore_linkstate_factories` makes the stores. Those in a database take a second of
  processor time for a round of three clients; `in_memory_factories` keeps in memory what ends with the runs anyway, and
  in the database the nodes alone, so that a SuperLink that is started again knows them.
- `flower_superlink._parse_superlink_lifespan_config` gives the configuration, and `_get_superexec_command` the command
  of the process that starts the ServerApps; `close_to_strangers` lets neither Control API nor tasks to other users.

Streaming calls, a faster database, and accounts without an identity provider would replace them.
"""

import inspect
import secrets
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial, wraps
from importlib import import_module
from pathlib import Path
from typing import Any

from simulation.flower_internals.app_signature import signatures_of
from simulation.flower_internals.control_account import ControlAccount, open_account
from simulation.flower_internals.fleet_calls import carry_objects
from simulation.flower_internals.fleet_service import FLEET_HANDLERS, hold_calls_of_nodes
from simulation.flower_internals.held_calls import Arrivals, Uploads
from simulation.flower_internals.node_file import NodeFile
from simulation.flower_internals.port_limits import limit_ports
from simulation.flower_internals.runtime_socket import answer_of, decode_request, serve_socket
from simulation.flower_internals.transport import CONTROL_OVER_GRPC

FACTORIES_HOOK = "get_objectstore_linkstate_factories"
CONFIG_HOOK, SUPEREXEC_HOOK = "_parse_superlink_lifespan_config", "_get_superexec_command"
UNDER_WAY = "under way"
"""Time of delivery, for Flower, of an instruction that is still being uploaded."""


def answer_when_stored(arrivals: Arrivals, node_hold_s: float, reply_hold_s: float) -> None:
    """Run Flower's SuperLink, as its command line says, with calls for messages held until there are some.

    Parameters
    ----------
    arrivals
        Held calls; they are keyed by node id, and those of a ServerApp by run id.
    node_hold_s, reply_hold_s
        Longest hold of a SuperNode's call, and of a ServerApp's.
    """
    from flwr.server.superlink.linkstate import InMemoryLinkState
    from flwr.superlink import main
    from flwr.superlink.cli import flower_superlink
    from flwr.superlink.servicer.runtime import runtime_handlers

    pull_of_app = runtime_handlers.pull_messages

    def pull_messages_of_app(request: Any, state: Any, task: Any) -> Any:
        with arrivals.watch(("run", task.run_id)) as watch:
            response = pull_of_app(request, state, task)
            if response.messages_list or not watch.wait(reply_hold_s):
                return response
        return pull_of_app(request, state, task)

    carry_objects(import_module(FLEET_HANDLERS))
    hold_calls_of_nodes(arrivals, node_hold_s)
    runtime_handlers.pull_messages = pull_messages_of_app
    _announce(InMemoryLinkState, Uploads(arrivals))
    with tempfile.TemporaryDirectory(prefix="fedsel-") as folder:
        setattr(main, FACTORIES_HOOK, partial(in_memory_factories, socket_folder=Path(folder)))
        program = import_module("flwr.superlink.cli.flower_superlink")
        close_to_strangers(program, Path(folder), open_account)
        limit_ports(program)
        flower_superlink()


def close_to_strangers(program: Any, folder: Path, account: Callable[[str], ControlAccount]) -> None:
    """Let Flower's `program` serve its Control API to one account, and its tasks to its own SuperExec.

    `folder` is this user's alone; `account` opens the account for an address.
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
        return [sys.executable, "-m", "simulation.flower_internals.superexec", str(secret), *rest]

    setattr(program, CONFIG_HOOK, parse_closed)
    setattr(program, SUPEREXEC_HOOK, command)


def in_memory_factories(database: str, federation_manager: Any, socket_folder: Path | None = None) -> tuple[Any, Any]:
    """Replacement of Flower's factories of object store and link state: both in memory, the nodes in `database` too.

    A ServerApp is served on a socket in `socket_folder`, if that is given.
    """
    from flwr.server.superlink.linkstate import LinkStateFactory
    from flwr.supercore.constant import FLWR_IN_MEMORY_DB_NAME
    from flwr.supercore.object_store import ObjectStoreFactory
    from flwr.supercore.utils import get_flwr_home

    objects = ObjectStoreFactory(FLWR_IN_MEMORY_DB_NAME)
    links = LinkStateFactory(FLWR_IN_MEMORY_DB_NAME, federation_manager, objects)
    if database != FLWR_IN_MEMORY_DB_NAME:
        keep_nodes(links.state(), NodeFile(Path(database)))
    attach_signatures(links.state(), get_flwr_home())
    if socket_folder is not None:
        serve_socket(socket_folder, partial(answer_call, links.state()))
    return objects, links


def attach_signatures(state: Any, folder: Path) -> None:
    """Let a link state hand out each app with the signatures of it in `folder` (see `app_signature`)."""
    get_fab = state.get_fab

    def get_signed(fab_hash: str) -> Any:
        fab = get_fab(fab_hash)
        if fab is not None:
            fab.verifications.update(signatures_of(folder, fab_hash))
        return fab

    state.get_fab = get_signed


def answer_call(state: Any, token: str, name: str, request: bytes) -> bytes:
    """Answer a ServerApp's call of the Runtime API on the socket; the token must be of an unfinished task."""
    from flwr.superlink.servicer.runtime import runtime_handlers

    task = state.get_task_by_token(token)
    if task is None:
        return b"\1The token is of no task."
    handlers = {
        "GetNodes": runtime_handlers.get_nodes,
        "PushMessages": runtime_handlers.push_messages,
        "PullMessages": runtime_handlers.pull_messages,
        "PushObject": runtime_handlers.push_object,
        "PullObject": runtime_handlers.pull_object,
        "ConfirmMessageReceived": runtime_handlers.confirm_message_received,
    }
    if name not in handlers:
        return f"\1{name} is no call of the socket.".encode()
    return answer_of(lambda: handlers[name](decode_request(name, request), state, task))


def keep_nodes(state: Any, file: NodeFile) -> None:
    """Read the nodes of a link state from `file`, and write each change to it.

    A node that was online counts as online until it has missed two heartbeats, as in Flower's own database.
    """
    from flwr.common.constant import HEARTBEAT_DEFAULT_INTERVAL, HEARTBEAT_PATIENCE
    from flwr.proto.node_pb2 import NodeInfo
    from flwr.supercore.constant import NodeStatus

    for node_id, info in file.read().items():
        node = NodeInfo.FromString(info)
        if node.status == NodeStatus.ONLINE:
            node.online_until = time.time() + HEARTBEAT_PATIENCE * HEARTBEAT_DEFAULT_INTERVAL
        state.nodes[node_id] = node
        state.node_public_key_to_node_id[node.public_key] = node_id
        state.owner_to_node_ids.setdefault(node.owner_aid, set()).add(node_id)

    def keep(name: str) -> None:
        change = getattr(state, name)
        parameters = inspect.signature(change)

        def changed(*arguments: Any, **named: Any) -> Any:
            with state.lock:
                result = change(*arguments, **named)
                node_id = parameters.bind(*arguments, **named).arguments.get("node_id", result)
                node = state.nodes.get(node_id)
                if node is not None and node.status == NodeStatus.UNREGISTERED:
                    file.remove(node_id)
                elif node is not None:
                    file.write(node_id, node.SerializeToString())
            return result

        setattr(state, name, changed)

    for name in ("create_node", "delete_node", "activate_node", "deactivate_node"):
        keep(name)


def _announce(state: Any, uploads: Uploads) -> None:
    """Let a class of link states announce and hand out each message when it and all of its objects are stored."""
    store_message, store_object = state.store_message_and_object_tree, state.store_object
    instructions_for, replies_to = state.get_message_ins, state.get_message_res

    def store_message_and_object_tree(self: Any, message: Any, object_tree: Any, session_id: str) -> Any:
        metadata = message.metadata
        answered, at_run = metadata.reply_to_message_id, ("run", metadata.run_id)
        with self.lock:
            stored, missing = store_message(self, message, object_tree, session_id)
            if stored and answered:
                uploads.begin(session_id, missing, {at_run}, answered)
            elif stored:
                uploads.begin(session_id, missing, {at_run, ("node", metadata.dst_node_id)}, metadata.message_id)
        return stored, missing

    def store_one_object(self: Any, run_id: int, session_id: str, object_id: str, object_content: bytes) -> bool:
        stored: bool = store_object(self, run_id, session_id, object_id, object_content)
        uploads.stored(session_id, object_id)
        return stored

    def get_message_ins(self: Any, node_id: int, limit: int | None, **of_run: Any) -> Any:
        with self.lock:
            under_way = (self.message_ins_store.get(name) for name in uploads.under_way())
            hidden = [message.metadata for message in under_way if message and not message.metadata.delivered_at]
            for metadata in hidden:
                metadata.delivered_at = UNDER_WAY
            try:
                return instructions_for(self, node_id, limit, **of_run)
            finally:
                for metadata in hidden:
                    metadata.delivered_at = ""

    @wraps(replies_to)
    def get_message_res(self: Any, message_ids: set[str], **of_run: Any) -> Any:
        return replies_to(self, message_ids - uploads.under_way(), **of_run)

    state.store_message_and_object_tree = store_message_and_object_tree
    state.store_object = store_one_object
    state.get_message_ins = get_message_ins
    state.get_message_res = get_message_res
