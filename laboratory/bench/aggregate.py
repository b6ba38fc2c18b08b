"""Bench `aggregate`: time of the server's sum of a cohort's updates, beside the bound of its memory.

The bound is a copy of as many bytes as the sum must read and write at least: every index and value once, and the
model's float64 sum once each way. "step" is the whole way from decoded replies to the next global model, the server
optimiser with its momentum included.
"""

import argparse
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from fedsel_app.config import Settings
from fedsel_app.exact_sums import weighted_sum
from fedsel_app.messages.answers import TrainAnswer
from fedsel_app.wire.codec import Update
from laboratory.bench.codec import SIZE, drawn, fastest
from strategies.aggregation.server_state import ServerState
from strategies.roster import Selection
from strategies.round.replies.training import Decoded, Replies
from strategies.testing.fakes import make_context

COHORT = 10
DENSITIES = (0.01, 0.05, 0.1, 0.2, 0.5, 1.0)
_INDEX_BYTES, _VALUE_BYTES, _SUM_BYTES = 4, 4, 8


def touched_bytes(size: int, updates: tuple[Update, ...]) -> int:
    """Bytes that the sum of `updates` must read and write at least."""
    indexed = sum(update.count for update in updates if update.indices is not None)
    return 2 * _SUM_BYTES * size + _VALUE_BYTES * sum(update.count for update in updates) + _INDEX_BYTES * indexed


def measure(size: int, density: float, repeats: int) -> dict[str, Any]:
    """Measure one row: milliseconds of the sum, of the server's whole step, and of the copy, and their ratios."""
    updates = tuple(drawn(size, density, client) for client in range(COHORT))
    weights = [1.0 / COHORT] * COHORT
    ids, ones = np.arange(COHORT), np.ones(COHORT)
    server = ServerState(make_context(Settings(), clients=COHORT, cohort=COHORT, size=size))
    answer = TrainAnswer(1.0, 1.0)
    replies = Replies(ids, tuple(Decoded(answer, (update,), 0, None) for update in updates), ids + 1, (), [])
    parameters, selection = np.zeros(size, np.float32), Selection(ids, ones)
    sum_s, _ = fastest(repeats, lambda: weighted_sum(updates, weights))
    step_s, _ = fastest(repeats, lambda: server.step(parameters, selection, replies))
    # A copy reads one half of the bytes and writes the other.
    source = np.zeros(touched_bytes(size, updates) // 2, np.uint8)
    target = np.zeros_like(source)
    source += 1
    target += 1
    copy_s, _ = fastest(repeats, lambda: np.copyto(target, source))
    return {
        "density": density,
        "updates": COHORT,
        "sum_ms": 1e3 * sum_s,
        "step_ms": 1e3 * step_s,
        "bound_ms": 1e3 * copy_s,
        "sum_over_bound": sum_s / copy_s,
        "mb_touched": touched_bytes(size, updates) / 1e6,
        "ns_an_entry": 1e9 * sum_s / sum(update.count for update in updates),
    }


def run(arguments: argparse.Namespace, console: Console) -> list[dict[str, Any]]:
    """Print the table, fastest of `arguments.repeats`, and return its rows."""
    table = Table(title=f"Sum of {COHORT} updates, N = {SIZE:,}, one core, processor time")
    for heading in ("density", "sum ms", "server step ms", "memory bound ms", "sum / bound", "MB", "ns an entry"):
        table.add_column(heading, justify="right")
    rows = []
    for density in DENSITIES:
        row = measure(SIZE, density, arguments.repeats)
        rows.append(row)
        table.add_row(
            str(density),
            *(f"{row[name]:.1f}" for name in ("sum_ms", "step_ms", "bound_ms", "sum_over_bound", "mb_touched")),
            f"{row['ns_an_entry']:.2f}",
        )
    console.print(table)
    return rows
