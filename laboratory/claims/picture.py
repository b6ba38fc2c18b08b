"""Picture of the rankings: methods by workloads, each lead over the baseline with its interval and what it shows."""

from collections.abc import Mapping, Sequence
from io import BytesIO
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from PIL import Image

from laboratory.claims.measured import Measured
from laboratory.claims.ranking import (
    AHEAD,
    BASELINE,
    BEHIND,
    OPEN,
    PIPELINE,
    WITHIN,
    RankedMethod,
    Ranking,
    ranked_methods,
)

CURRENCIES = {"accuracy_at_traffic_mb": "bytes", "accuracy_at_time_s": "seconds", "accuracy_at_rounds": "rounds"}
"""Metric of a ranking -> what every method may spend the same amount of."""
SPENT = {"bytes": "bytes (all traffic)", "seconds": "simulated seconds"}
UNITS = {"bytes": "MB", "seconds": "s"}
NAMES = {"random": "random (by examples)"}
"""Names of methods that could be taken for the baseline."""
SYMBOLS = {AHEAD: "▲", BEHIND: "▼", WITHIN: "=", OPEN: "·"}
COLOURS = {AHEAD: "#0072B2", BEHIND: "#D55E00"}
FULL_COLOUR = 25.0
"""Points at and beyond which a cell has its full colour."""
INCHES, DOTS_PER_INCH = 4.1, 200
"""Width of a picture. At 100 points to the inch, which is how the README shows it, two stand beside each other."""
COLOUR_COUNT = 128
"""Colours of the files, which would be three times as large with all."""
ROW, HEAD, FOOT = 0.25, 0.86, 0.56
"""Heights of a row, and of what stands above and below the rows, in inches."""
Places = Mapping[str, Mapping[str, RankedMethod]]
"""Ranking -> method -> its place."""


def placed(rankings: Sequence[Ranking], key: str, measured: Measured) -> Places:
    """Places of the methods, without variants, in the metric `key`, by ranking with runs: those of most seeds first."""
    found = {}
    for ranking in sorted(rankings, key=lambda ranking: -len(ranking.seeds)):
        methods = {side.name for side in ranking.sides if side.name == side.strategy}
        for metric in ranking.metrics:
            order = ranked_methods(ranking, metric, measured) if metric.key == key else []
            if own := {place.name: place for place in order if place.name in methods}:
                found[ranking.name] = own
    return found


def methods_of(places: Places) -> list[str]:
    """Methods from the best mean lead over the workloads to the worst."""
    every = dict.fromkeys(name for own in places.values() for name in own)
    means = {name: np.mean([own[name].lead.mean for own in places.values() if name in own]) for name in every}
    return sorted(every, key=lambda name: (-means[name], name))


def workload(ranking: Ranking) -> list[str]:
    """Data set and degree of skew of a ranking, from its title."""
    parts = ranking.title.removeprefix("Tuned: ").split(", ")
    return [part.partition(" (")[0].removesuffix(" skew") for part in dict.fromkeys((parts[0], parts[-1]))]


def draw_rankings(out: Path, rankings: Sequence[Ranking], measured: Measured) -> list[Path]:
    """Draw rankings-bytes.png and rankings-seconds.png into the folder `out`, with the methods in one order."""
    bytes_key, seconds_key, _ = CURRENCIES
    methods = methods_of(placed(rankings, bytes_key, measured))
    paths = []
    for key in (bytes_key, seconds_key):
        paths.append(out / f"rankings-{CURRENCIES[key]}.png")
        figure = rankings_figure(rankings, key, methods, measured)
        drawn = BytesIO()
        figure.savefig(drawn, format="png", dpi=DOTS_PER_INCH)
        Image.open(drawn).convert("RGB").quantize(COLOUR_COUNT).save(paths[-1], optimize=True)
    return paths


def rankings_figure(rankings: Sequence[Ranking], key: str, methods: Sequence[str], measured: Measured) -> Figure:
    """Figure with a row for each of `methods`, and a column for each ranking with runs, in the metric `key`."""
    places, by_name = placed(rankings, key, measured), {ranking.name: ranking for ranking in rankings}
    height = HEAD + ROW * len(methods) + FOOT
    figure = Figure(figsize=(INCHES, height))
    axes = figure.add_axes((0.31, FOOT / height, 0.685, ROW * len(methods) / height))
    axes.set_xlim(0, max(1, len(places)))
    axes.set_ylim(max(1, len(methods)), 0)
    axes.set_yticks([row + 0.5 for row in range(len(methods))], [NAMES.get(name, name) for name in methods], fontsize=7)
    axes.tick_params(length=0, pad=2)
    axes.tick_params(axis="x", labeltop=True, labelbottom=False)
    heads = []
    for column, (name, own) in enumerate(places.items()):
        seeds = next(iter(own.values())).lead.n
        budget = f"{by_name[name].budgets[key]:g} {UNITS[CURRENCIES[key]]}"
        data, *skew = workload(by_name[name])
        heads.append("\n".join([data.replace("Fashion-", "Fashion-\n"), *skew, budget, f"{seeds} seeds"]))
        for row, method in enumerate(methods):
            if method in own:
                _cell(axes, column, row, own[method])
    axes.set_xticks([column + 0.5 for column in range(len(places))], heads, fontsize=6.2, linespacing=1.15)
    axes.spines[:].set_visible(False)
    figure.text(
        0.5, 1 - 0.03 / height, f"At equal {SPENT[CURRENCIES[key]]}", fontsize=9, weight="bold", ha="center", va="top"
    )
    legend = (
        f"points of test accuracy over {BASELINE}, ±95%\n"
        f"label skew; all tuned, on {PIPELINE}\n"
        f"{SYMBOLS[AHEAD]} ahead   {SYMBOLS[BEHIND]} behind   {SYMBOLS[WITHIN]} {WITHIN}   italics: {OPEN}"
    )
    figure.text(0.5, 0.06 / height, legend, fontsize=6.5, ha="center", va="bottom", linespacing=1.4)
    return figure


def _cell(axes: Axes, column: int, row: int, place: RankedMethod) -> None:
    """Draw a cell: the lead, below it the symbol of its word and half of the interval, on a colour for the word."""
    lead, half = round(100 * place.lead.mean, 1) + 0.0, 50 * (place.lead.high - place.lead.low)
    strength = min(1.0, 0.15 + 0.85 * abs(lead) / FULL_COLOUR)
    colour = np.array(to_rgb(COLOURS.get(place.word, "white" if place.word == WITHIN else "#F0F0F0")))
    if place.word in COLOURS:
        colour = 1.0 - strength * (1.0 - colour)
    axes.add_patch(Rectangle((column, row), 1, 1, facecolor=colour, edgecolor="white", linewidth=1))
    still_open = place.word == OPEN
    shown = f"{lead:+.1f}".replace("-", "−"), f"{'' if still_open else f'{SYMBOLS[place.word]} '}±{half:.1f}"
    for text, down, size in zip(shown, (0.31, 0.74), (7.5, 6.2), strict=True):
        written = axes.text(column + 0.5, row + down, text, fontsize=size, ha="center", va="center")
        written.set(style="italic" if still_open else "normal", color="#666666" if still_open else "black")
        written.set_fontweight("bold" if place.word == AHEAD and size > 7.0 else "normal")
