"""The round by hand: `run_round` over stub clients, and Flower's legacy server where it has a door of its own."""

import json
import re
from dataclasses import replace
from itertools import permutations

import numpy as np
import pytest
from flwr.common import EvaluateRes, ndarrays_to_parameters

from fedsel_app.config import NetworkConfig, TrainingConfig
from fedsel_app.messages.answers import EnrolAnswer
from fedsel_app.messages.instructions import EnrolInstruction, ProbeInstruction, TrainInstruction, read_instruction
from fedsel_app.messages.scalars import Report
from strategies.methods.hetero_select import HeteroSelect, HeteroSelectConfig
from strategies.methods.random_selection import RandomSelection
from strategies.roster import Needs
from strategies.testing.fakes import dense
from tests.support.contexts import SIZE, context_of
from tests.support.logs import logged
from tests.support.proxies import (
    OK,
    StubProxy,
    fit_reply,
    manager_of,
    round_of,
    sends_its_update,
    trio,
    update_of,
    update_reply,
)
from tests.support.rounds import bits, run_by_flower, run_round, run_rounds, without_wall

SIGMA, RHO = Report.GRADIENT_DEVIATION, Report.EFFECTIVE_STEPS


@pytest.mark.parametrize("run", [run_rounds, run_by_flower])
def test_a_round_by_hand(run):
    strategy = RandomSelection(context_of())
    [row], [parameters] = run(strategy, manager_of(trio()), 1)
    # By examples: 10, 20 and 30 of 60 of the updates 1, 2 and 3.
    np.testing.assert_allclose(parameters, [1 / 6, 4 / 6, 9 / 6, 0.0], rtol=1e-6)
    assert row["weights"] == pytest.approx([1 / 6, 1 / 3, 1 / 2])
    assert row["round"] == 1
    assert row["selected"] == row["aggregated"] == [0, 1, 2]
    assert row["scores"] == [1.0, 1.0, 1.0]
    assert row["fit_losses"] == [1.0, 1.0, 1.0]
    assert row["kept_fraction"] == 1.0
    assert row["kept_fractions"] == [1.0, 1.0, 1.0]
    assert row["failures"] == []
    assert row["client_updates"] == 3
    assert row["accuracy"] == 0.0
    assert row["wall_s"] > 0
    assert np.isnan(row["probe_losses"]).all()
    # The header and checksum take 28 bytes, a bitmap of 4 entries one, a value 4.
    assert row["uplink_bytes"] == 3 * (28 + 1 + 4)
    assert row["uplink_value_bytes"] == 3 * 4
    assert row["downlink_bytes"] == 3 * 4 * SIZE
    assert row["probe_bytes"] == row["calibration_bytes"] == 0
    links = strategy.context.links
    uplinks, step_s = links.observe(1, np.full(3, np.nan))
    assert row["round_s"] == pytest.approx(max(2 * step_s + 8 * 33 / uplinks))
    assert strategy.context.recorder.client_rows == [
        {"client": client, "round": 1, "examples": 10 * (client + 1)} for client in range(3)
    ]
    assert strategy.context.recorder.finished == 1


@pytest.mark.parametrize("run", [run_rounds, run_by_flower])
def test_momentum_over_two_rounds_and_the_rosters_books(run):
    strategy = RandomSelection(context_of(rounds=2))
    _, [parameters] = run(strategy, manager_of(trio()), 2)
    # M_1 = u, M_2 = 1.5 u: u + 1.5 u.
    np.testing.assert_allclose(parameters, 2.5 * np.array([1 / 6, 4 / 6, 9 / 6, 0.0]), rtol=1e-6)
    np.testing.assert_array_equal(strategy.context.recorder.parameters, parameters)
    roster = strategy.roster
    assert roster.selections.tolist() == [2, 2, 2]
    assert roster.last_selected.tolist() == [2, 2, 2]
    assert roster.fit_losses.tolist() == [1.0, 1.0, 1.0]
    assert roster.failures.tolist() == [0, 0, 0]
    assert roster.local_steps.tolist() == [50, 50, 50]


def test_instructions():
    training = TrainingConfig(lr=0.1)
    strategy = RandomSelection(replace(context_of(rounds=4, cohort=2), training=training))
    manager = manager_of(trio())
    model = strategy.initialize_parameters(manager)
    first = strategy.configure_fit(1, model, manager)
    assert len(first) == 2
    keys = {TrainInstruction.from_config(ins.config).run_key for _, ins in first}
    assert len(keys) == 2
    assert strategy.run.instructions.key not in keys
    for _, ins in first:
        assert ins.parameters == model
        instruction = TrainInstruction.from_config(ins.config)
        assert re.fullmatch("[0-9a-f]{32}", instruction.run_key)
        # lr 0.1 (1 - 0.5 / 4); beta 0.85 at a kept fraction of 1; no history.
        assert instruction == TrainInstruction(
            server_round=1,
            run_key=instruction.run_key,
            learning_rate=pytest.approx(0.0875),
            kept_fraction=1.0,
            residual_decay=pytest.approx(0.85),
            curvature=False,
        )
    [(_, ins), _] = strategy.configure_fit(4, model, manager)
    instruction = TrainInstruction.from_config(ins.config)
    assert instruction.curvature
    assert instruction.learning_rate == pytest.approx(0.05)
    # theta = 0.12 in the last round; beta = 0.85 + 0.12 * 0.88.
    assert instruction.residual_decay == pytest.approx(0.9556)


def test_hetero_select_probes_everybody_and_weighs_by_score():
    strategy = HeteroSelect(context_of(HeteroSelectConfig(), probe_batches=3))
    proxies = [StubProxy(client, sends_its_update, loss=loss) for client, loss in enumerate((2.0, 1.0, 5.0))]
    [row], [parameters] = run_round(strategy, proxies)
    # Only the loss tells them apart: (2 - 1) / 4, 0 and 1, of 1.25 in all.
    assert row["scores"] == pytest.approx([0.25, 0.0, 1.0])
    assert row["weights"] == pytest.approx([0.2, 0.0, 0.8])
    assert row["components"]["loss"] == pytest.approx([0.25, 0.0, 1.0])
    assert set(row["components"]) == {"loss", "diversity", "fairness", "staleness"}
    assert row["probe_losses"] == [2.0, 1.0, 5.0]
    np.testing.assert_allclose(parameters, [0.2, 0.0, 2.4, 0.0], rtol=1e-6)
    # The model down and a loss of 8 bytes up, each.
    assert row["probe_bytes"] == 3 * (4 * SIZE + 8)
    [(_, ins)] = [asked for asked in proxies[0].asked if asked[0] == "evaluate"]
    assert ProbeInstruction.from_config(ins.config) == ProbeInstruction(1, 3)
    # Three forward passes are one step; then two steps and 33 bytes.
    uplinks, step_s = strategy.context.links.observe(1, np.full(3, np.nan))
    assert row["round_s"] == pytest.approx(max(step_s) + max(2 * step_s + 8 * 33 / uplinks))


def test_a_client_that_fails_its_probe_sits_the_round_out():
    strategy = HeteroSelect(context_of(HeteroSelectConfig(), rounds=2))
    proxies = [StubProxy(0, sends_its_update), StubProxy(1, sends_its_update, loss=ValueError("out of memory"))]
    rows, _ = run_rounds(strategy, manager_of([*proxies, StubProxy(2, sends_its_update)]), 2)
    assert [row["selected"] for row in rows] == [[0, 2], [0, 2]]
    assert [kind for kind, _ in proxies[1].asked] == ["properties", "evaluate", "evaluate"]
    assert rows[0]["failures"] == [{"client": 1, "reason": "loss probe: out of memory"}]
    # It was sent the model all the same.
    assert rows[0]["probe_bytes"] == 3 * (4 * SIZE + 8)


def test_a_round_in_which_every_probe_fails_says_so():
    strategy = HeteroSelect(context_of(HeteroSelectConfig(), rounds=2))
    proxies = [StubProxy(client, loss=ValueError("out of memory")) for client in range(3)]
    with logged() as log:
        [row], _ = run_rounds(strategy, manager_of(proxies), 1)
    assert "every client failed its loss probe; the model does not change" in log()
    assert row["selected"] == []
    assert [failure["client"] for failure in row["failures"]] == [0, 1, 2]


class Watching(RandomSelection):
    """Random selection that remembers the rosters that it was given and the outcomes of its rounds."""

    needed = Needs()

    def __init__(self, context):
        super().__init__(context)
        self.shown, self.absorbed = [], []

    @classmethod
    def needs(cls, config):
        return cls.needed

    def select(self, roster, round_info, count, rng):
        self.shown.append((roster.losses.copy(), roster.uplink_bits_per_s.copy()))
        return super().select(roster, round_info, count, rng)

    def update(self, outcome):
        self.absorbed.append(outcome)


class Asking(Watching):
    needed = Needs(reports=frozenset({SIGMA, RHO}), label_counts=True)


def test_inverted_links_read_losses_that_the_method_neither_sees_nor_pays():
    strategy = Watching(context_of(network=NetworkConfig(link_coupling="inverted-loss")))
    proxies = [StubProxy(client, sends_its_update, loss=loss) for client, loss in enumerate((1.0, 2.0, 4.0))]
    [row], _ = run_round(strategy, proxies)
    [(losses, uplinks)] = strategy.shown
    assert np.isnan(losses).all()
    np.testing.assert_allclose(uplinks, [4e6, 3e6, 1e6])
    assert row["probe_bytes"] == 0
    # Nothing but two steps and 33 bytes of the slowest.
    step_s = strategy.roster.step_s
    assert row["round_s"] == pytest.approx(max(2 * step_s + 8 * 33 / np.array([4e6, 3e6, 1e6])))


def test_inverted_links_charge_a_method_that_probes():
    network = NetworkConfig(link_coupling="inverted-loss")
    strategy = HeteroSelect(context_of(HeteroSelectConfig(), network=network))
    proxies = [StubProxy(client, sends_its_update, loss=loss) for client, loss in enumerate((1.0, 2.0, 4.0))]
    [row], _ = run_round(strategy, proxies)
    assert row["probe_losses"] == [1.0, 2.0, 4.0]
    assert row["probe_bytes"] == 3 * (4 * SIZE + 8)
    assert [len(proxy.asked) for proxy in proxies] == [3, 3, 3]


def test_reports_and_label_counts_are_asked_for_charged_and_handed_on():
    def fit(client, ins):
        assert TrainInstruction.from_config(ins.config).reports == (RHO, SIGMA)
        return update_reply(update_of(client), client, 1, reports={SIGMA: client + 0.5, RHO: client + 0.25})

    counts = [np.array([client, 10], "<i8").tobytes() for client in range(3)]
    answers = [EnrolAnswer(client, 10, counts[client]) for client in range(3)]
    proxies = [StubProxy(answer.client, fit, properties=answer.to_config()) for answer in answers]
    strategy = Asking(context_of())
    [row], _ = run_round(strategy, proxies)
    assert proxies[0].asked[0][1].config == EnrolInstruction(label_counts=True).to_config()
    assert strategy.roster.label_counts.tolist() == [[0, 10], [1, 10], [2, 10]]
    [outcome] = strategy.absorbed
    assert outcome.reports[SIGMA].tolist() == [0.5, 1.5, 2.5]
    # Effective steps are the server's own: 50 steps with momentum 0.9 move as far as 410.46 without.
    assert outcome.reports[RHO].tolist() == pytest.approx([410.46] * 3, abs=0.01)
    # Two numbers of 8 bytes and the counts of two classes, each client.
    assert row["probe_bytes"] == 3 * 2 * 8 + 3 * 2 * 8


def test_the_method_absorbs_the_round_as_it_was():
    def fit(client, ins):
        return ValueError("gone") if client == 1 else sends_its_update(client, ins)

    strategy = Watching(context_of(rounds=2))
    _, [final] = run_rounds(strategy, manager_of(trio(fit)), 2)
    first, second = strategy.absorbed
    assert (first.round_info.number, second.round_info.number, first.round_info.total) == (1, 2, 2)
    np.testing.assert_array_equal(first.parameters, np.zeros(SIZE))
    # Of 10 and 30 examples: 1 / 4 and 3 * 3 / 4.
    np.testing.assert_allclose(first.aggregate, [0.25, 0.0, 2.25, 0.0])
    np.testing.assert_allclose(second.parameters, first.aggregate, rtol=1e-6)
    assert first.clients.tolist() == [0, 2]
    assert first.failed.tolist() == [1]
    assert first.updates == (update_of(0), update_of(2))
    np.testing.assert_allclose(final, 2.5 * first.aggregate, rtol=1e-6)


def test_clients_test_the_model_within_the_round_under_flowers_server_too():
    strategy = RandomSelection(context_of(client_eval=True))
    proxies = trio(accuracy=0.5)
    rows, _ = run_by_flower(strategy, manager_of(proxies), 1)
    again = [(proxy, EvaluateRes(OK, 0.25, 10, {"accuracy": 1.0})) for proxy in proxies] * 2
    with logged() as log:
        assert strategy.aggregate_evaluate(1, again, []) == (None, {})
    assert log() == ""
    assert [row["client_accuracy"] for row in rows] == [0.5]
    assert [len([kind for kind, _ in proxy.asked if kind == "evaluate"]) for proxy in proxies] == [1, 1, 1]
    assert strategy.context.recorder.finished == 1


def test_a_client_that_replies_twice_is_named_with_the_round_and_its_first_reply_counts():
    strategy, manager = RandomSelection(context_of(rounds=2)), manager_of(trio())
    run_by_flower(strategy, manager, 1)
    instructed = strategy.configure_fit(2, None, manager)
    results = [(proxy, proxy.fit(ins, None, None)) for proxy, ins in instructed]
    twice = (instructed[1][0], results[2][1])
    with logged() as log:
        strategy.aggregate_fit(2, [*results, twice], [])
    assert log() == "Round 2: client 1 replied again; only its first reply counts.\n"
    assert strategy.context.recorder.rows[1]["aggregated"] == [0, 1, 2]


def test_compressor_none_sends_everything_in_every_round():
    context = context_of(rounds=2)
    strategy = RandomSelection(replace(context, compression=replace(context.compression, compressor="none")))
    rows, _ = run_rounds(strategy, manager_of(trio()), 2)
    assert [row["kept_fractions"] for row in rows] == [[1.0] * 3] * 2


def test_calibration_is_charged_apart_and_kept_out_of_the_weights():
    buffers = np.array([0.0, 1.0], np.float32)

    def fit(client, ins):
        if isinstance(read_instruction(ins.config, "train"), TrainInstruction):
            return sends_its_update(client, ins)
        return fit_reply(ndarrays_to_parameters([np.full(2, client, np.float32)]), examples=10 * (client + 1))

    strategy = RandomSelection(context_of(buffers=buffers))
    [row], [parameters, statistics] = run_round(strategy, trio(fit))
    np.testing.assert_allclose(parameters, [1 / 6, 4 / 6, 9 / 6, 0.0], rtol=1e-6)
    # (10 * 0 + 20 * 1 + 30 * 2) / 60
    np.testing.assert_allclose(statistics, 8 / 6, rtol=1e-6)
    whole = 4 * (parameters.size + buffers.size)
    assert row["downlink_bytes"] == 3 * whole
    assert row["calibration_bytes"] == 3 * (whole + 8)
    assert row["probe_bytes"] == 0


def test_the_server_evaluates_every_so_many_rounds_and_in_the_last():
    strategy = RandomSelection(context_of(rounds=5, eval_every=2))
    rows, _ = run_rounds(strategy, manager_of(trio()), 5)
    assert ["accuracy" in row for row in rows] == [False, True, False, True, True]


def noisy(client, ins):
    """Values whose float sum depends on the order."""
    rng = np.random.default_rng([client, round_of(ins)])
    values = rng.normal(size=SIZE) * 10.0 ** rng.integers(-8, 8, SIZE)
    return update_reply(dense(values.tolist()), client, round_of(ins), loss=float(rng.random()))


@pytest.mark.parametrize(
    "make",
    [
        lambda: RandomSelection(context_of(cohort=2, clients=5, rounds=3)),
        lambda: HeteroSelect(context_of(HeteroSelectConfig(), cohort=2, clients=5, rounds=3)),
    ],
    ids=["random", "hetero-select"],
)
def test_cids_and_the_order_of_connecting_mean_nothing(make):
    found = []
    for cids, order in (("01234", range(5)), ("43210", range(5)), ("vwxyz", [3, 0, 4, 1, 2])):
        proxies = [StubProxy(client, noisy, cid=cids[client], loss=float(client)) for client in order]
        rows, arrays = run_rounds(make(), manager_of(proxies), 3)
        found.append((json.dumps(without_wall(rows)), bits(arrays)))
    assert found[0] == found[1] == found[2]


def test_results_in_any_order_give_the_same_bits():
    found = set()
    for order in permutations(range(4)):
        strategy = RandomSelection(context_of(clients=4, cohort=4))
        manager = manager_of([StubProxy(client, noisy) for client in range(4)])
        model = strategy.initialize_parameters(manager)
        instructed = strategy.configure_fit(1, model, manager)
        results = [(proxy, proxy.fit(ins, None, None)) for proxy, ins in instructed]
        parameters, _ = strategy.aggregate_fit(1, [results[place] for place in order], [])
        assert strategy.evaluate(1, parameters) == (0.0, {"accuracy": 0.0})
        found.add(parameters.tensors[0])
    assert len(found) == 1
