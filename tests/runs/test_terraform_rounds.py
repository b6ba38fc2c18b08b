"""Terraform's own rounds on digits: every split that was made is the best of all, by brute force over the uploads."""

from collections import Counter
from fractions import Fraction
from typing import NamedTuple

import numpy as np
import pytest

from fedsel_app.wire.codec import decode
from tests.support.exact_split import exact_split
from tests.support.in_process import run_in_process
from tests.support.stubs import round_of, sent_payload

CLIENTS, COHORT, ETA, ITERATIONS = 20, 16, 3, 3
OUTPUT_LAYER = {"gradient": slice(-650, None), "bias": slice(-10, None)}
"""The last entries of the CNN's parameters: 64 x 10 weights, 10 biases."""


class Upload(NamedTuple):
    client: int
    update: np.ndarray
    examples: int


def trained(folder, rounds=8, **settings):
    """The rows of a run under the preset, and what the clients uploaded in each of its rounds."""
    sent: dict[int, list[tuple[int, np.ndarray]]] = {}

    def listen(client, message, reply):
        update = decode(sent_payload(reply), size=message.model.arrays[0].size).update.values.astype(np.float64)
        sent.setdefault(round_of(message), []).append((client, update))
        return reply

    small = {
        "clients": CLIENTS,
        "cohort": COHORT,
        "rounds": rounds,
        "eval_every": rounds,
        "local_epochs": 1,
        "batch_size": 32,
    }
    names = {"terraform.min-clients": ETA, "terraform.iterations": ITERATIONS, "terraform.count": "iterations"}
    strategy, rows = run_in_process(
        folder, listen, preset="terraform-digits", device="cpu", **small, **(names | settings)
    )
    examples = strategy.roster.examples.tolist()
    uploads = {number: [Upload(*one, examples[one[0]]) for one in cohort] for number, cohort in sent.items()}
    return rows, uploads


def hard_set(uploads, layer, quartiles):
    """Clients above the cheapest of all splits in the range, tried one by one; none if the range is empty."""
    ascending = sorted((float(np.sqrt(np.sum(up.update[layer] ** 2))), up.client, up.examples) for up in uploads)
    tau = exact_split([(Fraction(norm), examples) for norm, _, examples in ascending], quartiles)
    return sorted(client for _, client, _ in ascending[tau:]) if tau else []


@pytest.mark.parametrize(
    ("quartiles", "magnitude"), [("q1-q3", "gradient"), pytest.param("0-1", "bias", marks=pytest.mark.slow)]
)
def test_every_split_of_real_rounds_is_the_best_of_all(tmp_path, quartiles, magnitude):
    rows, uploads = trained(tmp_path, **{"terraform.quartiles": quartiles, "terraform.magnitude": magnitude})
    place, hard, splits = (0, 0), [], Counter()
    for row in rows:
        number, iteration = place
        if iteration < ITERATIONS and len(hard) >= ETA:
            place = number, iteration + 1
            assert row["selected"] == hard
            splits[iteration] += 1
        else:
            place = number + 1, 1
            assert len(row["selected"]) == COHORT
        for name, expected in zip(("round", "iteration"), place, strict=True):
            assert set(row["components"][name]) == {float(expected)}
        assert sorted(up.client for up in uploads[row["round"]]) == row["selected"]
        assert row["client_updates"] == len(row["selected"])
        hard = hard_set(uploads[row["round"]], OUTPUT_LAYER[magnitude], quartiles)
    assert splits[1] >= 3
    assert splits[2] >= 1
