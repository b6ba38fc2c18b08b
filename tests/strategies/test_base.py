"""The round by hand: `run_round` over stub clients."""

import re
from dataclasses import replace

import numpy as np
import pytest

from fedsel_app.config import NetworkConfig, TrainingConfig
from fedsel_app.messages.answers import EnrolAnswer
from fedsel_app.messages.instructions import EnrolInstruction, ProbeInstruction, TrainInstruction
from fedsel_app.messages.scalars import Report
from strategies.methods.hetero_select import HeteroSelect, HeteroSelectConfig
from strategies.methods.random_selection import RandomSelection
from strategies.roster import Needs
from tests.support.contexts import SIZE, context_of
from tests.support.logs import logged
from tests.support.rounds import run_round, run_rounds
from tests.support.stubs import StubClient, as_sent, sends_its_update, train_reply, trio, update_of, update_reply

SIGMA, RHO = Report.GRADIENT_DEVIATION, Report.EFFECTIVE_STEPS


def test_a_round_by_hand():
    strategy = RandomSelection(context_of())
    [row], [parameters] = run_rounds(strategy, trio(), 1)
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
    # The header and checksum take 28 bytes, the indices one, a value 4.
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


def test_momentum_over_two_rounds_and_the_rosters_books():
    strategy = RandomSelection(context_of(rounds=2))
    _, [parameters] = run_rounds(strategy, trio(), 2)
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
    clients = trio()
    run_rounds(strategy, clients, 4)
    told = [message.instruction for client in clients for message in client.messages("train")]
    assert len(told) == 2 * 4
    first = [instruction for instruction in told if instruction.server_round == 1]
    assert len(first) == 2
    keys = {instruction.run_key for instruction in first}
    assert len(keys) == 2
    assert strategy.run.instructions.key not in keys
    for instruction in first:
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
    for instruction in told:
        if instruction.server_round == 4:
            assert instruction.curvature
            assert instruction.learning_rate == pytest.approx(0.05)
            # theta = 0.12 in the last round; beta = 0.85 + 0.12 * 0.88.
            assert instruction.residual_decay == pytest.approx(0.9556)


def test_hetero_select_probes_everybody_and_weighs_by_score():
    strategy = HeteroSelect(context_of(HeteroSelectConfig(), clients=4, cohort=4, probe_batches=3))
    stubs = [StubClient(client, loss=loss) for client, loss in enumerate((2.0, 1.0, 5.0, 4.0))]
    [row], [parameters] = run_round(strategy, stubs)
    # Only the loss tells them apart: (2 - 1) / 4, 0, 1 and 3 / 4, of 2 in all.
    assert row["scores"] == pytest.approx([0.25, 0.0, 1.0, 0.75])
    assert row["weights"] == pytest.approx([0.125, 0.0, 0.5, 0.375])
    assert row["components"]["loss"] == pytest.approx([0.25, 0.0, 1.0, 0.75])
    assert set(row["components"]) == {"loss", "diversity", "fairness", "staleness"}
    assert row["probe_losses"] == [2.0, 1.0, 5.0, 4.0]
    np.testing.assert_allclose(parameters, [0.125, 0.0, 1.5, 1.5], rtol=1e-6)
    # The model down and a loss of 8 bytes up, each.
    assert row["probe_bytes"] == 4 * (4 * SIZE + 8)
    assert stubs[0].told("evaluate") == [ProbeInstruction(1, 3)]
    # Three forward passes are one step; then two steps and 33 bytes.
    uplinks, step_s = strategy.context.links.observe(1, np.full(4, np.nan))
    assert row["round_s"] == pytest.approx(max(step_s) + max(2 * step_s + 8 * 33 / uplinks))


def test_a_client_that_fails_its_probe_sits_the_round_out():
    strategy = HeteroSelect(context_of(HeteroSelectConfig(), rounds=2))
    stubs = [StubClient(0), StubClient(1, loss=ValueError("out of memory"))]
    rows, _ = run_rounds(strategy, [*stubs, StubClient(2)], 2)
    assert [row["selected"] for row in rows] == [[0, 2], [0, 2]]
    assert stubs[1].kinds == ["query", "evaluate", "evaluate"]
    assert rows[0]["failures"] == [{"client": 1, "reason": "loss probe: out of memory"}]
    # It was sent the model all the same.
    assert rows[0]["probe_bytes"] == 3 * (4 * SIZE + 8)


def test_a_round_in_which_every_probe_fails_says_so():
    strategy = HeteroSelect(context_of(HeteroSelectConfig(), rounds=2))
    stubs = [StubClient(client, loss=ValueError("out of memory")) for client in range(3)]
    with logged() as log:
        [row], _ = run_rounds(strategy, stubs, 1)
    assert "every client failed its loss probe; the model does not change" in log()
    assert row["selected"] == []
    assert [failure["client"] for failure in row["failures"]] == [0, 1, 2]


class Watching(RandomSelection):
    """Random selection that remembers the outcomes of its rounds."""

    needed = Needs()

    def __init__(self, context):
        super().__init__(context)
        self.absorbed = []

    @classmethod
    def needs(cls, config):
        return cls.needed

    def update(self, outcome):
        self.absorbed.append(outcome)


class Asking(Watching):
    needed = Needs(reports=frozenset({SIGMA, RHO}), label_counts=True)


def test_inverted_links_read_losses_that_the_method_neither_sees_nor_pays():
    strategy = RandomSelection(context_of(network=NetworkConfig(link_coupling="inverted-loss")))
    stubs = [StubClient(client, loss=loss) for client, loss in enumerate((1.0, 2.0, 4.0))]
    [row], _ = run_round(strategy, stubs)
    roster = strategy.run.roster
    assert np.isnan(roster.losses).all()
    np.testing.assert_allclose(roster.uplink_bits_per_s, [4e6, 3e6, 1e6])
    assert row["probe_bytes"] == 0
    # Nothing but two steps and 33 bytes of the slowest.
    assert row["round_s"] == pytest.approx(max(2 * roster.step_s + 8 * 33 / np.array([4e6, 3e6, 1e6])))


def test_reports_and_label_counts_are_asked_for_charged_and_handed_on():
    def fit(client, message):
        assert message.instruction.reports == (RHO, SIGMA)
        return update_reply(update_of(client), client, 1, reports={SIGMA: client + 0.5, RHO: client + 0.25})

    counts = [np.array([client, 10], "<i8").tobytes() for client in range(3)]
    answers = [EnrolAnswer(client, 10, counts[client]) for client in range(3)]
    stubs = [StubClient(answer.client, fit, properties=answer.to_config()) for answer in answers]
    strategy = Asking(context_of())
    [row], _ = run_round(strategy, stubs)
    assert stubs[0].told("query") == [EnrolInstruction(label_counts=True)]
    assert strategy.roster.label_counts.tolist() == [[0, 10], [1, 10], [2, 10]]
    [outcome] = strategy.absorbed
    assert outcome.reports[SIGMA].tolist() == [0.5, 1.5, 2.5]
    # Effective steps are the server's own: 50 steps with momentum 0.9 move as far as 410.46 without.
    assert outcome.reports[RHO].tolist() == pytest.approx([410.46] * 3, abs=0.01)
    # Two numbers of 8 bytes and the counts of two classes, each client.
    assert row["probe_bytes"] == 3 * 2 * 8 + 3 * 2 * 8


def test_the_method_absorbs_the_round_as_it_was():
    def fit(client, message):
        return ValueError("gone") if client == 1 else sends_its_update(client, message)

    strategy = Watching(context_of(rounds=2))
    _, [final] = run_rounds(strategy, trio(fit), 2)
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


def test_calibration_is_charged_apart_and_kept_out_of_the_weights():
    buffers = np.array([0.0, 1.0], np.float32)

    def fit(client, message):
        if isinstance(message.instruction, TrainInstruction):
            return sends_its_update(client, message)
        return train_reply(as_sent(np.full(2, client, np.float32)), examples=10 * (client + 1))

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
    rows, _ = run_rounds(strategy, trio(), 5)
    assert ["accuracy" in row for row in rows] == [False, True, False, True, True]
