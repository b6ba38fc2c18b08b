"""Shamir's secret sharing over the prime field of 2^130 - 5. Source: A. Shamir, "How to Share a Secret", CACM 1979."""

import secrets
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache

PRIME = (1 << 130) - 5
SHARE_BYTES = 17


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
