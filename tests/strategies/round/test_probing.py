"""Probing: the examples of a loss probe, and the time that it is charged with."""

import numpy as np
import pytest

from fedsel_app.messages.instructions import ProbeInstruction
from strategies.methods.power_of_choice import PowerOfChoice, PowerOfChoiceConfig
from tests.support.contexts import context_of
from tests.support.proxies import StubProxy, sends_its_update
from tests.support.rounds import run_round


@pytest.mark.parametrize(("loss", "forward"), [("train", 4), ("test", 1)])
def test_a_probe_of_the_test_parts_says_so_and_takes_their_time(loss, forward):
    """40 training examples and, at a fifth held out, 10 test examples: 4 or 1 passes of 10, each a third of a step."""
    config = PowerOfChoiceConfig(loss=loss, candidates=3)
    context = context_of(config, cohort=1, holdout_fraction=0.2, batch_size=10)
    strategy = PowerOfChoice(context)
    proxies = [StubProxy(client, sends_its_update, loss=client + 1.0, examples=40) for client in range(3)]
    [row], _ = run_round(strategy, proxies)
    assert row["selected"] == [2]
    for proxy in proxies:
        [ins] = [ins for kind, ins in proxy.asked if kind == "evaluate"]
        assert ProbeInstruction.from_config(ins.config) == ProbeInstruction(1, 0, test_part=loss == "test")
    uplinks, step_s = context.links.observe(1, np.full(3, np.nan))
    trained_s = 2 * step_s[2] + 8 * row["uplink_bytes"] / uplinks[2]
    assert row["round_s"] == pytest.approx(max(step_s) * forward / 3 + trained_s)
