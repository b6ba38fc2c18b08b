"""Attacks by claims: what a client says of itself is bounded by what the server knows.

10^9 examples weighed 1.0, 10^9 steps made delta take 7 GiB, a fake bandwidth starved the others, effective steps of
1e19 moved a model by 2e15, and lies and endless texts stood in records and logs.
"""

import time
import tracemalloc
from dataclasses import replace

import numpy as np
import pytest

from clients.client import SelectionClient
from fedsel_app.config import BudgetConfig, NetworkConfig, SharedSettings, TrainingConfig
from fedsel_app.messages.answers import TrainAnswer
from fedsel_app.messages.scalars import Report
from fedsel_app.network.links import MeasuredLinks
from strategies.methods.delta import Delta, DeltaConfig
from strategies.methods.random_selection import RandomSelection
from strategies.roster import RoundInfo, Selection
from strategies.round.budget import cohort_fractions
from strategies.round.federation import Reply
from strategies.round.replies.values import read_tests
from strategies.testing.fakes import dense, make_context, outcome
from tests.support.contexts import context_of, make_roster
from tests.support.in_process import run_in_process
from tests.support.logs import logged
from tests.support.rounds import bits, run_round
from tests.support.stubs import StubClient, trio

LIAR = 4
SMALL = {"model": "logistic", "clients": 8, "cohort": 4, "rounds": 3, "local_steps": 3, "lr": 0.1}


def run(folder, lie=None, liar=LIAR, **settings):
    """A small run in which one client's replies to training go through `lie`; its strategy and rows."""

    def on_fit(client, message, reply):
        return lie(reply) if lie and client == liar else reply

    return run_in_process(folder, on_fit, **{"strategy": "full", **SMALL} | settings)


@pytest.mark.parametrize("clip", [10.0, 2.0, 0.0])
def test_examples_count_for_a_multiple_of_the_median_at_most(clip):
    """One client that said 10^9 had all the weight."""
    honest = [StubClient(client, examples=100) for client in range(3)]
    liar = StubClient(3, examples=10**9)
    strategy = RandomSelection(context_of(clients=4, cohort=4, example_clip=clip))
    with logged() as log:
        [row], _ = run_round(strategy, [*honest, liar])
    counted = clip * 100 if clip else 10**9
    assert row["weights"] == pytest.approx([100 / (300 + counted)] * 3 + [counted / (300 + counted)])
    assert (
        f"bounds the examples of clients (1): client 3 says 1000000000 and counts for {counted:.0f}\n" in log()
    ) == (clip > 0)
    assert strategy.roster.local_steps.tolist() == [50] * 4


def test_delta_takes_no_memory_by_the_length_that_a_client_claims():
    """10^9 steps were an array of as many numbers."""
    epochs = TrainingConfig(local_steps=0, local_epochs=10, batch_size=1)
    method = Delta(make_context(DeltaConfig(), clients=3, size=2, training=epochs))
    method.roster.local_steps[:] = [10**10, 10, 10]
    vectors = [dense([1.0, 0.0]), dense([0.0, 1.0]), dense([1.0, 1.0])]
    tracemalloc.start()
    started_s = time.perf_counter()
    try:
        method.update(outcome(RoundInfo(1, 10), [0, 1, 2], vectors, reports={Report.GRADIENT_DEVIATION: np.ones(3)}))
        assert tracemalloc.get_traced_memory()[1] < 1_000_000
    finally:
        tracemalloc.stop()
    assert time.perf_counter() - started_s < 5.0


FAST = TrainAnswer(1.0, 10.0, compute_s=1e-9, upload_bytes=10**15, upload_s=1e-9)


def test_a_fake_bandwidth_starves_nobody():
    """The mean of all links followed the fastest, and the others' kept fractions fell to the least."""
    fractions = {}
    for liars in (0, 1):
        links = MeasuredLinks(NetworkConfig(links="measured"), 10)
        for client in range(10):
            honest = TrainAnswer(1.0, 10.0, compute_s=2.0, upload_bytes=10**6, upload_s=2.0 + 0.1 * client)
            links.learn(client, FAST if client < liars else honest)
        roster = make_roster(10)
        roster.uplink_bits_per_s[:], roster.step_s[:] = links.observe(2, np.full(10, np.nan))
        means = links.mean_uplink_bits_per_s, links.mean_step_s
        budget = SharedSettings(budget=BudgetConfig(kept_fraction=0.5, kept_cosine=0.0, link_cap="round"))
        _, found = cohort_fractions(
            Selection(np.arange(10)), roster, np.full(10, 10), means, 1000, RoundInfo(5, 10), budget
        )
        fractions[liars] = found[1:]
    np.testing.assert_allclose(fractions[1], fractions[0], rtol=0.1)


@pytest.mark.parametrize("lie", [1e19, -5.0])
def test_effective_steps_are_the_servers_own(tmp_path, lie):
    """They weigh the updates, and 1e19 moved the model by 2e15."""
    honest, _ = run(tmp_path / "honest", solver="fednova")
    said = {Report.EFFECTIVE_STEPS: lie}

    def lying(reply):
        return replace(reply, metrics=reply.metrics | {name.value: number for name, number in said.items()})

    lied, _ = run(tmp_path / "lied", lying, solver="fednova")
    assert bits([lied.run.model.parameters]) == bits([honest.run.model.parameters])


@pytest.mark.parametrize(
    ("method", "settings"),
    [
        ("oort", {}),
        ("active-fl", {}),
        ("delta", {}),
        ("random", {"local_steps": 0, "local_epochs": 2}),
        ("random", {"participation": "isp", "holdout_fraction": 0.3, "isp_warmup_rounds": 1, "isp_warmup_epochs": 2}),
    ],
)
def test_the_bound_of_work_steps_is_what_honest_clients_take(tmp_path, method, settings):
    with logged() as log:
        run(tmp_path, strategy=method, **settings)
    assert "steps;" not in log()


@pytest.mark.parametrize("accuracy", [1e299, 1.1, -1e10, True, float("nan"), "0.5", b"1"])
def test_an_accuracy_that_cannot_be_is_left_out(accuracy):
    """1e299 was averaged into `client_accuracy`. An accuracy in percent was left out without a word."""
    with logged() as log:
        said = {client: Reply({"accuracy": each}, (), 10, 0.5) for client, each in enumerate((0.5, accuracy))}
        answers = read_tests(said, 1, context_of(), ["accuracy"])
    words = "Round 1: the accuracy of clients (1) is left out, because it is not a number from 0 to 1: client 1 says "
    assert f"{words}{accuracy}" in log()
    assert [answers[client].scores for client in (0, 1)] == [{"accuracy": 0.5}, {}]


def test_endless_texts_are_cut():
    """An error of 3 MB stood in every row, and a failed reply of 5 MB in the log."""

    def fit(client, message):
        return RuntimeError("x\n" * 1_500_000)

    stubs = trio()
    stubs[1] = StubClient(1, fit)
    stubs[2] = StubClient(2, lambda client, message: Reply({}, [b"z" * 5_000_000], 1))
    with logged() as log:
        [row], _ = run_round(RandomSelection(context_of(max_update_norm=0.0)), stubs)
    assert row["aggregated"] == [0]
    assert all(len(failure["reason"]) < 400 for failure in row["failures"])
    assert len(log()) < 3000


# Losses ------------------------------------------------------------------------------------------------------------

LIARS = (1, 6, 11, 16)
LOSSES = {"model": "logistic", "clients": 20, "cohort": 5, "local_steps": 5, "eval_every": 40, "seed": 3}
LOSSES |= {"loss_clip": 3.0}
"""Four of twenty clients lie, as in docs/security.md."""


def run_with_lying_losses(folder, monkeypatch, liars=LIARS, **settings):
    """The rows of a run in which the clients `liars` say 10^6 for every loss and report."""
    answer = SelectionClient.answer

    def lying(self, *asked):
        told, arrays = answer(self, *asked)
        lies = {"loss": 1e6, "reports": dict.fromkeys(Report, 1e6)} if self._context.client in liars else {}
        return replace(told, **{name: lies[name] for name in lies.keys() & vars(told)}), arrays

    with monkeypatch.context() as patch:
        patch.setattr(SelectionClient, "answer", lying)
        return run_in_process(folder, **LOSSES | settings)[1]


def test_a_lie_about_deviation_does_not_make_delta_the_liars(tmp_path, monkeypatch):
    """Four liars of twenty took all the probability that they held together with others."""
    rows = run_with_lying_losses(tmp_path, monkeypatch, strategy="delta", rounds=20)
    chosen = np.bincount(np.concatenate([row["selected"] for row in rows]), minlength=20)
    liars, honest = chosen[list(LIARS)].mean(), np.delete(chosen, LIARS).mean()
    assert honest > 3.5
    assert liars < 2 * honest


def test_lying_losses_take_no_kept_fraction_from_others(tmp_path, monkeypatch):
    """N7: four of twenty left the honest clients 0.11 of the entries in place of 0.2, `loss-clip=3` or not."""
    means = []
    for liars in ((), LIARS):
        settings = {"strategy": "hetero-select", "compressor": "top-k", "link_cap": "none", "rounds": 6}
        rows = run_with_lying_losses(tmp_path / str(len(liars)), monkeypatch, liars, **settings)
        pairs = [pair for row in rows[1:] for pair in zip(row["selected"], row["kept_fractions"], strict=True)]
        means.append(np.mean([kept for client, kept in pairs if client not in LIARS]))
    assert means[1] == pytest.approx(means[0], rel=0.05)
