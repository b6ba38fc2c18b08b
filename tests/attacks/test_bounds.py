"""Bounds that docs/security.md promises, recomputed and met at their stated worst cases (N6)."""

import math
import re

import numpy as np
import pytest

from fedsel_app.config import AggregationConfig
from fedsel_app.wire.codec import Update
from strategies.aggregation.robust import combine
from strategies.methods.random_selection import RandomSelection
from strategies.testing.fakes import dense
from tests.support.contexts import SIZE, context_of
from tests.support.rounds import run_rounds
from tests.support.sources import ROOT
from tests.support.stubs import StubClient, round_of, update_reply

PAGE = (ROOT / "docs/security.md").read_text(encoding="utf-8")


def sends_ones(client, message):
    return update_reply(dense(np.ones(SIZE)), client, round_of(message))


@pytest.mark.parametrize(("cohort", "told"), [(5, "0.71"), (10, "0.53"), (20, None)])
def test_example_clip_bounds_a_weight_by_the_cohort(cohort, told):
    """Row 4: 10 / (C + 9) among C - 1 equal others, whatever the number of clients K."""
    clients, liar, rounds = 20, 19, 12
    stubs = [StubClient(client, sends_ones, examples=100) for client in range(liar)]
    stubs.append(StubClient(liar, sends_ones, examples=10**9))
    strategy = RandomSelection(context_of(clients=clients, cohort=cohort, rounds=rounds))
    rows, _ = run_rounds(strategy, stubs, rounds)
    weights = [row["weights"][row["aggregated"].index(liar)] for row in rows if liar in row["aggregated"]]
    [letter] = re.findall(r"weighs up to 10 / \(([CK]) \+ 9\)", PAGE)
    promised = 10 / ({"C": cohort, "K": clients}[letter] + 9)
    assert weights
    assert weights == pytest.approx([promised] * len(weights))
    assert told is None or (f"{promised:.2f} of {cohort}" in PAGE and told == f"{promised:.2f}")


def one_entry(values):
    """Updates of one of 8 entries for each value that is sent, None: not sent; the rest of the entries is noise."""
    noise = np.random.default_rng(0).normal(size=(len(values), 7)).astype(np.float32)
    updates = []
    for value, rest in zip(values, noise, strict=True):
        places = np.arange(1 if value is None else 0, 8).astype(np.uint32)
        updates.append(Update(8, places, rest if value is None else np.concatenate([[np.float32(value)], rest])))
    return tuple(updates)


@pytest.mark.parametrize("rule", ["median", "trimmed-mean"])
@pytest.mark.parametrize("cohort", range(4, 25))
def test_votes_withstand_just_under_a_quarter_of_the_cohort(rule, cohort):
    """An entry at the quorum, liars at their most: the outcome stays among what honest clients sent, at its share."""
    liars = math.ceil(cohort / 4) - 1
    config = AggregationConfig(aggregation=rule, update_clip=0.0)
    if rule == "trimmed-mean":
        liars = min(liars, math.floor(config.trim_share * cohort))
    senders = math.ceil(cohort / 2)
    honest = np.linspace(1.0, 2.0, senders - liars)
    for lie in (-1e6, 1e6):
        values = [*honest, *[lie] * liars, *[None] * (cohort - senders)]
        found = combine(one_entry(values), np.full(cohort, 1 / cohort), config).aggregate[0] * cohort / senders
        assert 1.0 - 1e-9 <= found <= 2.0 + 1e-9


@pytest.mark.parametrize("rule", ["krum", "multi-krum"])
@pytest.mark.parametrize("malicious", [1, 2, 3])
def test_krum_withstands_f_of_two_f_and_three(rule, malicious):
    """Liars who agree on one vector beyond the honest ones, at the fewest replies that the page asks for."""
    rng, cohort = np.random.default_rng(1), 2 * malicious + 3
    honest = rng.normal(size=(cohort - malicious, 40)) * 0.05 + 1.0
    lie = np.full((malicious, 40), -1.0)
    updates = tuple(Update(40, None, row.astype(np.float32)) for row in np.concatenate([honest, lie]))
    config = AggregationConfig(aggregation=rule, krum_malicious=malicious)
    combined = combine(updates, np.full(cohort, 1 / cohort), config)
    assert not combined.weights[-malicious:].any()
