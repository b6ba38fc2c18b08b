"""One of ten clients is hostile or broken: the others still learn, and the server continues."""

from dataclasses import replace

import numpy as np
import pytest

from fedsel_app.wire.codec import Update, decode, encode
from tests.support.in_process import run_in_process
from tests.support.payloads import sealed
from tests.support.stubs import sent_payload, with_payload

HOSTILE = 4
TRAINING = {
    "strategy": "random",
    "model": "logistic",
    "clients": 10,
    "cohort": 10,
    "rounds": 12,
    "local_steps": 5,
    "lr": 0.1,
    "partition": "dirichlet",
    "kept_fraction": 0.3,
    "curvature_layers": 0,
}


def with_update(reply, change, **header):
    """`reply` with its update changed by a hostile client, who makes a sound payload of it."""
    payload = sent_payload(reply)
    packet = decode(payload, size=int.from_bytes(payload[8:12], "little"))
    sent = {"client": packet.client, "server_round": packet.server_round} | header
    return with_payload(reply, encode(change(packet.update), **sent))


def scaled(factor):
    return lambda update: Update(update.size, update.indices, update.values * np.float32(factor))


def one_value(value):
    def change(update):
        return Update(update.size, update.indices, np.full_like(update.values, value))

    return change


def sends_nan(reply, kept):
    """NaN where the values are; the check sum fits."""
    return with_payload(reply, sealed(sent_payload(reply)[:-8] + np.float32(np.nan).tobytes()))


def sends_1e30(reply, kept):
    return with_update(reply, one_value(1e30))


def sends_1e10(reply, kept):
    """Squares of it are no overflow: the round's median says that it is absurd."""
    return with_update(reply, one_value(1e10))


def sends_the_first_again(reply, kept):
    return kept.setdefault("first", reply)


def claims_an_old_update_is_new(reply, kept):
    first = kept.setdefault("first", reply)
    return with_update(first, lambda update: update, server_round=int.from_bytes(sent_payload(reply)[20:24], "little"))


def flips_signs(reply, kept):
    return with_update(reply, scaled(-10.0))


def train(folder, attack=None, **settings):
    kept = {}

    def on_fit(client, message, reply):
        return attack(reply, kept) if attack and client == HOSTILE else reply

    _, rows = run_in_process(folder, on_fit, **TRAINING | settings)
    return rows


@pytest.fixture(scope="module")
def clean(tmp_path_factory):
    """Accuracy after each round of the run in which everybody is honest."""
    return [row["accuracy"] for row in train(tmp_path_factory.mktemp("clean"))]


@pytest.mark.parametrize(
    ("attack", "rejected"),
    [
        (sends_nan, "not finite"),
        (sends_1e30, "norm"),
        (sends_1e10, "max-update-norm"),
        (sends_the_first_again, "for round 1"),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_what_is_rejected_harms_nobody(tmp_path, clean, attack, rejected):
    rows = train(tmp_path, attack, rounds=5)
    assert rows[-1]["accuracy"] >= clean[4] - 0.02
    late = rows[1:] if attack is sends_the_first_again else rows
    for row in late:
        [failure] = row["failures"]
        assert failure["client"] == HOSTILE
        assert rejected in failure["reason"]
        assert HOSTILE not in row["aggregated"]


@pytest.mark.parametrize(
    ("attack", "aggregation"),
    [
        (flips_signs, "median"),
        (flips_signs, "trimmed-mean"),
        (flips_signs, "multi-krum"),
        (claims_an_old_update_is_new, "median"),
    ],
    ids=lambda value: getattr(value, "__name__", value),
)
def test_what_looks_sound_is_outvoted(tmp_path, clean, attack, aggregation):
    rows = train(tmp_path, attack, aggregation=aggregation, trim_share=0.2)
    assert not any(row["failures"] for row in rows)
    assert rows[-1]["accuracy"] >= clean[-1] - 0.02


def test_lies_about_examples_move_nothing(tmp_path):
    honest = train(tmp_path / "honest", rounds=2)
    lying = train(tmp_path / "lying", lambda reply, kept: replace(reply, examples=10**15), rounds=2)
    assert [row["weights"] for row in lying] == [row["weights"] for row in honest]
    assert lying[-1]["loss"] == honest[-1]["loss"]
