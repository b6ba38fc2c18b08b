"""Attacks on sums of integers: what a client sends in place of its multiples is refused, and the run goes on."""

import numpy as np
import pytest

from fedsel_app.wire.codec import Update, decode, encode
from fedsel_app.wire.entries import decode_entries
from fedsel_app.wire.ring import Multiples
from tests.support.in_process import run_in_process
from tests.support.payloads import sealed
from tests.support.stubs import sent_payload, with_payload

SMALL = {
    "model": "mlp",
    "clients": 4,
    "cohort": 4,
    "rounds": 2,
    "local_steps": 2,
    "device": "cpu",
    "strategy": "random",
}
COMMON = SMALL | {"compressor": "common-k", "kept_warmup_rounds": 0, "kept_fraction": 0.05}
LIAR = 2
LIES = {
    "beyond": "it sent a multiple of 8192, and 4 clients may send 8191 each",
    "grid": "its values are not in multiples of 2^",
    "ring": "its values are not in multiples of 2^",
    "floats": "its values are not in multiples of 2^",
    "entries": "it sent other entries than the server has stated",
    "fewer": "The payload is of a model of",
    "short": "The payload is too short",
}


@pytest.mark.parametrize("lie", LIES)
def test_a_client_that_sends_no_multiples_of_the_round_is_left_out(tmp_path, lie):
    def on_fit(client, message, reply):
        if client != LIAR:
            return reply
        size, asked = message.model.arrays[0].size, message.instruction
        entries = decode_entries(asked.entries, size, asked.server_round)
        honest = decode(sent_payload(reply), size=entries.count(size)).update
        indices, integers = None, honest.quantised.integers.copy()
        bits, grid = honest.quantised.bits, honest.quantised.grid
        match lie:
            case "beyond":
                integers[0] = -8192
            case "grid":
                grid += 1
            case "ring":
                bits = 24
            case "entries":
                indices, integers = np.array([0, 2], np.uint32), integers[:2]
            case "fewer":
                integers = integers[1:]
        forged = Multiples(bits, grid, honest.quantised.exponent, integers)
        count = integers.size if indices is None else honest.size
        update = Update(count, indices, forged.values(), None if lie == "floats" else forged)
        payload = encode(update, client=client, server_round=asked.server_round)
        if lie == "short":
            payload = sealed(payload[:-6])
        return with_payload(reply, payload)

    _, rows = run_in_process(tmp_path, on_fit, **COMMON)
    for row in rows:
        assert row["aggregated"] == [0, 1, 3]
        [failure] = row["failures"]
        assert failure["client"] == LIAR
        assert LIES[lie] in failure["reason"]
