"""Search spaces: given ranges, their values, and ranges that are refused."""

import pytest

from fedsel_app.config import ConfigError
from simulation.workbench.tuning.space import parse_space
from strategies import STRATEGIES

METHODS = [STRATEGIES["oort"], STRATEGIES["random"]]


@pytest.mark.parametrize(
    ("text", "shown", "values"),
    [
        ("value-bits=4|8", "one of 4, 8", [4, 8, 8]),
        ("optimizer=sgd|adam|adamw", "one of sgd, adam, adamw", ["sgd", "adam", "adamw"]),
        ("momentum=0.5..0.9", "0.5 to 0.9", [0.5, 0.7, 0.9]),
        ("lr=0.01..1", "0.01 to 1, on a log scale", [0.01, 0.1, 1.0]),
        ("cohort=2..8", "2 to 8", [2, 5, 8]),
        ("local-steps=1..99", "1 to 99, on a log scale", [1, 10, 99]),
    ],
)
def test_a_range_has_its_values(text, shown, values):
    """At the places 0, 1/2 and nearly 1."""
    ((key, found),) = parse_space(text, METHODS).items()
    assert (key, str(found)) == (text.partition("=")[0], shown)
    assert [found.at(place) for place in (0.0, 0.5, 1.0 - 1e-12)] == pytest.approx(values)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("lerning=0..1", "There is no setting 'lerning'"),
        ("lr", r"--over takes lr=LOW..HIGH, or lr=A.B. Got lr\."),
        ("rounds=5..50", "'rounds' defines the task, which is the same for all"),
        ("lr=0.5", "--over takes lr=LOW..HIGH, or lr=A.B. Got lr=0.5."),
        ("lr=0.5..0.1", "--over takes"),
        ("lr=0..inf", "--over takes"),
        ("optimizer=1..2", "--over takes"),
    ],
)
def test_what_is_no_range_is_refused_by_name(text, sentence):
    with pytest.raises(ConfigError, match=sentence):
        parse_space(text, METHODS)
