"""What came back of a round, decoded and checked."""

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np
from flwr.common import FitRes

from fedsel_app import wire
from strategies import exchange
from strategies.roster import Floats, Ints

LOGGER = logging.getLogger("fedsel")


@dataclass(frozen=True)
class Replies:
    """The usable replies in ascending order of client id, and who brought none.

    Attributes
    ----------
    clients : int64 (r,)
    updates : r updates
    losses : float64 (r,), mean training losses
    work_steps : float64 (r,), what each computed, in local steps
    reports : name -> float64 (r,)
    wire_bytes, paper_bytes : int64 (r,), what each uploaded: as measured, and as 4 bytes a value
    failures : who was asked and brought nothing usable, and why
    """

    clients: Ints
    updates: tuple[wire.Update, ...]
    losses: Floats
    work_steps: Floats
    reports: Mapping[str, Floats]
    wire_bytes: Ints
    paper_bytes: Ints
    failures: list[dict[str, int | str]]

    @property
    def failed(self) -> Ints:
        """Ids of those who brought nothing usable."""
        return np.array([failure["client"] for failure in self.failures], np.int64)


def collect(
    replies: Mapping[int, FitRes], selected: Ints, server_round: int, size: int, reports: Iterable[str]
) -> Replies:
    """Decode the reply of every selected client; what is malformed is a failure of that client."""
    updates: dict[int, tuple[wire.Update, int]] = {}
    failures: list[dict[str, int | str]] = []
    names = ["loss", "work-steps", *sorted(reports)]
    for client in selected.tolist():
        try:
            if client not in replies:
                raise wire.WireError("no reply")
            updates[client] = exchange.decode(replies[client], client, server_round, size, names)
        except wire.WireError as error:
            failures.append({"client": client, "reason": str(error)})
            LOGGER.warning("Round %d: client %d is left out: %s", server_round, client, error)
    came = sorted(updates)
    measured = {name: np.array([float(replies[client].metrics[name]) for client in came]) for name in names}
    return Replies(
        clients=np.array(came, np.int64),
        updates=tuple(updates[client][0] for client in came),
        losses=measured.pop("loss"),
        work_steps=measured.pop("work-steps"),
        reports=measured,
        wire_bytes=np.array([updates[client][1] for client in came], np.int64),
        paper_bytes=np.array([wire.paper_bits(updates[client][0]) // 8 for client in came], np.int64),
        failures=failures,
    )
