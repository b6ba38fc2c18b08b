"""Probing: the examples of a loss probe, and the time that it is charged with."""

from dataclasses import replace

import numpy as np
import pytest

from fedsel_app.config import ConfigError, NetworkConfig
from fedsel_app.messages.answers import EnrolAnswer
from fedsel_app.messages.instructions import ProbeInstruction
from fedsel_app.network.links import MeasuredLinks
from strategies.methods.fed_cbs import FedCBS, FedCBSConfig
from strategies.methods.hetero_select import HeteroSelect, HeteroSelectConfig
from strategies.methods.power_of_choice import PowerOfChoice, PowerOfChoiceConfig
from strategies.round.federation import NodeError
from tests.support.contexts import context_of
from tests.support.rounds import run_round, run_rounds
from tests.support.stubs import StubClient, StubFederation


@pytest.mark.parametrize(("loss", "forward"), [("train", 4), ("test", 1)])
def test_a_probe_of_the_test_parts_says_so_and_takes_their_time(loss, forward):
    """40 training examples and, at a fifth held out, 10 test examples: 4 or 1 passes of 10, each a third of a step."""
    config = PowerOfChoiceConfig(loss=loss, candidates=3)
    context = context_of(config, cohort=1, holdout_fraction=0.2, batch_size=10, max_update_norm=0.0)
    strategy = PowerOfChoice(context)
    stubs = [StubClient(client, loss=client + 1.0, examples=40) for client in range(3)]
    [row], _ = run_round(strategy, stubs)
    assert row["selected"] == [2]
    for stub in stubs:
        assert stub.told("evaluate") == [ProbeInstruction(1, 0, test_part=loss == "test")]
    uplinks, step_s = context.links.observe(1, np.full(3, np.nan))
    trained_s = 2 * step_s[2] + 8 * row["uplink_bytes"] / uplinks[2]
    assert row["round_s"] == pytest.approx(max(step_s) * forward / 3 + trained_s)


@pytest.mark.parametrize(("bits", "levels"), [(8, [127, -64, 0, 1]), (4, [0x47, 0x00])])
def test_a_probe_sends_the_model_in_few_bits(bits, levels):
    """The norm 4 and the nearest levels of 4 values: of 127 in a byte each, or of 7 in half a byte each."""
    strategy = HeteroSelect(context_of(HeteroSelectConfig(), probe_bits=bits))
    strategy.run.model.parameters[:] = [4.0, -2.0 if bits == 8 else 2.0, 0.0, 0.03]
    stubs = [StubClient(client) for client in range(3)]
    [row], _ = run_round(strategy, stubs)
    for stub in stubs:
        [message] = stub.messages("evaluate")
        [sent] = message.model.arrays
        assert sent.tobytes() == np.array(4.0, "<f4").tobytes() + bytes(level % 256 for level in levels)
    assert row["probe_bytes"] == 3 * (4 + len(levels) + 8)


@pytest.mark.parametrize("sent", [(), (1,), (0, 1, 2)])
def test_a_start_needs_the_label_counts_of_at_least_one_client(sent):
    counts = np.array([4, 6], "<i8").tobytes()
    answers = [EnrolAnswer(k, 10, counts if k in sent else b"") for k in range(3)]
    stubs = [StubClient(answer.client, properties=answer.to_config()) for answer in answers]
    strategy = FedCBS(context_of(FedCBSConfig(), classes=2))
    if not sent:
        with pytest.raises(ConfigError, match="Client 0 did not send the examples of each of 2 classes"):
            run_round(strategy, stubs)
        return
    [row], _ = run_round(strategy, stubs)
    assert row["selected"] == [0, 1, 2]
    assert strategy.roster.label_counts.tolist() == [[4, 6] if k in sent else [0, 0] for k in range(3)]
    assert row["probe_bytes"] == 3 * 2 * 8


class Posted(StubFederation):
    """Stub clients whose answers to a sent message are fetched later."""

    def send(self, messages):
        self._sent = {**getattr(self, "_sent", {}), **{message.node: message for message in messages}}

    def receive(self):
        sent, self._sent = self._sent, {}
        return self.ask(list(sent.values()))


def test_a_server_that_does_not_wait_leaves_a_silent_client_in_peace():
    """It is asked in rounds 1, 3, 6 and 11: it rests for 1, 2, 4 and 8 rounds. Once it answers, in each round again."""
    settings = {"waiting": "buffered", "server_optimizer": "mean", "weighting": "uniform"}
    context = context_of(HeteroSelectConfig(), cohort=1, rounds=22, **settings)
    strategy = HeteroSelect(replace(context, links=MeasuredLinks(NetworkConfig(), 3)))
    stubs = [StubClient(client, loss=client + 1.0) for client in range(3)]

    def before(number):
        stubs[2]._loss = NodeError("2", "no answer") if number < 20 else 3.0

    run_rounds(strategy, Posted(stubs), 22, before)
    assert [instruction.server_round for instruction in stubs[2].told("evaluate")] == [1, 3, 6, 11, 20, 21, 22]
