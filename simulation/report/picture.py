"""Picture: a matplotlib figure that a notebook shows without pyplot and its backends."""

import io

from matplotlib.figure import Figure

DOTS = 100
"""Dots an inch in a notebook."""


class Picture(Figure):
    """Figure that is shown as the result of a notebook's cell."""

    def _repr_png_(self) -> bytes:
        """The PNG that IPython asks for."""
        drawn = io.BytesIO()
        self.savefig(drawn, format="png", dpi=DOTS)
        return drawn.getvalue()
