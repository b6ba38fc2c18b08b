"""Settings of a client: the run configuration of its server, and the node configuration of its owner on top.

The node configuration is the ``--node-config`` of the client's SuperNode: settings that only the client's owner
decides. Clients do not trust a server with two kinds of settings. Only the client's owner sets paths. A client imports
code (``package.module:name``), and downloads a data set of the Hub (``hf:name``), only if its owner names it, or allows
a server to name it (`ALLOWED`).
"""

from collections.abc import Mapping
from functools import lru_cache

from fedsel_app.config import DECLARED, ConfigError, SharedSettings, Value, read_groups, refuse_unknown
from fedsel_app.config.data import HUB, with_arguments
from fedsel_app.presets.preset import PresetConfig, chosen, layered

CLIENT_SETTINGS = tuple(key for key, entry in DECLARED.items() if entry.owner)
"""Settings that may differ between clients, in the node configuration of each."""
IDENTITY = ("partition-id", "num-partitions")
ALLOWED = "allow-code"
"""Key for the names of code that a server may choose, separated by spaces or commas."""
LONGEST = 32
"""Most characters of a refused value that are quoted, so that the whole sentence fits in the server's record."""


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
    entries, of_owner = [*PresetConfig.entries(), *DECLARED.values()], settings_of_owner(dict(node_config))
    # The server has checked the settings of its method, whose keys have a dot.
    shared = {key: value for key, value in run_config if "." not in key}
    refuse_unknown(shared, [entry.key for entry in entries])
    return SharedSettings(**read_groups(layered(chosen(shared, entries) | of_owner)))


def settings_of_owner(node_config: Mapping[str, Value]) -> dict[str, Value]:
    """Settings in a node configuration. Without a `partition`, all data at a `data-path` belong to the client.

    A server's `data-arguments` are not used with the client's own `data`.

    Raises ConfigError for a key that is not a setting of a single client.
    """
    settings = {key: value for key, value in node_config.items() if key not in (*IDENTITY, ALLOWED)}
    if foreign := settings.keys() - set(CLIENT_SETTINGS):
        raise ConfigError(
            f"The node configuration has {', '.join(sorted(foreign))}. "
            f"It may have {', '.join((*IDENTITY, ALLOWED, *CLIENT_SETTINGS))}."
        )
    if "data-path" in settings:
        settings.setdefault("partition", "own")
    return dict.fromkeys(with_arguments(settings) - settings.keys(), "") | settings


def refuse_choices(run_config: Mapping[str, Value], node_config: Mapping[str, Value]) -> None:
    """Raise ConfigError if a server's `run_config` chooses a path, or code that the client's owner does not allow.

    A value that the owner sets replaces the server's value, so the server's value is not refused.
    """
    chosen = {key: str(value) for key, value in run_config.items() if key not in node_config and value != ""}
    for key, entry in DECLARED.items():
        if entry.owner == "alone" and key in chosen:
            raise ConfigError(
                f"The server sets '{key}' to {_quoted(chosen[key])}, but only the client's owner may set it: "
                f"add {key}='...' to its --node-config."
            )
    if chosen.get("preset", "").endswith(".toml"):
        raise ConfigError(
            f"The server sets 'preset' to the file {_quoted(chosen['preset'])}, but a client reads no file for a "
            "server: use `fedsel submit`, which sends the content of the file."
        )
    allowed = str(node_config.get(ALLOWED, "")).replace(",", " ").split()
    for key, name in named_code(chosen):
        if name not in allowed:
            kind = "a data set of the Hub" if name.startswith(HUB) else "code"
            raise ConfigError(
                f"The server sets '{key}' to {_quoted(name)}, {kind} that this client does not allow: if its owner "
                f"does, add that to {ALLOWED}='...' in its --node-config (`fedsel start --set`)."
            )


def validate_deployment(settings: SharedSettings) -> None:
    """Raise ConfigError for a setting that only simulated clients obey."""
    if settings.attack.attack != "none":
        raise ConfigError("Set 'attack' to none, or simulate the run: a deployed client attacks for no server.")


def named_code(settings: Mapping[str, Value]) -> list[tuple[str, str]]:
    """Key and name of each piece of code and each data set of the Hub that `settings` choose."""
    named = [(key, str(settings.get(key, ""))) for key, entry in DECLARED.items() if entry.code]
    return [(key, name) for key, name in named if ":" in name]


def _quoted(value: str) -> str:
    return repr(value if len(value) <= LONGEST else f"{value[:LONGEST]}...")
