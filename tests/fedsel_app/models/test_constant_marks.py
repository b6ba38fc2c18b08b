"""Marks of constants by hand: norms, blocks of a large tensor, numbers that are none, and what counts as the same."""

import numpy as np
import pytest

from fedsel_app.models.constant_marks import MARKED_ENTRIES, differing, marks_of


@pytest.mark.parametrize(
    ("values", "norm"),
    [([3, 4], 5), ([np.nan, 4], 5), ([np.inf, 12], 13), ([-np.inf, 24], 25), ([1] * (MARKED_ENTRIES + 3), 65539**0.5)],
    ids=["numbers", "NaN", "inf", "-inf", "two blocks"],
)
def test_the_first_mark_is_the_norm(values, norm):
    assert marks_of(np.array(values))[0] == pytest.approx(norm)


def test_projections_add_up_over_blocks():
    """The directions of every block are the same: moving one entry by a block changes no mark, by one place it does."""
    first, moved, beside = np.zeros((3, 2 * MARKED_ENTRIES + 1))
    first[5] = moved[MARKED_ENTRIES + 5] = beside[6] = 2.0
    np.testing.assert_array_equal(marks_of(moved), marks_of(first))
    assert np.all(marks_of(first)[1:] != marks_of(beside)[1:])


@pytest.mark.parametrize(
    ("others", "named"),
    [
        ([10, 0, 0, 1, 2, 3], []),
        ([10, 0.009, -0.009, 1, 2, 3], []),
        ([10, 0, -0.011, 1, 2, 3], ["a"]),
        ([10, 0, 0, 1, 2, 3.0011], ["b"]),
        ([10, 0.011, 0, 1, 2.0011, 3], ["a", "b"]),
        ([10, 0, 0], ["a", "b"]),
    ],
)
def test_tensors_differ_by_more_than_a_thousandth_of_their_norm(others, named):
    assert differing(["a", "b"], np.array([10.0, 0, 0, 1, 2, 3]), np.array(others, float)) == named
