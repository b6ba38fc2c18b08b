"""Shares of a seed: the neighbours to whom a client deals them, how many must answer, and Shamir's secret sharing.

Up to `COMPLETE` clients are all neighbours. Above, n clients stand in a circle, in an order that follows from the
context of the round, and each has the k/2 next ones on both sides (Bell et al. 2020). k and the threshold t are the
least for which, with a share `CORRUPT` of clients that tell the server all they know and a share `GONE` that is lost:

- n (CORRUPT + GONE)^(k/2) <= 2^-40: no k/2 successive clients are corrupt or gone, so the others stay connected.
- n P[a client has t or more corrupt neighbours] <= 2^-40: no seed becomes known. (The numbers are hypergeometric.)
- n P[fewer than t of a client's neighbours are left] <= 2^-30: the sum can be unmasked.
- 2 t > k + 1: two questions with different lists cannot both be answered.

Secrets are shared over the prime field of 2^130 - 5. Source: A. Shamir, "How to Share a Secret", CACM 1979.
"""

import hashlib
import math
import secrets
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache

COMPLETE = 20
CORRUPT, GONE = 0.2, 0.1
SECURE, CORRECT = 2.0**-40, 2.0**-30
PRIME = (1 << 130) - 5
SHARE_BYTES = 17


@lru_cache(maxsize=256)
def parameters(clients: int) -> tuple[int, int]:
    """Number of neighbours k and threshold t of a cohort."""
    corrupt, gone = int(CORRUPT * clients), int(GONE * clients)
    for neighbours in range(2, clients - 1, 2) if clients > COMPLETE else ():
        if clients * (CORRUPT + GONE) ** (neighbours / 2) > SECURE:
            continue
        most = next(
            most for most in range(neighbours + 1) if clients * _above(most, corrupt, clients - 1, neighbours) <= SECURE
        )
        threshold = max(neighbours // 2, most) + 1
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


def split(secret: int, threshold: int, points: Iterable[int]) -> list[int]:
    """Shares of a secret at `points`, whole numbers from 1: any `threshold` of them give it, and fewer tell nothing."""
    return evaluate([secret, *(secrets.randbelow(PRIME) for _ in range(threshold - 1))], points)


def evaluate(coefficients: Sequence[int], points: Iterable[int]) -> list[int]:
    """Values of a polynomial at `points`; its constant term comes first."""
    values = []
    for point in points:
        value = 0
        for coefficient in reversed(coefficients):
            value = (value * point + coefficient) % PRIME
        values.append(value)
    return values


@lru_cache(maxsize=4096)
def weights(points: tuple[int, ...]) -> list[int]:
    """Factors of the shares at `points` whose sum is the secret: Lagrange's polynomials at 0."""
    factors = []
    for point in points:
        above, below = 1, 1
        for other in points:
            if other != point:
                above, below = above * other % PRIME, below * (other - point) % PRIME
        factors.append(above * pow(below, -1, PRIME) % PRIME)
    return factors


def combine(shares: Mapping[int, int]) -> int:
    """The secret of as many shares, by their points, as its threshold."""
    points = tuple(shares)
    return sum(factor * shares[point] for factor, point in zip(weights(points), points, strict=True)) % PRIME
