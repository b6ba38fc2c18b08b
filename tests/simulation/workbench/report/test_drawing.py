"""Curves of a report's figures."""

import numpy as np
import pytest
from matplotlib.figure import Figure

from simulation.workbench.report.drawing import draw_band

CURVES = [(np.array([1.0, 2.0, 4.0]), np.array([0.0, 2.0, 4.0])), (np.array([1.0, 3.0]), np.array([1.0, 5.0]))]


@pytest.mark.parametrize("curves", [1, 2])
def test_a_curve_is_the_mean_with_a_band(curves):
    """At rounds 1 to 4 the seeds are at 0, 2, 2, 4 and 1, 1, 5, 5."""
    panel = Figure().subplots()
    draw_band(panel, CURVES[:curves], 0, "oort")
    [mean] = panel.lines
    assert mean.get_label() == "oort"
    if curves == 1:
        assert mean.get_xydata().tolist() == [[1, 0], [2, 2], [4, 4]]
        assert not panel.collections
        return
    assert mean.get_xydata().tolist() == [[1, 0.5], [2, 1.5], [3, 3.5], [4, 4.5]]
    [band] = panel.collections
    assert tuple(band.get_paths()[0].get_extents().intervaly) == (0, 5)


def test_a_curve_begins_where_all_seeds_have_values():
    panel = Figure().subplots()
    draw_band(panel, [CURVES[0], (np.array([2.0]), np.array([6.0]))], 0, "oort")
    assert panel.lines[0].get_xydata().tolist() == [[2, 4], [4, 5]]
