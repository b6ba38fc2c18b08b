"""ISP's rules by hand and by brute force: smoothing, the jury, BatchNorm statistics, warm-up, and what resumes."""

from dataclasses import replace

import numpy as np
import pytest

from fedsel_app.config import EvaluationConfig
from strategies.methods.random_selection import RandomSelection
from strategies.participation import ISP
from strategies.roster import RoundInfo
from tests.support.contexts import Rows
from tests.support.isp_ring import CLIENTS, MODEL_BYTES, own_direction, ring, setup_for
from tests.support.rounds import run_rounds, without_wall
from tests.support.stubs import StubClient, StubFederation, as_sent, scored

EXAMPLES = [10 * (client + 1) for client in range(CLIENTS)]
TESTED = [7, 3, 9, 1, 5, 2, 8, 4]
TARGETS = np.random.default_rng(5).normal(size=(CLIENTS, CLIENTS))
"""Client k's loss is the squared distance of the model from row k, on its number of `TESTED` examples."""


def own_loss(client, model):
    return float(np.square(model - TARGETS[client]).sum())


def jury_loss(clients, model):
    weights = np.array([TESTED[client] for client in clients], float)
    return float(weights @ [own_loss(client, model) for client in clients] / weights.sum())


class Judge(StubClient):
    """A client that tests every model by its own loss; a `silent` one never answers."""

    def __init__(self, client, length=1.9, silent=False):
        super().__init__(client, own_direction(length), examples=EXAMPLES[client])
        self.judged, self.silent = [], silent

    def evaluate(self, message):
        model = message.model.arrays[0].astype(np.float64)
        self.judged.append(model)
        if self.silent:
            raise RuntimeError("no test part")
        return scored(own_loss(self.client, model), TESTED[self.client], 0.5)


def judged_run(silent=(), **settings):
    judges = [Judge(client, silent=client in silent) for client in range(CLIENTS)]
    context = setup_for(isp_draws=1, isp_momentum=1.0, weighting="uniform", server_optimizer="mean", **settings)
    rows, _ = run_rounds(RandomSelection(context), judges, context.run.rounds)
    return rows, judges


# Smoothing


@pytest.mark.parametrize(("rule", "found"), [("code", 3), ("text", 6)])
def test_both_smoothing_rules_by_hand(rule, found):
    """Losses 4, 2 and 1.5 of the global models of rounds 1 to 3, whose average is 4 -> 10/3 -> 49/18, at weight 1/3.

    The code's rule wants a candidate below 49/18 = 2.7222. The text's wants 2/3 * 49/18 + c/3 below 1.5: c below
    -17/18 = -0.9444.
    """
    of_global, of_candidate = [4.0, 2.0, 1.5], [3.0, 2.75, 2.7, 0.0, -0.9, -1.0, -2.0, -2.0]

    def loss(parameters, _):
        moved = int((parameters > parameters.min()).sum())
        return of_candidate[moved - 1] if moved else of_global[round(float(parameters[0]))]

    # In the warm-up all clients train, so that each entry of the model grows by 8 / 8.
    settings = {"isp_smoothing_rule": rule, "isp_warmup_rounds": 2, "server_optimizer": "mean", "weighting": "uniform"}
    context = setup_for(loss, rounds=3, **settings)
    stubs = [StubClient(client, own_direction(8.0)) for client in range(CLIENTS)]
    rows, _ = run_rounds(RandomSelection(context), stubs, 3)
    search = rows[2]["search"]
    assert search["global_loss"] == 1.5
    assert (search["found"], rows[2]["cohort"]) == (found, found)
    by_hand = {
        "code": [49 / 18 - 3.0, 49 / 18 - 2.75, 49 / 18 - 2.7],
        "text": [1.5 - (2 / 3 * 49 / 18 + c / 3) for c in (3.0, 2.75, 2.7, 0.0, -0.9, -1.0)],
    }
    assert search["improvements"] == pytest.approx(by_hand[rule])


# The jury


@pytest.mark.parametrize("jury", ["same", "subset"])
def test_both_juries_by_brute_force(jury):
    [row], judges = judged_run(isp_jury=jury)
    everybody, start = range(CLIENTS), np.zeros(CLIENTS)
    assert row["search"]["global_loss"] == pytest.approx(jury_loss(everybody, start))
    candidates = {model.tobytes(): model for judge in judges for model in judge.judged if model.any()}
    assert len(candidates) == len(row["search"]["tried"])
    expected = {}
    for model in candidates.values():
        # A candidate of m clients is 1.9 / m at the entry of each.
        made_by = np.flatnonzero(model).tolist()
        np.testing.assert_allclose(model[made_by], 1.9 / len(made_by), rtol=1e-6)
        judged_by = [judge.client for judge in judges if any(np.array_equal(model, seen) for seen in judge.judged)]
        assert judged_by == (list(everybody) if jury == "same" else made_by)
        expected[len(made_by)] = jury_loss(judged_by, model)
    assert row["search"]["losses"] == pytest.approx([expected[m] for m in row["search"]["tried"]])


def test_who_did_not_test_the_global_model_judges_no_candidate():
    [row], judges = judged_run(silent=[2, 6])
    heard = [client for client in range(CLIENTS) if client not in (2, 6)]
    assert row["search"]["global_loss"] == pytest.approx(jury_loss(heard, np.zeros(CLIENTS)))
    assert [len(judges[client].judged) for client in (2, 6)] == [1, 1]
    tests = sum(len(judge.judged) for judge in judges)
    assert row["probe_bytes"] == tests * (MODEL_BYTES + 8)
    model = judges[0].judged[-1]
    assert row["search"]["losses"][-1] == pytest.approx(jury_loss(heard, model))


@pytest.mark.parametrize("leaves", [False, True])
def test_a_known_loss_is_taken_over_as_long_as_its_jury_is_there(leaves):
    judges = [Judge(client) for client in range(CLIENTS)]
    federation = StubFederation(judges)
    context = setup_for(isp_draws=1, rounds=2, isp_interval=1)
    strategy = RandomSelection(replace(context, evaluation=EvaluationConfig(client_eval=True)))
    observe, after_first, before = strategy.run.policy.observe, [], []

    def after_evaluation(server_round, loss, jury=None):
        observe(server_round, loss, jury)
        if server_round == 2 and not after_first:
            after_first.append(judges[7].judged[-1])
            before.append(len(judges[0].judged))
            if leaves:
                federation.leave(judges[7])

    strategy.run.policy.observe = after_evaluation
    rows, _ = run_rounds(strategy, federation, 2)
    there = range(CLIENTS - leaves)
    assert rows[1]["search"]["global_loss"] == pytest.approx(jury_loss(there, after_first[0]))
    tested_again = np.array_equal(judges[0].judged[before[0]], after_first[0])
    assert tested_again == leaves


# BatchNorm statistics


def with_statistics(client, message):
    """Client k leaves the mean k and the variance 1 + k."""
    reply = own_direction(1.9)(client, message)
    if not message.instruction.statistics:
        return reply
    return replace(reply, tensors=[*reply.tensors, *as_sent(np.array([client, 1.0 + client], np.float32))])


def mean_statistics(clients):
    mean = float(np.average(clients, weights=[EXAMPLES[client] for client in clients]))
    return [mean, 1.0 + mean]


def statistics_run(fit=with_statistics, **settings):
    seen = []

    def loss(parameters, buffers):
        seen.append((np.flatnonzero(parameters).tolist(), buffers.tolist()))
        return ring()(parameters, buffers)

    context = setup_for(loss, calibration_form="training", weighting="examples", max_update_norm=0.0, **settings)
    context = replace(context, buffers=np.array([0.0, 1.0], np.float32), variances=np.array([False, True]))
    stubs = [StubClient(client, fit, examples=EXAMPLES[client]) for client in range(CLIENTS)]
    rows, arrays = run_rounds(RandomSelection(context), stubs, context.run.rounds)
    return rows, arrays, seen, stubs


def test_a_candidate_carries_its_clients_statistics_averaged_by_examples():
    [row], arrays, seen, _ = statistics_run()
    (start, untouched), *candidates = seen
    assert (start, untouched) == ([], [0.0, 1.0])
    assert len(candidates) > 1
    for clients, buffers in candidates:
        assert buffers == pytest.approx(mean_statistics(clients))
    np.testing.assert_allclose(arrays[1], mean_statistics(row["aggregated"]), rtol=1e-6)
    # Two float32 of each of the 8, and of each that trains the round itself.
    assert row["calibration_bytes"] == 8 * (CLIENTS + row["cohort"])


def test_an_aggregated_search_uses_the_statistics_of_the_round_itself():
    [row], arrays, seen, stubs = statistics_run(isp_form="code")
    assert row["aggregated"] == list(range(CLIENTS))
    for clients, buffers in seen[1:]:
        assert buffers == pytest.approx(mean_statistics(clients))
    np.testing.assert_allclose(arrays[1], mean_statistics(range(CLIENTS)), rtol=1e-6)
    assert row["calibration_bytes"] == 8 * CLIENTS
    assert all(stub.kinds.count("train") == 1 for stub in stubs)


@pytest.mark.parametrize("bad", [[1.0], [1.0, -1.0], [float("nan"), 1.0], [1e30, 1.0]])
def test_a_client_whose_statistics_are_unsound_is_left_out(bad):
    def fit(client, message):
        reply = with_statistics(client, message)
        return replace(reply, tensors=[*reply.tensors[:1], *as_sent(np.array(bad, np.float32))]) if client else reply

    [row], arrays, seen, _ = statistics_run(fit, isp_form="code")
    assert row["aggregated"] == [0]
    assert [failure["client"] for failure in row["failures"]] == list(range(1, CLIENTS))
    assert arrays[1].tolist() == mean_statistics([0])
    assert {tuple(clients) for clients, _ in seen[1:]} == {(0,)}


# Warm-up and resuming


def test_in_the_warm_up_all_clients_train_more_epochs_and_the_searches_come_after():
    policy = ISP(setup_for(ring(), isp_interval=3, isp_warmup_rounds=2))
    assert [number for number in range(1, 10) if policy.searches(RoundInfo(number, 9))] == [3, 6, 9]
    own = [(number, iteration) for number in range(1, 10) for iteration in (1, 2)]
    assert [at for place, at in enumerate(own) if policy.searches(RoundInfo(place, 9, *at))] == [(3, 1), (6, 1), (9, 1)]
    context = setup_for(
        lambda w, _: -float(w.sum()), rounds=4, isp_smoothing=1.0, isp_warmup_rounds=2, isp_warmup_epochs=3
    )
    stubs = [StubClient(client, own_direction(0.1)) for client in range(CLIENTS)]
    rows, _ = run_rounds(RandomSelection(context), stubs, 4)
    assert [row["cohort"] for row in rows] == [8, 8, 1, 1]
    assert ["search" in row for row in rows] == [False, False, True, False]
    orders = stubs[0].told("train")
    assert {(order.server_round, order.local_epochs) for order in orders} >= {(1, 3), (2, 3), (3, 0)}


def test_a_search_that_finds_nothing_leaves_the_next_one_the_first():
    losses = iter([1.0] * 100)
    context = setup_for(lambda w, _: next(losses), isp_momentum=0.5, isp_form="code", cohort=7)
    stubs = [StubClient(client, own_direction(0.1)) for client in range(CLIENTS)]
    strategy = RandomSelection(context)
    run_rounds(strategy, stubs, 1)
    assert (strategy.run.policy.cohort, bool(strategy.run.policy.state()["found_before"])) == (7, False)


def test_a_restored_run_searches_on_as_if_it_had_never_stopped():
    settings = {"isp_interval": 2, "isp_momentum": 0.5, "isp_draws": 2, "isp_smoothing_rule": "code", "rounds": 6}

    def started():
        context = setup_for(**settings)
        context = replace(context, evaluation=EvaluationConfig(client_eval=True), recorder=Rows())
        return RandomSelection(replace(context, records=replace(context.records, checkpoint_every=3)))

    def clients():
        return StubFederation([Judge(client, length=1.0) for client in range(CLIENTS)])

    whole = started()
    rows, arrays = run_rounds(whole, clients(), 6)
    first = started()
    run_rounds(first, clients(), 3)
    second = started()
    second.restore(first.context.recorder.saved)
    rest, again = run_rounds(second, clients(), 3)
    assert [row["cohort"] for row in rest] == [row["cohort"] for row in rows[3:]]
    assert [row.get("search") for row in without_wall(rest)] == [row.get("search") for row in without_wall(rows[3:])]
    assert [array.tobytes() for array in arrays] == [array.tobytes() for array in again]
