"""Settings: types, bounds, choices, sentences of refusal, and the groups that all methods share."""

from dataclasses import fields

import numpy as np
import pytest

from fedsel_app.config import GROUPS, ResidualConfig, TrainingConfig
from fedsel_app.data.batches import chunks
from strategies import STRATEGIES

EVERY_GROUP = [*GROUPS.values(), *(method.Config for method in STRATEGIES.values())]


def test_the_learning_rate_halves_over_the_run_and_stays_there():
    config = TrainingConfig(lr=0.05, lr_decay=0.5)
    rates = [config.learning_rate(server_round, rounds=10) for server_round in (0, 1, 5, 10, 20)]
    assert rates == pytest.approx([0.05, 0.0475, 0.0375, 0.025, 0.025])


def test_the_learning_rate_can_fall_in_steps():
    config = TrainingConfig(lr=0.08, lr_decay=0.0, lr_step_rounds=10)
    rates = [config.learning_rate(server_round, rounds=30) for server_round in (1, 10, 11, 20, 21, 30)]
    assert rates == [0.08, 0.08, 0.04, 0.04, 0.02, 0.02]


@pytest.mark.parametrize(
    ("steps", "momentum", "expected"),
    [(7, 0.0, 7.0), (1, 0.9, 1.0), (2, 0.9, 2.9), (5, 0.9, 13.1441), (3, 0.5, 1 + 1.5 + 1.75)],
)
def test_effective_steps_by_hand(steps, momentum, expected):
    assert TrainingConfig(momentum=momentum).effective_steps(steps) == pytest.approx(expected, rel=1e-6)


def test_effective_steps_of_very_many_steps_are_finite():
    assert TrainingConfig(momentum=0.9).effective_steps(10**9) == pytest.approx(10 * (10**9 - 9))


def test_local_steps_follow_from_the_settings_and_the_examples():
    assert TrainingConfig(local_steps=7).steps(10**9) == 7
    in_epochs = TrainingConfig(local_steps=0, local_epochs=2, batch_size=32)
    assert [in_epochs.steps(examples) for examples in (1, 32, 33)] == [2, 2, 4]
    assert TrainingConfig(local_steps=7, batch_size=32).steps(33, epochs=3) == 6


def test_a_last_mini_batch_of_too_few_examples_joins_the_one_before():
    """As `chunks` cuts them."""
    config = TrainingConfig(local_steps=0, local_epochs=1, batch_size=32)
    assert [config.passes(examples, 2) for examples in (1, 32, 33, 34, 65, 66)] == [1, 1, 1, 2, 2, 3]
    for examples in range(1, 200):
        assert config.passes(examples, 2) == len(chunks(np.arange(examples), 32, 2))


def test_the_residual_decays_faster_the_more_is_sent():
    assert [ResidualConfig().beta(fraction) for fraction in (0.0, 0.5, 1.0)] == pytest.approx([0.97, 0.91, 0.85])
    assert ResidualConfig(residual_decay="static").beta(0.5) == 0.9


@pytest.mark.parametrize("group", EVERY_GROUP, ids=lambda group: group.__name__)
def test_every_setting_has_a_meaning_and_a_default_of_its_type(group):
    for item in fields(group):
        assert type(item.default) is item.type, item.name
        assert item.metadata["meaning"].strip(), item.name
        assert item.metadata["meaning"][-1] not in ".\n", item.name
    assert group().values() == group.defaults()
