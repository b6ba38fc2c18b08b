"""Traps (tests/strategies/test_traps.py) that only whole runs of real clients show."""

import random

import numpy as np
import pytest

from fedsel_app.messages.answers import TrainAnswer
from fedsel_app.messages.scalars import Report
from tests.support.in_process import run_in_process

SMALL = {"clients": 4, "cohort": 2, "local_steps": 3, "device": "cpu"}


def test_a_clients_initial_loss_is_that_of_the_model_it_was_sent(tmp_path):
    """Everybody was probed with the model of round 1 just before; training lowers the loss."""
    answers = {}

    def note(client, message, reply):
        answers[client] = TrainAnswer.from_metrics(reply.metrics, [Report.INITIAL_LOSS])
        return reply

    method, _ = run_in_process(tmp_path / "run", on_fit=note, strategy="active-fl", rounds=1, **SMALL)
    assert len(answers) == 2
    for client, answer in answers.items():
        assert answer.reports[Report.INITIAL_LOSS] == pytest.approx(method.roster.losses[client], rel=1e-6)
        assert answer.loss < 0.99 * answer.reports[Report.INITIAL_LOSS]


def test_a_run_leaves_the_global_generators_alone(tmp_path):
    # Saying what the state is changes nothing.
    before, plain = np.random.get_state(), random.getstate()  # noqa: NPY002
    run_in_process(tmp_path / "run", rounds=2, **SMALL)
    after = np.random.get_state()  # noqa: NPY002
    assert random.getstate() == plain
    assert before[0] == after[0]
    assert before[1].tobytes() == after[1].tobytes()
    assert before[2:] == after[2:]
