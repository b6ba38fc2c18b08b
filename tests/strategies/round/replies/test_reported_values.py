import numpy as np
import pytest

from strategies.round.replies.values import LastReported

EVERYBODY, NAN = np.arange(4), float("nan")


def test_a_claim_is_bounded_by_the_median_of_what_all_said_last():
    values = LastReported(4, ["loss"], 2.0)
    assert values.bounded("loss", EVERYBODY, np.array([1.0, 2.0, 3.0, 90.0])).tolist() == [1.0, 2.0, 3.0, 4.0]
    # The cohort's own median would be 80; that of 1, 2, 80 and 90 is 2.
    assert values.bounded("loss", np.array([2, 3]), np.array([80.0, 90.0])).tolist() == [4.0, 4.0]
    np.testing.assert_array_equal(values.bounded("loss", EVERYBODY, np.array([NAN, NAN, 3.0, NAN])), [NAN, NAN, 3, NAN])


def test_values_go_on_from_their_state():
    values, again = LastReported(4, ["loss"], 2.0), LastReported(4, ["loss"], 2.0)
    values.bounded("loss", EVERYBODY, np.array([1.0, 2.0, 3.0, 90.0]))
    again.load_state(values.state())
    assert again.bounded("loss", np.array([3]), np.array([90.0])).tolist() == [4.0]
    with pytest.raises(ValueError, match="values of"):
        LastReported(3, ["loss"], 2.0).load_state(values.state())
    with pytest.raises(KeyError):
        LastReported(4, ["other"], 2.0).load_state(values.state())


def test_without_a_bound_nothing_is_kept():
    values = LastReported(4, ["loss"], 0.0)
    assert values.bounded("loss", EVERYBODY, np.array([1.0, 2.0, 3.0, 1e30])).tolist() == [1.0, 2.0, 3.0, 1e30]
    assert values.state() == {}
