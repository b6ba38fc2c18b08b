"""Terraform's split in rational numbers: tries every split."""

from fractions import Fraction


def exact_variance(part):
    """Variance of (u, n) pairs, weighted by n."""
    total = sum(n for _, n in part)
    mean = sum(n * u for u, n in part) / total
    return sum(n * (u - mean) ** 2 for u, n in part) / total


def exact_split(clients, quartiles):
    """The cheapest tau of Algorithm 1: tries all of them in rational numbers."""
    count, total = len(clients), sum(n for _, n in clients)

    def holding(share):
        return next(k for k in range(1, count + 1) if sum(n for _, n in clients[:k]) >= share * total)

    first = {"q1": holding(Fraction(1, 4)), "q3": holding(Fraction(3, 4)), "0": 1}[quartiles.split("-")[0]]
    end = {"q3": holding(Fraction(3, 4)), "1": count}[quartiles.split("-")[1]]
    costs = {
        tau: Fraction(tau, count) * exact_variance(clients[:tau])
        + Fraction(count - tau, count) * exact_variance(clients[tau:])
        for tau in range(first, end)
    }
    return min(costs, key=lambda tau: (costs[tau], tau)) if costs else None
