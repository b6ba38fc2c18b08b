"""Settings of straggler and failure handling: deadline, over-selection, fewest replies and reply timeout."""

from dataclasses import dataclass

from fedsel_app.config.settings import Settings, setting


@dataclass(frozen=True)
class ReplyConfig(Settings):
    """Straggler and failure handling: deadline, over-selection, fewest replies and reply timeout."""

    round_deadline_s: float = setting(
        0.0, "seconds of a round's training after which clients have failed, on the clock of `links` (0: none)", low=0.0
    )
    over_selection: float = setting(
        0.0, "share of the cohort that trains beside it; the first of all that come back count", low=0.0
    )
    min_returned: int = setting(1, "usable replies below which a round changes nothing", low=1)
    reply_timeout_s: float = setting(
        1800.0,
        "seconds that a client has for its first answers; later it has 10 times what the slowest of that kind took,"
        " and 2 minutes at least (0: no limit)",
        low=0.0,
    )
    client_failure_rate: float = setting(
        0.0, "probability that a selected client's reply is lost, in simulations of failures", low=0.0, high=1.0
    )
