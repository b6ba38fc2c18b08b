"""Attackers of a simulation: the clients that attack in a round (setting `attack`)."""

from functools import lru_cache

from fedsel_app.config import SharedSettings
from fedsel_app.seeds import Purpose, stream


def attackers_of(settings: SharedSettings, server_round: int) -> frozenset[int]:
    """Partition ids of the clients that attack in a round.

    A share is that of all K clients, rounded, and drawn once for a run.
    """
    attack, run = settings.attack, settings.run
    if not attack.active(server_round):
        return frozenset()
    if attack.ids is not None:
        return frozenset(attack.ids)
    return _drawn(round(attack.share * run.clients), run.clients, run.seed)


@lru_cache
def _drawn(count: int, clients: int, seed: int) -> frozenset[int]:
    return frozenset(stream(seed, Purpose.ATTACK).choice(clients, count, replace=False).tolist())
