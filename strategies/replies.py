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
    controls : r changes of control variates, where the solver sends them
    losses : float64 (r,), mean training losses
    work_steps : float64 (r,), what each computed, in local steps
    reports : name -> float64 (r,)
    wire_bytes, paper_bytes : int64 (r,), what each uploaded: as measured, and as 4 bytes a value
    failures : who was asked and brought nothing usable, and why
    """

    clients: Ints
    updates: tuple[wire.Update, ...]
    controls: tuple[wire.Update, ...]
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

    def only(self, clients: Ints) -> "Replies":
        """The replies of these clients, ascending ids that all came back; nobody failed."""
        place = np.searchsorted(self.clients, clients)
        return Replies(
            clients=self.clients[place],
            updates=tuple(self.updates[index] for index in place),
            controls=tuple(self.controls[index] for index in place) if self.controls else (),
            losses=self.losses[place],
            work_steps=self.work_steps[place],
            reports={name: values[place] for name, values in self.reports.items()},
            wire_bytes=self.wire_bytes[place],
            paper_bytes=self.paper_bytes[place],
            failures=[],
        )


def collect(
    replies: Mapping[int, FitRes],
    selected: Ints,
    server_round: int,
    size: int,
    reports: Iterable[str],
    *,
    seed: int | None = None,
    payloads: int = 1,
) -> Replies:
    """Decode the reply of every selected client; what is malformed is a failure of that client.

    `seed` is the run's; of two `payloads` the second is a dense change of the client's control variate.
    """
    updates: dict[int, tuple[wire.Update, int]] = {}
    controls: dict[int, tuple[wire.Update, int]] = {}
    failures: list[dict[str, int | str]] = []
    names = ["loss", "work-steps", *sorted(reports)]
    for client in selected.tolist():
        try:
            if client not in replies:
                raise wire.WireError("no reply")
            reply = replies[client]
            update = exchange.decode(reply, client, server_round, size, names, seed=seed, payloads=payloads)
            if payloads > 1:
                controls[client] = exchange.decode_payload(reply.parameters.tensors[1], client, server_round, size)
            updates[client] = update
        except wire.WireError as error:
            failures.append({"client": client, "reason": str(error)})
            LOGGER.warning("Round %d: client %d is left out: %s", server_round, client, error)
    came = sorted(updates)
    parts = {client: [sent[client] for sent in (updates, controls) if client in sent] for client in came}
    measured = {name: np.array([float(replies[client].metrics[name]) for client in came]) for name in names}
    return Replies(
        clients=np.array(came, np.int64),
        updates=tuple(updates[client][0] for client in came),
        controls=tuple(controls[client][0] for client in came if client in controls),
        losses=measured.pop("loss"),
        work_steps=measured.pop("work-steps"),
        reports=measured,
        wire_bytes=np.array([sum(sent for _, sent in parts[client]) for client in came], np.int64),
        paper_bytes=np.array(
            [sum(wire.paper_bits(part) for part, _ in parts[client]) // 8 for client in came], np.int64
        ),
        failures=failures,
    )
