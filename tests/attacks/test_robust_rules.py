"""Attacks by updates: a few hostile clients of a cohort send what moves a mean anywhere, alone or together.

Falls 10 (two of ten that sent dense updates x 1000 moved the median by 335 where honest ones moved it by 0.37) and 11
(under the default `max-update-norm` one client x 9e5 moved the mean by 43,000).
"""

from dataclasses import replace

import numpy as np
import pytest

from fedsel_app.wire.codec import Update, decode, encode
from strategies import STRATEGIES
from strategies.methods.random_selection import RandomSelection
from strategies.testing.fakes import dense
from tests.support.contexts import context_of
from tests.support.in_process import run_in_process
from tests.support.logs import logged
from tests.support.rounds import run_rounds
from tests.support.stubs import StubClient, round_of, sent_payload, update_reply, with_payload

RULES = ("median", "trimmed-mean", "krum", "multi-krum")
LIARS = (4, 9)
FEDERATION = {"model": "logistic", "clients": 12, "cohort": 10, "local_steps": 3, "lr": 0.1, "curvature_layers": 0}
FEDERATION |= {"threads": 1, "seed": 5}


def scaled(factor):
    return lambda update: Update(update.size, update.indices, update.values * np.float32(factor))


def dense_times(factor):
    """The update and, in place of what it lacks, its mean size at random signs: a value for every entry."""

    def lie(update):
        rng = np.random.default_rng(1)
        values = rng.choice([-1.0, 1.0], update.size) * np.abs(update.values).mean()
        values[slice(None) if update.indices is None else update.indices] = update.values
        return dense(factor * values)

    return lie


def the_same_vector(update):
    """A vector that all liars agree on, of 50 times the norm: below `max-update-norm`, and clipped to the median."""
    vector = np.random.default_rng(2).normal(size=update.size)
    return dense(50.0 * update.norm() * vector / np.linalg.norm(vector))


LIES = {
    "x 1000": dense_times(1000.0),
    "sign flip x 10": scaled(-10.0),
    "same vector": the_same_vector,
}


def lying(lie, liars, since=1):
    """Hook on replies: from round `since` on the `liars` send `lie` of the update that they have."""

    def on_fit(client, message, reply):
        if client not in liars or round_of(message) < since:
            return reply
        payload = sent_payload(reply)
        packet = decode(payload, size=int.from_bytes(payload[8:12], "little"))
        return with_payload(reply, encode(lie(packet.update), client=client, server_round=packet.server_round))

    return on_fit


def accuracy(folder, rule, method="random", lie=None, liars=(), number=50, **settings):
    """Accuracy after a run of `number` rounds in which the `liars` send a lie of `LIES`."""
    settings = FEDERATION | {"aggregation": rule, "krum_malicious": 2, "eval_every": number} | settings
    on_fit = lying(LIES[lie], liars) if lie else None
    _, rows = run_in_process(folder, on_fit, strategy=method, rounds=number, **settings)
    return rows[-1]["accuracy"]


def honest_update(client, server_round=1):
    """A fifth of 200 entries, by magnitude, of a vector that all clients share and noise of their own."""
    noise = np.random.default_rng([client, server_round]).normal(size=200)
    vector = 0.01 * (np.random.default_rng(0).normal(size=200) + noise)
    places = np.sort(np.argsort(-np.abs(vector))[:40])
    return Update(200, places.astype(np.uint32), vector[places].astype(np.float32))


def one_round(lie=None, liars=(), rounds=1, **settings):
    """Row, distance moved, log and strategy of a run of ten scripted clients of whom the `liars` send a lie."""

    def fit(client, message):
        update = honest_update(client, round_of(message))
        return update_reply(lie(update) if client in liars else update, client, round_of(message))

    strategy = RandomSelection(context_of(clients=10, cohort=10, size=200, rounds=rounds, **settings))
    stubs = [StubClient(client, fit) for client in range(10)]
    with logged() as log:
        rows, [model] = run_rounds(strategy, stubs, rounds)
    return rows[0], float(np.linalg.norm(model)), log(), (strategy, stubs)


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("bound", [{}, {"max_update_norm": 0.0}])
def test_two_colluders_move_a_robust_rule_no_further_than_honest_clients_do(rule, bound):
    """They moved it by 335 and 453, and honest clients by 0.37 and 0.34."""
    settings = {"aggregation": rule, "krum_malicious": 2} | bound
    _, honest, _, _ = one_round(**settings)
    for lie in LIES.values():
        _, lied, _, _ = one_round(lie, LIARS, **settings)
        assert lied < 2.0 * honest


def test_the_default_bound_of_a_norm_is_relative():
    """One client x 9e5 moved the mean by 43,000, honest ones by 0.13."""
    _, honest, _, _ = one_round()
    row, lied, log, _ = one_round(scaled(9e5), {4})
    assert lied < 1.5 * honest
    [failure] = row["failures"]
    assert failure["client"] == 4
    assert "see 'max-update-norm'" in failure["reason"]
    assert "client 4 is left out: its update has norm" in log


def test_what_is_clipped_is_recorded_by_its_client():
    row, _, _, _ = one_round(the_same_vector, {4}, aggregation="median")
    assert row["aggregated"] == list(range(10))
    assert row["taken"][4] < 0.03
    assert min(np.delete(row["taken"], 4)) > 0.5


@pytest.mark.parametrize("rule", ["mean", "median", "multi-krum"])
def test_the_next_instruction_says_what_was_taken_also_after_a_restart(rule):
    settings = {"aggregation": rule, "rounds": 2}
    row, _, _, (strategy, stubs) = one_round(the_same_vector, {4}, **settings)
    assert stubs[4].told("train")[1].taken == row.get("taken", [1.0] * 10)[4]
    resumed = RandomSelection(replace(strategy.context, recorder=None))
    resumed.restore(strategy.snapshot())
    assert resumed.roster.taken.tolist() == strategy.roster.taken.tolist()
    assert (strategy.roster.taken[4] < 0.03) == (rule != "mean")


def test_what_krum_does_not_choose_goes_back_as_if_it_had_been_lost(tmp_path):
    """The next update of a client that Krum left out is the one that it sends after a reply that did not arrive."""
    sent = {}

    def hook(name, lost):
        def on_fit(client, message, reply):
            sent[name, client, round_of(message)] = reply.tensors[0]
            return replace(reply, metrics={}) if client in lost and round_of(message) == 1 else reply

        return on_fit

    settings = FEDERATION | {"clients": 7, "cohort": 7, "aggregation": "krum", "rounds": 2, "kept_warmup_rounds": 0}
    _, rows = run_in_process(tmp_path / "krum", hook("krum", ()), strategy="full", **settings)
    [chosen] = np.flatnonzero(rows[0]["weights"])
    left_out = min(set(range(7)) - {int(chosen)})
    run_in_process(tmp_path / "lost", hook("lost", {left_out}), strategy="full", **settings)
    first, second = (sent[name, left_out, 2] for name in ("krum", "lost"))
    assert sent["krum", left_out, 1] == sent["lost", left_out, 1]
    assert first == second


def test_two_colluders_cost_the_median_little_accuracy(tmp_path):
    clean = accuracy(tmp_path / "clean", "median", number=6)
    lied = accuracy(tmp_path / "lied", "median", "random", "x 1000", LIARS, number=6, max_update_norm=0.0)
    assert lied >= clean - 0.03


PROMISED = ("median", "trimmed-mean", "multi-krum")
"""Rules of which docs/security.md promises that two liars of ten cost few points of accuracy."""
MOST = 0.039
"""Largest loss of its table: 14 of 359 test samples."""
NOT_PROMISED = {("adasample", "multi-krum"), ("flexcom", "median"), ("flexcom", "trimmed-mean")}
"""Methods and rules that do not hold: adasample's draws with replacement leave fewer than the 7 replies that two liars
need, and flexcom is still learning after 50 rounds."""
LARGER = {("terraform", rule): {"terraform.min-clients": 7} for rule in ("median", "trimmed-mean")}
"""Two liars are half of the smallest hard sets of terraform, of 4 clients: two sign flips cost it 14 points there."""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("method", "rule"),
    [(method, rule) for method in STRATEGIES for rule in PROMISED if (method, rule) not in NOT_PROMISED],
)
def test_liars_cost_no_more_than_the_page_says(tmp_path, method, rule):
    settings = LARGER.get((method, rule), {})
    clean = accuracy(tmp_path / "clean", rule, method, **settings)
    for lie, liars in [*((lie, 2) for lie in LIES), ("sign flip x 10", 1)]:
        lied = accuracy(tmp_path / f"{lie}-{liars}", rule, method, lie, LIARS[:liars], **settings)
        assert lied >= clean - MOST, f"{liars} liars, {lie}: {lied:.3f} instead of {clean:.3f}"
