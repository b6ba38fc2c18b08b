"""Files of a report's figures for publications: as vectors, or as a picture, the same bytes for the same runs."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib

from fedsel_app.config import ConfigError
from fedsel_app.records.fedsel_folder import make_fedsel_folder
from fedsel_app.records.files import whole_file
from simulation.report.drawing import Plot

FOLDER = "report-figures"
FORMATS: dict[str, dict[str, Any]] = {
    "svg": {"metadata": {"Date": None}},
    "pdf": {"metadata": {"CreationDate": None}},
    "png": {"dpi": 300},
}
"""Format -> options of its files; without a date."""


def parse_formats(text: str) -> list[str]:
    """Formats with commas between them; ConfigError for an unknown one."""
    formats = [name.strip() for name in text.split(",") if name.strip()]
    for name in formats:
        if name not in FORMATS:
            raise ConfigError(f"--figures takes {', '.join(FORMATS)}, with commas between them. Got {name!r}.")
    return formats


def write_figures(folder: Path, plots: Sequence[tuple[str, Plot]], formats: Sequence[str]) -> None:
    """Write each of `plots`, the name of its section and the figure, in all `formats` into report-figures/."""
    place = folder / FOLDER
    make_fedsel_folder(place)
    # Fonts as publishers ask for: outlines in SVG, TrueType in PDF; and the same names of parts in every SVG.
    with matplotlib.rc_context({"svg.hashsalt": "fedsel", "svg.fonttype": "path", "pdf.fonttype": 42}):
        for section, plot in plots:
            name = re.sub(r"[^\w.=+-]+", "-", f"{section} {plot.name}".strip())
            for ending in formats:
                with whole_file(place / f"{name}.{ending}") as file:
                    plot.figure.savefig(file, format=ending, **FORMATS[ending])
