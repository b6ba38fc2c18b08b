"""Search spaces: default ranges of settings, given ranges, and ranges that are refused."""

import pytest

from fedsel_app.config import ConfigError

pytest.importorskip("optuna", reason="the extra 'tune' is not installed")

from simulation.workbench.tuning.space import ends, holds, parse_space, range_text
from strategies import STRATEGIES

METHODS = [STRATEGIES["oort"], STRATEGIES["random"]]


@pytest.mark.parametrize(
    ("text", "kind", "expected", "shown"),
    [
        ("lr", "float", (0.005, 0.5), "0.005 to 0.5, on a log scale"),
        ("kept-fraction", "float", (0.02, 1.0), "0.02 to 1, on a log scale"),
        ("lr-decay", "float", (0.0, 1.0), "0 to 1"),
        ("local-steps", "int", (5, 500), "5 to 500, on a log scale"),
        ("value-bits=4|8", "categorical", (4, 8), "one of 4, 8"),
        ("error-feedback", "categorical", (False, True), "one of False, True"),
        ("optimizer", "categorical", ("sgd", "adam", "adamw"), "one of sgd, adam, adamw"),
        ("momentum=0.5..0.99", "float", (0.5, 0.99), "0.5 to 0.99"),
        ("cohort=2..8", "int", (2, 8), "2 to 8"),
    ],
)
def test_ranges(text, kind, expected, shown):
    """A tenth of the default to ten times the default within the bounds, a whole closed interval, or all choices."""
    ((key, found),) = parse_space(text, METHODS).items()
    assert key == text.partition("=")[0]
    assert (type(found).__name__, range_text(found)) == (f"{kind.title()}Distribution", shown)
    assert ends(found) == (expected if kind == "categorical" else pytest.approx(expected))
    assert all(holds(found, end) for end in ends(found))
    assert not holds(found, -1.0)


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
