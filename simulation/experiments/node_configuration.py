"""Node configuration: what a client's owner alone decides, in ``--node-config`` of the client's SuperNode.

A server sends settings to its clients, and is not trusted with two kinds of them. Paths come from the client's owner
alone. Code, ``package.module:name``, is imported where the owner names it, or allows a server to name it (`ALLOWED`).
"""

import json
from collections.abc import Mapping

from fedsel_app.config import ConfigError, Value

CLIENT_SETTINGS = ("data", "data-path", "partition", "state-dir", "share-label-counts", "device", "threads")
"""Settings that every client may have otherwise, in its node configuration."""
IDENTITY = ("partition-id", "num-partitions")
ALLOWED = "allow-code"
"""Key of the names of code that a server may choose, spaces or commas between them."""
PATHS = ("data-path", "state-dir")
CODE = ("data", "model", "strategy")
LONGEST = 60
"""Most characters of a refused value that are quoted: the whole sentence has room in the server's record."""


def own_settings(node_config: Mapping[str, Value]) -> dict[str, Value]:
    """Settings in a node configuration. Raises ConfigError for a key that is no setting of a single client."""
    own = {key: value for key, value in node_config.items() if key not in (*IDENTITY, ALLOWED)}
    if foreign := own.keys() - set(CLIENT_SETTINGS):
        raise ConfigError(
            f"The node configuration has {', '.join(sorted(foreign))}. "
            f"It may have {', '.join((*IDENTITY, ALLOWED, *CLIENT_SETTINGS))}."
        )
    return own


def refuse_choices(run_config: Mapping[str, Value], node_config: Mapping[str, Value]) -> None:
    """Raise ConfigError where a server's `run_config` chooses a path or code that the client's owner leaves to nobody.

    What the owner sets is taken instead of the server's, and refuses nothing.
    """
    chosen = {key: str(value) for key, value in run_config.items() if key not in node_config and value != ""}
    for key in PATHS:
        if key in chosen:
            raise ConfigError(
                f"The server sets '{key}' to {_quoted(chosen[key])}, and a client takes it from its owner alone: "
                f"add {key}='...' to its --node-config."
            )
    if chosen.get("preset", "").endswith(".toml"):
        raise ConfigError(
            f"The server sets 'preset' to the file {_quoted(chosen['preset'])}, and a client reads none for it: "
            "run it by `fedsel submit`, which sends what is in the file."
        )
    allowed = str(node_config.get(ALLOWED, "")).replace(",", " ").split()
    for key in CODE:
        if ":" in (name := chosen.get(key, "")) and name not in allowed:
            raise ConfigError(
                f"The server sets '{key}' to {_quoted(name)}, code that this client does not allow: if its owner does, "
                f"add that to {ALLOWED}='...' in its --node-config."
            )


def node_config_text(client: int, clients: int, own: Mapping[str, str]) -> str:
    """Node configuration of one of `clients` clients with settings of its `own`, as the command line takes it."""
    identity = f"partition-id={client} num-partitions={clients}"
    return " ".join([identity, *(f"{key}={_literal(value)}" for key, value in own.items())])


def code_in(settings: Mapping[str, Value]) -> list[str]:
    """Names of a user's own code in the settings of a run."""
    return [name for name in (str(settings.get(key, "")) for key in CODE) if ":" in name]


def _literal(text: str) -> str:
    """A TOML string of `text` without a quote in it, which Flower's command line would take for its end."""
    if "'" not in text and text.isprintable():
        return f"'{text}'"
    return '"' + json.dumps(text)[1:-1].replace('\\"', "\\u0022").replace("'", "\\u0027") + '"'


def _quoted(value: str) -> str:
    return repr(value if len(value) <= LONGEST else f"{value[:LONGEST]}...")
