"""SuperLink of Flower, closed to other users of the machine.

``python -m simulation.operations.guard.superlink SERVER`` runs it. SERVER is the server's folder that `fedsel
provision` made; the other arguments are those of `flower-superlink`.

- `get_objectstore_linkstate_factories` makes the stores of messages and nodes. `provisioned_factories` prepares them.
- Messages are handed out before they are stored, and nodes may upload anything: see `uploads`.
- `LinkState.get_fab` knows only signatures of Flower Hub: see `app_signature`.
- `LinkState.create_run` starts a ServerApp, which takes seconds to find that a file is missing: see `check_files`.
- Clients are registered by calls of the Control API: see `admitted_clients`.
- `_parse_superlink_lifespan_config` gives the configuration, and `_get_superexec_command` the command that starts the
  ServerApps. `close_to_strangers` replaces both.

Accounts without an identity provider would replace this file.
"""

import logging
import secrets
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

from fedsel_app.config import ConfigError
from fedsel_app.wiring.named_files import refuse_missing
from simulation.engines.this_process import exit_on_signals
from simulation.operations.guard.admitted_clients import admit
from simulation.operations.guard.app_signature import signatures_of
from simulation.operations.guard.control_account import ControlAccount
from simulation.operations.guard.port_limits import limit_ports
from simulation.operations.guard.uploads import bound_uploads, hand_out_whole

FACTORIES_HOOK = "get_objectstore_linkstate_factories"
POLL = "[Fleet.PullMessages]"
"""Words of the log line of a client that asks for messages, which it does up to ten times a second."""
APP = "fedsel/fedsel"
"""Flower's name of fedsel's own app."""
CONFIG_HOOK, SUPEREXEC_HOOK = "_parse_superlink_lifespan_config", "_get_superexec_command"


def run_superlink(server: Path, say: Callable[[str], None] = print) -> None:
    """Run Flower's SuperLink with the arguments of its command line and with these parts replaced.

    It admits the clients whose public keys lie in ``clients`` of the `server`'s folder, hands out the signatures of
    that folder, and accepts the token whose hash is in ``token.sha256``. `say` is called with a sentence when a client
    is revoked.
    """
    from flwr.common.logger import update_console_handler

    program: Any = import_module("flwr.superlink.cli.flower_superlink")
    factories = partial(provisioned_factories, server=server, say=say)
    setattr(import_module("flwr.superlink.main"), FACTORIES_HOOK, factories)
    with tempfile.TemporaryDirectory(prefix="fedsel-") as folder:
        digest = (server / "token.sha256").read_text(encoding="utf-8").strip()
        close_to_strangers(program, Path(folder), ControlAccount(digest))
        limit_ports(program)
        bound_uploads()
        logging.getLogger("flwr").addFilter(lambda record: POLL not in record.getMessage())
        update_console_handler(colored=sys.stderr.isatty())
        program.flower_superlink()


def close_to_strangers(program: Any, folder: Path, account: ControlAccount) -> None:
    """Open the Control API of Flower's `program` to one account, and its tasks to its own SuperExec.

    Only this user can read `folder`.
    """
    parse, command_of = getattr(program, CONFIG_HOOK), getattr(program, SUPEREXEC_HOOK)
    secret, drawn = folder / "superexec-secret", secrets.token_bytes(32)
    secret.touch(mode=0o600)
    secret.write_bytes(drawn)

    def parse_closed() -> Any:
        config = parse()
        config.authn_plugin, config.superexec_auth_secret = account, drawn
        return config

    def command(*arguments: Any, **options: Any) -> list[str]:
        rest = command_of(*arguments, **options)[1:]
        return [sys.executable, "-m", "simulation.operations.guard.superexec", str(secret), *rest]

    setattr(program, CONFIG_HOOK, parse_closed)
    setattr(program, SUPEREXEC_HOOK, command)


def provisioned_factories(
    database: str, federation_manager: Any, server: Path, say: Callable[[str], None] = print
) -> tuple[Any, Any]:
    """Factories of the object store and the link state, for the clients in the folder of a `server`.

    Both are in memory. Flower's `database` takes seconds of processor time for a round of three clients.
    """
    from flwr.server.superlink.linkstate import LinkStateFactory
    from flwr.supercore.constant import FLWR_IN_MEMORY_DB_NAME
    from flwr.supercore.object_store import ObjectStoreFactory

    objects = ObjectStoreFactory(FLWR_IN_MEMORY_DB_NAME)
    links = LinkStateFactory(FLWR_IN_MEMORY_DB_NAME, federation_manager, objects)
    hand_out_whole(links.state())
    attach_signatures(links.state(), server)
    check_files(links.state())
    admit(links.state(), server / "clients", say)
    return objects, links


def attach_signatures(state: Any, folder: Path) -> None:
    """Let a link state hand out each app with its signatures in `folder` (see `app_signature`)."""
    get_fab = state.get_fab

    def get_signed(fab_hash: str) -> Any:
        fab = get_fab(fab_hash)
        if fab is not None:
            fab.verifications.update(signatures_of(folder, fab_hash))
        return fab

    state.get_fab = get_signed


def check_files(state: Any) -> None:
    """Let a link state create a run of fedsel's app only if this machine has the files and modules it names."""
    from flwr.supercore.error import ApiErrorCode, FlowerError

    create = state.create_run

    def create_checked(app: str, version: str, fab_hash: str, settings: Any, *rest: Any, **named: Any) -> Any:
        try:
            refuse_missing(settings if app == APP else {})
        except ConfigError as error:
            where = f"On the server: {error}"
            raise FlowerError(ApiErrorCode.INVALID_RUN_CONFIG, where, where) from error
        return create(app, version, fab_hash, settings, *rest, **named)

    state.create_run = create_checked


if __name__ == "__main__":
    with exit_on_signals():
        run_superlink(Path(sys.argv.pop(1)))
