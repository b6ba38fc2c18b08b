"""Settings of enrolment: connection and identity of the clients."""

from dataclasses import dataclass

from fedsel_app.config.settings import Settings, setting


@dataclass(frozen=True)
class EnrolmentConfig(Settings):
    """Enrolment: connection and identity of the clients."""

    connect_timeout_s: int = setting(120, "seconds to wait for all clients to connect", low=1)
    min_available_clients: int = setting(
        0, "clients that are enough to begin when `connect-timeout-s` is over (0: all)", low=0
    )
    enrol_timeout_s: float = setting(
        60.0,
        "seconds that a node in deployment has to say who it is; one that does not is asked again ever more rarely",
        above=0.0,
    )
    node_keys: bool = setting(
        False,
        "every SuperNode has a key of its own (`fedsel deploy` sets this), so that a partition id never passes to "
        "another node, also not while its own is away",
    )
