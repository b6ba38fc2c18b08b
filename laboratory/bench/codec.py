"""Bench `codec`: speed and size of encoded updates, by density and value width."""

import argparse
import math
import time
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np
from rich.console import Console
from rich.table import Table

from clients.compressors import rounded
from fedsel_app.seeds import Purpose, stream
from fedsel_app.wire.codec import Update, decode, encode, index_bits

Result = TypeVar("Result")


def fastest(repeats: int, call: Callable[[], Result]) -> tuple[float, Result]:
    """Processor seconds of this thread in the fastest of `repeats` calls, and the last one's return value.

    Time spent waiting for a core is left out, so a busy machine measures the same as an idle one.
    """
    best = math.inf
    for _ in range(repeats):
        start = time.thread_time()
        found = call()
        best = min(best, time.thread_time() - start)
    return best, found


SIZE = 2_781_514
"""Entries of the AlexNet of CIFAR-10."""
DENSITIES = (0.005, 0.01, 0.05, 0.1, 0.2, 0.3, 0.5)
VALUE_BITS = (32, 16, 8, 4)


def entropy(density: float) -> float:
    """Entropy H(p) in bits per entry of the model: lower bound for the indices of independently kept entries."""
    return -density * math.log2(density) - (1.0 - density) * math.log2(1.0 - density)


def drawn(size: int, density: float, client: int = 0) -> Update:
    """An update with normal values at random positions, or at all positions."""
    rng = stream(0, Purpose.DATA, 0, client)
    if density == 1.0:
        return Update(size, None, rng.standard_normal(size, np.float32))
    count = round(density * size)
    indices = np.sort(rng.choice(size, count, replace=False)).astype(np.uint32)
    return Update(size, indices, rng.standard_normal(count, np.float32))


def measure(size: int, density: float, value_bits: int, repeats: int) -> dict[str, Any]:
    """Measure one row: speeds as MB/s of the dense float32 update, bits of each kept entry, and ratios."""
    plain = drawn(size, density)
    round_s, update = 0.0, plain
    if value_bits < 32:
        round_s, update = fastest(repeats, lambda: rounded(plain, value_bits, None))
    encode_s, payload = fastest(repeats, lambda: encode(update, client=0, server_round=1))
    decode_s, packet = fastest(repeats, lambda: decode(payload, size=size))
    if packet.update != update:
        raise RuntimeError(f"The codec changed an update of density {density} and {value_bits} bits.")
    dense_mb = 4 * size / 1e6
    places = index_bits(payload)
    whole = 8 * len(encode(plain, client=0, server_round=1))
    return {
        "value_bits": value_bits,
        "density": density,
        "round_mb_s": dense_mb / round_s if round_s else None,
        "encode_mb_s": dense_mb / encode_s,
        "decode_mb_s": dense_mb / decode_s,
        "index_bits": places / update.count,
        "entropy_bits": entropy(density) * size / update.count,
        "index_over_entropy": places / (entropy(density) * size),
        "bits_an_entry": 8 * len(payload) / update.count,
        "bytes_over_float32": 8 * len(payload) / whole,
    }


def run(arguments: argparse.Namespace, console: Console) -> list[dict[str, Any]]:
    """Print the table, fastest of `arguments.repeats`, and return its rows."""
    table = Table(title=f"Update codec, N = {SIZE:,}, one core, processor time: MB/s (dense), bits of a kept entry")
    headings = ("bits", "density", "round", "encode", "decode", "index", "entropy", "ratio", "all", "of fp32 bytes")
    for heading in headings:
        table.add_column(heading, justify="right")
    rows = []
    for value_bits in VALUE_BITS:
        for density in DENSITIES:
            row = measure(SIZE, density, value_bits, arguments.repeats)
            rows.append(row)
            speeds = [row["round_mb_s"], row["encode_mb_s"], row["decode_mb_s"]]
            table.add_row(
                str(value_bits),
                str(density),
                *("-" if speed is None else f"{speed:,.0f}" for speed in speeds),
                *(f"{row[name]:.3f}" for name in ("index_bits", "entropy_bits", "index_over_entropy")),
                f"{row['bits_an_entry']:.2f}",
                f"{row['bytes_over_float32']:.1%}",
                end_section=density == DENSITIES[-1],
            )
    console.print(table)
    return rows
