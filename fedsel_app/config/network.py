"""Settings of the network: links and clock, the enrolment of clients, and late or lost replies."""

from dataclasses import dataclass

from fedsel_app.config.settings import ConfigError, Settings, setting, unless

RANGES = (("uplink_min_bits_per_s", "uplink_max_bits_per_s"), ("step_min_s", "step_max_s"))
"""Fields with the ends of each range from which clients draw."""


@dataclass(frozen=True)
class NetworkConfig(Settings, scope="federation"):
    """Network: the uplinks and the computing speeds of clients, and the clock of the run."""

    links: str = setting(
        "simulated",
        "where link speeds, computing times and the clock of the run come from",
        choices={"simulated": "drawn from the seed", "measured": "measured in the run"},
        first=True,
    )
    uplink_min_bits_per_s: float = setting(
        1e6, "slowest uplink in bits per second; each client draws one in each round", above=0.0, private=True
    )
    uplink_max_bits_per_s: float = setting(5e6, "fastest uplink in bits per second", above=0.0, private=True)
    step_min_s: float = setting(
        0.1, "shortest time of a local step in seconds; each client draws one", low=0.0, private=True
    )
    step_max_s: float = setting(0.5, "longest time of a local step in seconds", low=0.0, private=True)
    spread: str = setting(
        "uniform",
        "how links and computing speeds differ from client to client",
        choices={
            "constant": "all clients have the middle of each range",
            "uniform": "drawn uniformly from each range; each client draws its links anew in each round",
            "log-normal": "drawn once for each client; each range has 95% of them",
        },
        read_by={"links": ("simulated",)},
    )
    link_coupling: str = setting(
        "independent",
        "how uplinks depend on the data",
        choices={
            "independent": "they do not",
            "inverted-loss": "the larger the loss of a client, the slower its link (HeteRo-Select's stress test)",
        },
        read_by={"links": ("simulated",)},
    )
    clock: str = setting(
        "paper",
        "what takes time on the simulated clock",
        choices={
            "paper": "computing and uploads, as most papers count",
            "full": "downloads too, five times as fast as uploads, also those of loss probes",
            "values": "as paper, but 4 bytes for each value sent, and no loss probe (HeteRo-Select)",
        },
        private=("paper", "values"),
        read_by={"links": ("simulated",)},
    )
    server_bits_per_s: float = setting(
        0.0,
        "bits per second of the server's link in each direction, which all clients share; 0 sets no limit",
        low=0.0,
        read_by={"links": ("simulated",), "clock": ("full",)},
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        for low, high in RANGES:
            if getattr(self, low) > getattr(self, high):
                names = low.replace("_", "-"), high.replace("_", "-")
                raise ConfigError(f"The '{names[0]}' parameter must be at most '{names[1]}'. Got {getattr(self, low)}.")
        if self.spread == "log-normal" and not self.step_min_s:
            raise ConfigError("Set 'step-min-s' above 0: the logarithm of the speeds has a range then.")

    @property
    def full(self) -> bool:
        """True if downloads take time on the simulated clock."""
        return self.clock == "full"


@dataclass(frozen=True)
class AvailabilityConfig(Settings, scope="federation", read_by={"links": ("simulated",)}):
    """Availability: when each client is there. With measured links, the clients that are connected are there."""

    availability: str = setting(
        "always",
        "when a client is available",
        choices={
            "always": "all the time",
            "diurnal": "in stays that are drawn from the seed, four times as many at night as by day",
            "trace": "as the recorded devices of availability-trace",
        },
    )
    availability_share: float = setting(
        0.2,
        "share of the clients that are available, on average over a day",
        low=0.001,
        high=0.6,
        read_by={"availability": ("diurnal",)},
    )
    stay_s: float = setting(
        3600.0,
        "mean seconds that a client stays when it has come",
        low=1.0,
        high=14_400.0,
        read_by={"availability": ("diurnal",)},
    )
    availability_trace: str = setting(
        "",
        "CSV file with a row for each stay of a device, and columns device (or client), begin_s and end_s",
        read_by={"availability": ("trace",)},
    )
    leaving: str = setting(
        "lost",
        "what becomes of the training of a client that leaves",
        choices={"lost": "it is lost", "resumes": "it goes on when the client is there again"},
        read_by={"availability": unless("always")},
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.availability == "trace" and not self.availability_trace:
            raise ConfigError("Set 'availability-trace' to a CSV file: the 'availability' trace reads its rows.")


@dataclass(frozen=True)
class EnrolmentConfig(Settings, scope="place"):
    """Enrolment: how clients connect and prove their identity."""

    connect_timeout_s: int = setting(120, "seconds that the server waits for the clients to connect", low=1)
    min_available_clients: int = setting(
        0, "number of clients that suffice to start after connect-timeout-s; 0 needs all", low=0
    )
    enrol_timeout_s: float = setting(
        60.0,
        "seconds that a connected node has to state its identity; a node that fails to is asked again at growing"
        " intervals",
        above=0.0,
    )
    node_keys: bool = setting(
        False,
        "every SuperNode has a key of its own, so that no other node can take over its partition id, even while it is"
        " away (`fedsel deploy` sets this)",
    )
    identity_dir: str = setting(
        "",
        "folder with a client's key, the signers that it trusts, and the identities of all clients that a signer has"
        " signed, for secure-sums (`fedsel start` sets this)",
        owner="alone",
        own=True,
    )


@dataclass(frozen=True)
class ReplyConfig(Settings, scope="federation"):
    """Stragglers and failures: the deadline of a round, over-selection, and replies that are late or lost."""

    round_deadline_s: float = setting(
        0.0,
        "seconds of training after which the round no longer waits, on the clock of `links`. Later clients count as"
        " failed. 0 sets no deadline",
        low=0.0,
    )
    over_selection: float = setting(
        0.0,
        "share of the cohort that is selected in addition; the first replies count, until the cohort is complete",
        low=0.0,
    )
    min_returned: int = setting(
        1, "number of usable replies that a round needs; with fewer it leaves the model unchanged", low=1
    )
    reply_timeout_s: float = setting(
        1800.0,
        "seconds that a client has for its first reply of a kind; later it has 10 times the slowest reply of that kind,"
        " at least 2 minutes. 0 sets no limit",
        low=0.0,
        scope="place",
    )
    client_failure_rate: float = setting(
        0.0,
        "probability that the reply of a selected client is lost, to simulate failures",
        low=0.0,
        high=1.0,
        private=True,
    )
