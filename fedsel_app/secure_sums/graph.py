"""Graph of a cohort: the neighbours with whom each client shares a mask, and how many of them must answer.

Up to `COMPLETE` clients are all neighbours. Above, n clients stand in a circle, in an order that follows from the
context of the round, and each has the k/2 next ones on both sides (Bell et al. 2020). k and the threshold t are the
least for which, with a share `CORRUPT` of clients that tell the server all they know and a share `GONE` that is lost:

- n (CORRUPT + GONE)^(k/2) <= 2^-40: no k/2 successive clients are corrupt or gone, so the others stay connected.
- n P[a client has t or more corrupt neighbours] <= 2^-40: no seed becomes known. (The numbers are hypergeometric.)
- n P[fewer than t of a client's neighbours are left] <= 2^-30: the sum can be unmasked.
- 2 t > k + 1: two questions with different lists cannot both be answered.
"""

import hashlib
import math
from collections.abc import Sequence
from functools import lru_cache

COMPLETE = 20
CORRUPT, GONE = 0.2, 0.1
SECURE, CORRECT = 2.0**-40, 2.0**-30


@lru_cache(maxsize=256)
def parameters(clients: int, *, lying: bool = False) -> tuple[int, int]:
    """Number of neighbours k and threshold t of a cohort.

    With `lying`, t is such that the corrupt neighbours of a client may also answer two questions of a server that lies.
    """
    corrupt, gone = int(CORRUPT * clients), int(GONE * clients)
    for neighbours in range(2, clients - 1, 2) if clients > COMPLETE else ():
        if clients * (CORRUPT + GONE) ** (neighbours / 2) > SECURE:
            continue
        most = next(
            most for most in range(neighbours + 1) if clients * _above(most, corrupt, clients - 1, neighbours) <= SECURE
        )
        threshold = (neighbours + most) // 2 + 1 if lying else max(neighbours // 2, most) + 1
        if clients * _above(neighbours - threshold, gone, clients - 1, neighbours) <= CORRECT:
            return neighbours, threshold
    return clients - 1, clients // 2 + 1


def _above(most: int, marked: int, others: int, drawn: int) -> float:
    """Probability that more than `most` of `drawn` clients are among the `marked` ones of all `others`."""
    ways = sum(math.comb(marked, hit) * math.comb(others - marked, drawn - hit) for hit in range(most + 1, drawn + 1))
    return ways / math.comb(others, drawn)


def neighbours_of(cohort: Sequence[int], count: int, context: bytes) -> dict[int, list[int]]:
    """Neighbours of each client of the cohort, ascending: `count` of them, an even number, or all."""
    if count >= len(cohort) - 1:
        return {client: [other for other in cohort if other != client] for client in cohort}
    order = sorted(cohort, key=lambda client: hashlib.sha256(b"%b order %d" % (context, client)).digest())
    reach = range(-(count // 2), count // 2 + 1)
    return {
        client: sorted(order[(place + step) % len(order)] for step in reach if step)
        for place, client in enumerate(order)
    }
