"""Bench `masks`: processor time of a masked round's clients and server, beside the functions of Flower's SecAgg+.

A tenth of the clients is gone. fedsel masks 5% of the entries in a ring of `BITS`; SecAgg+ masks all entries. The cost
of its round follows from one mask, one vector that is quantised and one secret that is shared and combined, times the
numbers that its protocol needs with the same neighbours.
"""

import argparse
import os
from typing import Any

import numpy as np
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat
from flwr.common.secure_aggregation.crypto.shamir import combine_shares, create_shares
from flwr.common.secure_aggregation.quantization import quantize
from flwr.common.secure_aggregation.secaggplus_utils import pseudo_rand_gen
from rich.console import Console
from rich.table import Table

from clients.masking import Identity, Masks
from fedsel_app.secure_sums.statement import Statement
from fedsel_app.wire.ring import largest
from laboratory.bench.codec import fastest
from strategies.round.unmasking import Sum

SIZE, SHARE, BITS, GONE = 10**6, 0.05, 16, 0.1
MODULUS = 1 << 32


def measure(clients: int, repeats: int) -> dict[str, Any]:
    """Seconds of a client and of the server, of fedsel and of SecAgg+, in a cohort of this size; bytes a parameter."""
    keys = [ec.generate_private_key(ec.SECP384R1()) for _ in range(clients)]
    private = [key.private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption()) for key in keys]
    public = [key.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH).decode() for key in keys]
    others = dict(enumerate(public))
    masks = [Masks(Identity(client, private[client], others), b"run", 3, {}) for client in range(clients)]
    signed = {client: each.enrol() for client, each in enumerate(masks)}
    size = int(SHARE * SIZE)
    numbers = np.random.default_rng(1).integers(-1, 2, size) * largest(BITS, clients)

    def statement(number: int) -> Statement:
        return Statement(b"run", number, 0, b"model", (), 0, 0, "grid").among(range(clients))

    rounds = iter(range(1, repeats + 1))
    masked_s, _ = fastest(repeats, lambda: masks[0].mask(statement(next(rounds)), signed, numbers, BITS))
    last, there = statement(repeats + 1), range(clients - max(int(GONE * clients), 1))
    total = Sum(last, {each: masks[each].mask(last, signed, numbers, BITS) for each in there}, size, BITS)
    answered_s, first = fastest(1, lambda: masks[0].answer(repeats + 1, 0, total.question(0)))
    answers = {0: first} | {each: masks[each].answer(repeats + 1, 0, total.question(each)) for each in there if each}
    server_s, unmasked = fastest(1, lambda: total.unmasked(answers))
    if not np.array_equal(unmasked, len(there) * numbers):
        raise RuntimeError("The unmasked sum is not the sum.")
    sent = sum(map(len, total.masked[0])) + len(first)
    row = {"clients": clients, "neighbours": last.degree, "masks": total.expanded[0], "bytes": sent / SIZE}
    row |= {"client_s": masked_s + answered_s, "server_s": server_s}
    return row | flowers(clients, last.degree, last.threshold, total.expanded[0], repeats)


def flowers(clients: int, neighbours: int, threshold: int, masks: int, repeats: int) -> dict[str, float]:
    """Seconds of a client and of the server with SecAgg+, computed from its functions."""
    vector, secret = np.random.default_rng(2).normal(size=SIZE), os.urandom(32)
    mask_s, _ = fastest(repeats, lambda: pseudo_rand_gen(secret, MODULUS, [(SIZE,)]))
    quantise_s, _ = fastest(repeats, lambda: quantize([vector], 8.0, 1 << 22))
    share_s, shares = fastest(repeats, lambda: create_shares(secret, threshold, neighbours + 1))
    combine_s, _ = fastest(repeats, lambda: combine_shares(shares[:threshold]))
    return {
        "secagg_client_s": (neighbours + 1) * mask_s + quantise_s + 2 * share_s,
        "secagg_server_s": masks * mask_s + clients * combine_s,
    }


def run(arguments: argparse.Namespace, console: Console) -> list[dict[str, Any]]:
    """Measure each size of a cohort, and print a table."""
    rows = [measure(clients, arguments.repeats) for clients in arguments.cohorts]
    table = Table("clients", "neighbours", "bytes a parameter", "client", "server", "SecAgg+ client", "SecAgg+ server")
    for row in rows:
        seconds = (row[key] for key in ("client_s", "server_s", "secagg_client_s", "secagg_server_s"))
        shown = (f"{1e3 * each:,.0f} ms" for each in seconds)
        table.add_row(str(row["clients"]), str(row["neighbours"]), f"{row['bytes']:.3f}", *shown)
    console.print(table)
    return rows
