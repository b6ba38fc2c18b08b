"""Records of fedsel's own messages in Flower's Message API (provisional)."""

OWN = "fedsel"
ARRAYS = "arrays"
CONTROL = "fedsel.control"


def record_name(base: str, client: int | None = None) -> str:
    """Name of a record; with `client` of that client's among those of one message."""
    return base if client is None else f"{base}.{client}"


def clients_named(content):
    """Partition ids."""
    return [int(name.removeprefix(OWN + ".")) for name in content.config_records if name.startswith(OWN + ".")]
