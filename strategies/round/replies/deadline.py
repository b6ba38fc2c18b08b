"""Straggler handling: deadline and over-selection (Bonawitz et al. 2019, Sec. 2.2).

K. Bonawitz et al., "Towards Federated Learning at Scale: System Design", MLSys 2019: more clients train than are
needed. The round ends when the needed number of replies has arrived, when nobody is left who could reply, or at its
deadline. In deployment the server does not wait for the other clients (`strategies.round.federation.Until`).
"""

import math

import numpy as np

from fedsel_app.config import ReplyConfig, SharedSettings
from fedsel_app.records.schema import Failure
from fedsel_app.seeds import Purpose, stream
from strategies.roster import Floats, Ints

DROPPED = "the simulation dropped its reply: see 'client-failure-rate'"
LATE = "see 'round-deadline-s'"
AWAY = "see 'availability'"
"""Last words of the reason if a client missed the deadline, or left."""


def over_selected_count(wanted: int, over_selection: float, available: int) -> int:
    """Number of clients that train for `wanted` replies: ceil(wanted (1 + over-selection)), at most `available`."""
    return min(math.ceil(round(wanted * (1.0 + over_selection), 9)), available)


def simulated_dropouts(selected: Ints, server_round: int, settings: SharedSettings) -> set[int]:
    """Clients whose replies a simulation drops in this round, each with probability `client-failure-rate`."""
    seed, rate = settings.run.seed, settings.replies.client_failure_rate
    draws = (stream(seed, Purpose.DROPOUT, server_round, client).random() for client in selected.tolist())
    return {client for client, draw in zip(selected.tolist(), draws, strict=True) if draw < rate}


def left(client: int, seconds: float) -> Failure:
    """Failure of a client that left after `seconds`, before its reply had arrived."""
    return {"client": client, "reason": f"it left after {seconds:.1f} s: {AWAY}"}


def accept(clients: Ints, finish_s: Floats, wanted: int, limits: ReplyConfig) -> tuple[Ints, list[Failure], float]:
    """Accept the first `wanted` replies before the deadline; if there are fewer than `min-returned`, accept none.

    Parameters
    ----------
    clients : the clients that replied, int64 (r,), ascending
    finish_s : seconds until each reply arrived, float64 (r,); among equals, the lower id comes first

    Returns
    -------
    accepted : their ids, int64, ascending
    late : the clients that missed the deadline
    waited_s : seconds until the last reply, at most the deadline, if fewer than `wanted` are accepted; otherwise 0
    """
    deadline_s = limits.round_deadline_s
    punctual = finish_s <= (deadline_s or math.inf)
    order = np.lexsort((clients, finish_s))
    first = order[punctual[order]][:wanted]
    accepted = np.sort(clients[first]) if first.size >= limits.min_returned else clients[:0]
    late: list[Failure] = [
        {"client": client, "reason": f"it took {seconds:.1f} s, and the deadline is {deadline_s:g} s: {LATE}"}
        for client, seconds in zip(clients[~punctual].tolist(), finish_s[~punctual].tolist(), strict=True)
    ]
    last_s = min(float(finish_s.max(initial=0.0)), deadline_s or math.inf)
    return accepted, late, 0.0 if accepted.size >= wanted else last_s
