"""Search spaces: default ranges of settings, given ranges, and ranges that are refused."""

import pytest

from fedsel_app.config import ConfigError
from simulation.workbench.tuning.space import Range, parse_space
from strategies import STRATEGIES

METHODS = [STRATEGIES["oort"], STRATEGIES["random"]]


@pytest.mark.parametrize(
    ("text", "expected", "shown"),
    [
        ("lr", Range(low=0.005, high=0.5), "0.005 to 0.5, on a log scale"),
        ("kept-fraction", Range(low=0.02, high=1.0), "0.02 to 1, on a log scale"),
        ("lr-decay", Range(low=0.0, high=1.0), "0 to 1"),
        ("local-steps", Range(low=5, high=500, whole=True), "5 to 500, on a log scale"),
        ("value-bits=4|8", Range(choices=(4, 8)), "one of 4, 8"),
        ("error-feedback", Range(choices=(False, True)), "one of False, True"),
        ("optimizer", Range(choices=("sgd", "adam", "adamw")), "one of sgd, adam, adamw"),
        ("momentum=0.5..0.99", Range(low=0.5, high=0.99), "0.5 to 0.99"),
        ("cohort=2..8", Range(low=2, high=8, whole=True), "2 to 8"),
    ],
)
def test_ranges(text, expected, shown):
    """A tenth of the default to ten times the default within the bounds, a whole closed interval, or all choices."""
    ((key, found),) = parse_space(text, METHODS).items()
    assert key == text.partition("=")[0]
    assert (found.choices, found.whole, str(found)) == (expected.choices, expected.whole, shown)
    assert (found.low, found.high) == pytest.approx((expected.low, expected.high))
    assert all(found.holds(end) for end in found.ends)
    assert not found.holds(-1.0)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("lerning", "There is no setting 'lerning'"),
        ("weight-decay", "'weight-decay' has no default range; give it a range in --over: weight-decay=LOW..HIGH"),
        ("momentum", "'momentum' has no default range"),
        ("lr,alpha", "'alpha' defines the task, which is the same for all"),
        ("rounds=5..50", "'rounds' defines the task"),
        ("lr=0.5", "A range in --over is lr=LOW..HIGH, or lr=A.B. Got lr=0.5."),
        ("lr=0.5..0.1", "A range in --over is"),
        ("lr=0..inf", "A range in --over is"),
        ("optimizer=1..2", "A range in --over is"),
    ],
)
def test_what_is_no_range_is_refused_by_name(text, sentence):
    with pytest.raises(ConfigError, match=sentence):
        parse_space(text, METHODS)
