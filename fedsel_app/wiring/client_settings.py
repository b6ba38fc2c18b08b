"""Settings of a client: the run configuration of its server, and the node configuration of its owner on top."""

from collections.abc import Mapping
from functools import cache, lru_cache

from fedsel_app.config import DECLARED, SharedSettings, Value, read_groups, refuse_unknown
from fedsel_app.config.settings import Entry
from fedsel_app.presets.layers import chosen, layered
from fedsel_app.presets.preset import PresetConfig
from fedsel_app.wiring.node_configuration import IDENTITY, refuse_choices, settings_of_owner


@cache
def shared_entries() -> tuple[Entry, ...]:
    """Settings that do not belong to a single method: those that a client reads are among them."""
    return (*PresetConfig.entries(), *DECLARED.values())


def settings_of_client(
    run_config: Mapping[str, Value], node_config: Mapping[str, Value], *, trusted: bool
) -> SharedSettings:
    """Settings of a client in a run. A process resolves them once for all messages of a run, and once for all clients
    that differ only in their partition ids, as in a simulation.

    `trusted`: the user of this machine has made the run configuration, as in a simulation.

    Raises ConfigError for an unknown key, a value out of range, a key of `node_config` that is not a setting of a
    single client, and unless `trusted`, for a path or for code that the server chooses and the client's owner does not
    allow.
    """
    of_owner = {key: value for key, value in node_config.items() if key not in IDENTITY}
    return _resolved(tuple(sorted(run_config.items())), tuple(sorted(of_owner.items())), trusted)


Items = tuple[tuple[str, Value], ...]


@lru_cache(maxsize=2, typed=True)
def _resolved(run_config: Items, node_config: Items, trusted: bool) -> SharedSettings:
    if not trusted:
        refuse_choices(dict(run_config), dict(node_config))
    entries, of_owner = shared_entries(), settings_of_owner(dict(node_config))
    # The server has checked the settings of its method, whose keys have a dot.
    shared = {key: value for key, value in run_config if "." not in key}
    refuse_unknown(shared, [entry.key for entry in entries])
    return SharedSettings(**read_groups(layered(chosen(shared, entries) | of_owner)))
