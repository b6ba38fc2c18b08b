"""Advice: which method when, and where random selection is as good, from the rankings' measured runs."""

from collections import Counter
from collections.abc import Collection, Sequence

import numpy as np

from simulation.claims.measured import Measured
from simulation.claims.ranking import RANDOM, Place, Ranking, places
from simulation.report.tables import capital

CURRENCIES = {
    "accuracy_at_traffic_mb": "Where every byte counts",
    "accuracy_at_time_s": "Where seconds count and all uplinks send at once",
    "accuracy_at_rounds": "Where only rounds count",
}
"""Metric of a ranking -> what its methods spend equally."""
NAMED = 3
"""Most methods that a sentence names."""


def ranking_advice(ranking: Ranking, measured: Measured) -> str:
    """Sentences on the first method in each currency, with the mean of random selection; empty without runs."""
    sentences = []
    for metric in ranking.metrics:
        order = places(ranking, metric, measured)
        if order:
            first, random = order[0], next(place for place in order if place.strategy == RANDOM)
            noise = "" if random.behind else ", tied"
            where = capital(metric.name.removeprefix("accuracy "))
            means = f"{first.accuracy.mean:.3f}; random {random.accuracy.mean:.3f}{noise}"
            sentences.append(f"{where}, {first.strategy} is first ({means}).")
    return " ".join(sentences)


def advice(rankings: Sequence[Ranking], measured: Measured) -> list[tuple[str, str]]:
    """Heading and sentences for each currency: the methods that are first, or tied with the first, in most rankings.

    Rankings without runs are left out. Of equals those with the better mean place come first, and at most `NAMED`.
    """
    lines = []
    for key, currency in CURRENCIES.items():
        orders = {
            ranking.name: order
            for ranking in rankings
            for metric in ranking.metrics
            if metric.key == key and (order := places(ranking, metric, measured))
        }
        if orders:
            lines.append((currency, _sentence(orders)))
    return lines


def _sentence(orders: dict[str, list[Place]]) -> str:
    tied = Counter(place.strategy for order in orders.values() for place in order if not place.behind)
    mean_place = {
        name: np.mean([[place.strategy for place in order].index(name) for order in orders.values()])
        for name in set.intersection(*({place.strategy for place in order} for order in orders.values()))
    }
    most = max(tied[name] for name in mean_place)
    best = sorted((name for name in mean_place if tied[name] == most), key=lambda name: (mean_place[name], name))
    named = [*best[:NAMED], *([f"one of {len(best) - NAMED} more"] if len(best) > NAMED else [])]
    names = " or ".join([", ".join(named[:-1]), named[-1]] if len(named) > 1 else named)
    random = {name: place for name, order in orders.items() for place in order if place.strategy == RANDOM}
    tied_random = [name for name, place in random.items() if not place.behind]
    points = 100 * np.mean([orders[name][0].accuracy.mean - place.accuracy.mean for name, place in random.items()])
    return (
        f"use {names}: first or tied in {most} of {len(orders)} workloads. Random selection is tied in "
        f"{_listed(tied_random, orders)}, and {points:.1f} points behind the first on average."
    )


def _listed(names: Sequence[str], every: Collection[str]) -> str:
    """Number of them, and their names; of more than half of them, the names that are left out."""
    others = [name for name in every if name not in names]
    count = f"{len(names)} of {len(every)} workloads"
    if not names or not others:
        return count
    return f"{count} (not in {', '.join(others)})" if len(others) < len(names) else f"{count} ({', '.join(names)})"
