"""Bench `masks`: processor time of a masked round's clients and server, beside the functions of Flower's SecAgg+.

A tenth of the clients is gone. fedsel masks 5% of the entries in a ring of `BITS`; SecAgg+ masks all entries. The cost
of its round follows from one mask, one vector that is quantised and one secret that is shared and combined, times the
numbers that its protocol needs with the same neighbours.

With `--fedml FILE`, the functions of FedML's LightSecAgg are timed, too. FILE is `fedml/core/mpc/lightsecagg.py` of its
wheel (0.9.6), which needs only NumPy and PyTorch. Its clients call them as here, with all clients there: it waits for
all. A message counts as pickled, as FedML's gRPC sends it. The prime and the bits are those of its example.
"""

import argparse
import importlib.util
import os
import pickle
from pathlib import Path
from types import ModuleType
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
FEDML_PRIME, FEDML_BITS = 2**15 - 19, 10


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


def light_sec_agg(file: Path) -> ModuleType:
    """FedML's module of LightSecAgg."""
    spec = importlib.util.spec_from_file_location("lightsecagg", file)
    if spec is None or spec.loader is None:
        raise OSError(f"{file} is no module.")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def fedmls(fedml: ModuleType, clients: int, repeats: int) -> dict[str, float]:
    """Seconds of a client and of the server with LightSecAgg, and bytes a parameter that a client sends."""
    blocks = clients - clients // 2
    size = -(-SIZE // blocks) * blocks
    vector = np.random.default_rng(2).normal(0.0, 0.01, SIZE).astype(np.float32)

    def masked() -> tuple[Any, list[Any], Any]:
        mask = np.random.randint(FEDML_PRIME, size=(size, 1))  # noqa: NPY002 (as FedML does)
        shares = fedml.mask_encoding(size, clients, clients, clients // 2, FEDML_PRIME, mask)
        update = fedml.transform_tensor_to_finite({"update": vector}, FEDML_PRIME, FEDML_BITS)
        return shares, shares.tolist(), fedml.model_masking(update, [SIZE], mask, FEDML_PRIME)

    masked_s, (shares, listed, update) = fastest(repeats, masked)
    held = dict.fromkeys(range(clients), shares[0])
    summed_s, told = fastest(
        repeats, lambda: fedml.compute_aggregate_encoded_mask(held, FEDML_PRIME, list(range(clients)))
    )

    def unmasked() -> Any:
        points = np.arange(1, 2 * clients + 1)
        encoded = np.array([told] * clients)
        mask = fedml.LCC_decoding_with_points(encoded, points[:clients], points[clients:], FEDML_PRIME)
        total = sum(update["update"] for _ in range(clients)) - mask.reshape(-1)[:SIZE]
        return fedml.transform_finite_to_tensor({"update": np.mod(total, FEDML_PRIME)}, FEDML_PRIME, FEDML_BITS)

    server_s, _ = fastest(repeats, unmasked)
    sent = sum(len(pickle.dumps(each)) for each in (*listed[1:], update, told))
    return {"fedml_client_s": masked_s + summed_s, "fedml_server_s": server_s, "fedml_bytes": sent / SIZE}


def run(arguments: argparse.Namespace, console: Console) -> list[dict[str, Any]]:
    """Measure each size of a cohort, and print a table."""
    fedml = light_sec_agg(Path(arguments.fedml)) if arguments.fedml else None
    rows = [measure(clients, arguments.repeats) for clients in arguments.cohorts]
    if fedml is not None:
        rows = [row | fedmls(fedml, row["clients"], arguments.repeats) for row in rows]
    table = Table("clients", "neighbours", "of", "bytes a parameter", "client", "server")
    for row in rows:
        row |= {"secagg_bytes": 8.0}
        for name, key in {"fedsel": "", "SecAgg+": "secagg_", "FedML": "fedml_"}.items():
            if f"{key}bytes" in row:
                seconds = (f"{1e3 * row[f'{key}{side}_s']:,.0f} ms" for side in ("client", "server"))
                sent = f"{row[f'{key}bytes']:.3f}"
                table.add_row(str(row["clients"]), str(row["neighbours"]), name, sent, *seconds)
    console.print(table)
    return rows
