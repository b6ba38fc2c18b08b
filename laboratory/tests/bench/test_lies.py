"""The bench of lies: a backdoor in entries that honest clients hardly use, and the bound of 'entry-malicious'."""

import pytest

from fedsel_app.config import AggregationConfig
from laboratory.bench.lies import LIARS, RULES, read, result


@pytest.mark.parametrize("rule", ["median", "trimmed-mean", "multi-krum"])
def test_a_backdoor_in_entries_that_honest_clients_hardly_use_stays_out(rule):
    federation = read("digits", 1)
    _, open_ = result(federation, RULES[rule], "backdoor")
    accuracy, bounded = result(federation, RULES[f"{rule}, entry-malicious={len(LIARS)}"], "backdoor")
    assert open_ > 0.8
    assert bounded < 0.2
    assert accuracy > 0.9


def test_the_bound_costs_honest_clients_nothing():
    federation = read("digits", 2)
    plain, _ = result(federation, RULES["trimmed-mean"], "honest")
    bounded, _ = result(
        federation, AggregationConfig(aggregation="trimmed-mean", krum_malicious=2, entry_malicious=2), "honest"
    )
    assert bounded > plain - 0.02
