"""Pictures: blank ones, for tests that do not check pictures."""

from typing import Any

import pytest
from matplotlib.figure import Figure
from PIL import Image


def draw_blank_pictures(monkeypatch: pytest.MonkeyPatch) -> None:
    """Save every figure as one white point."""

    def save(figure: Figure, file: Any, **options: object) -> None:
        Image.new("L", (1, 1)).save(file, format="png")

    monkeypatch.setattr(Figure, "savefig", save)
