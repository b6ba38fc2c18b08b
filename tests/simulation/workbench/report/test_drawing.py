"""Panels and curves of a report's figures."""

import numpy as np
import pytest

from simulation.workbench.report.drawing import Style

CURVES = [(np.array([1.0, 2.0, 4.0]), np.array([0.0, 2.0, 4.0])), (np.array([1.0, 3.0]), np.array([1.0, 5.0]))]


@pytest.mark.parametrize(
    ("per_seed", "curves", "lines", "bands"), [(False, 1, 1, 0), (False, 2, 1, 1), (True, 1, 1, 0), (True, 2, 3, 0)]
)
def test_a_curve_is_the_mean_with_a_band_or_each_seed(per_seed, curves, lines, bands):
    """At rounds 1 to 4 the seeds are at 0, 2, 2, 4 and 1, 1, 5, 5."""
    style = Style(per_seed=per_seed)
    _, [panel] = style.grid(1, 3.0)
    style.band(panel, CURVES[:curves], 0, "oort")
    assert (len(panel.lines), len(panel.collections)) == (lines, bands)
    mean = panel.lines[0]
    assert mean.get_label() == "oort"
    seeds = [[0, 2, 2, 4], [1, 1, 5, 5]]
    if curves == 1:
        assert mean.get_xydata().tolist() == [[1, 0], [2, 2], [4, 4]]
        return
    assert mean.get_xydata().tolist() == [[1, 0.5], [2, 1.5], [3, 3.5], [4, 4.5]]
    assert [line.get_ydata().tolist() for line in panel.lines[1:]] == (seeds if per_seed else [])
    if bands:
        low, high = panel.collections[0].get_paths()[0].get_extents().intervaly
        assert (low, high) == (0, 5)


def test_a_curve_begins_where_all_seeds_have_values():
    style = Style()
    _, [panel] = style.grid(1, 3.0)
    style.band(panel, [CURVES[0], (np.array([2.0]), np.array([6.0]))], 0, "oort")
    assert panel.lines[0].get_xydata().tolist() == [[2, 4], [4, 5]]
