"""What came back of a round, decoded and checked."""

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from operator import itemgetter

import numpy as np
from flwr.common import FitRes

from fedsel_app.network.clock import RoundWork
from fedsel_app.records.schema import Failure
from fedsel_app.wire import codec
from strategies.roster import Floats, Ints, Roster
from strategies.round import validation

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
    uplink_bytes, uplink_value_bytes : int64 (r,), what each uploaded: as measured, and as 4 bytes a value
    failures : who was asked and brought nothing usable, and why
    unused : int64, whose usable replies do not count: others were faster, or there were too few of them
    waited_s : the least that the round's training took, because somebody was waited for in vain
    """

    clients: Ints
    updates: tuple[codec.Update, ...]
    controls: tuple[codec.Update, ...]
    losses: Floats
    work_steps: Floats
    reports: Mapping[str, Floats]
    uplink_bytes: Ints
    uplink_value_bytes: Ints
    failures: list[Failure]
    unused: Ints = field(default_factory=lambda: np.zeros(0, np.int64))
    waited_s: float = 0.0

    @property
    def broken(self) -> Ints:
        """Ids of those who brought nothing usable."""
        return np.array([failure["client"] for failure in self.failures], np.int64)

    @property
    def failed(self) -> Ints:
        """Ids of those whose training did not count, ascending."""
        return np.union1d(self.broken, self.unused)

    def work(self, roster: Roster, probe_s: Floats) -> RoundWork:
        """What the clock needs of these replies, after probes of `probe_s` seconds."""
        came = self.clients
        measured = roster.uplink_bits_per_s[came], roster.step_s[came]
        return RoundWork(*measured, self.work_steps, self.uplink_bytes, self.uplink_value_bytes, probe_s, self.waited_s)

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
            uplink_bytes=self.uplink_bytes[place],
            uplink_value_bytes=self.uplink_value_bytes[place],
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
    max_norm: float = 0.0,
) -> Replies:
    """Decode the reply of every selected client; what is malformed is a failure of that client.

    `seed` is the run's; of two `payloads` the second is a dense change of the client's control variate. An update, or
    such a change, whose norm is above `max_norm` (0: any) times the cohort's median is left out as well.
    """
    updates: dict[int, tuple[codec.Update, int]] = {}
    controls: dict[int, tuple[codec.Update, int]] = {}
    failures: list[Failure] = []
    names = ["loss", "work-steps", *sorted(reports)]
    for client in selected.tolist():
        try:
            if client not in replies:
                raise codec.WireError("no reply")
            reply = replies[client]
            update = validation.decode(reply, client, server_round, size, names, seed=seed, payloads=payloads)
            if payloads > 1:
                controls[client] = validation.decode_payload(reply.parameters.tensors[1], client, server_round, size)
            updates[client] = update
        except codec.WireError as error:
            controls.pop(client, None)
            failures.append({"client": client, "reason": str(error)})
    for sent in (updates, controls):
        for client, reason in too_large({client: update.norm() for client, (update, _) in sent.items()}, max_norm):
            failures.append({"client": client, "reason": reason})
            del updates[client]
            controls.pop(client, None)
    failures.sort(key=itemgetter("client"))
    for failure in failures:
        LOGGER.warning("Round %d: client %d is left out: %s", server_round, failure["client"], failure["reason"])
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
        uplink_bytes=np.array([sum(sent for _, sent in parts[client]) for client in came], np.int64),
        uplink_value_bytes=np.array(
            [sum(codec.bits_of_values(part) for part, _ in parts[client]) // 8 for client in came], np.int64
        ),
        failures=failures,
    )


def too_large(norms: Mapping[int, float], multiple: float) -> list[tuple[int, str]]:
    """Who has a norm above `multiple` times the median, and how much it is. With two of them the less is the median.

    Where the median is 0, or `multiple` is, nobody has.
    """
    if not norms:
        return []
    median = sorted(norms.values())[(len(norms) - 1) // 2]
    bound = multiple * median
    return [
        (client, f"an update of norm {norm:.3g}, where the round's median is {median:.3g}: see 'max-update-norm'")
        for client, norm in norms.items()
        if norm > bound > 0.0
    ]
