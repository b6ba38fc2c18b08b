import pytest

from fedsel_app.config import TrainingConfig


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
